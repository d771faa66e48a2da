//! The listener of the admin API: where it is, what opens it, how it is encrypted.

use std::net::SocketAddr;
use std::path::Path;

use bridge_dlq_admin::{AdminOptions, TlsFiles, Token, TokenOrigin};
use bridge_transport::Secret;

use super::{address, credentials, tls};
use crate::config::problem::{Doubt, Problem};
use crate::config::reader::{Map, Reader, Reported};
use crate::config::{AdminAccess, AdminSecret, fields};

/// The section `admin`; `None` when something about it is wrong.
pub(super) fn check(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<AdminOptions> {
    let at = reader.text(map, &fields::ADMIN_LISTEN);
    let listen = at.as_ref().and_then(|listen| address(reader, listen));
    let token = token(reader, map, folder);
    let tls = encryption(reader, map, folder);
    if let (Some(listen), Some(at), false) = (listen, at, map.has(&fields::ADMIN_TLS))
        && !is_on_this_machine(listen)
    {
        reader.report(&at.at, Problem::Doubt(Doubt::AdminInTheClear(listen)));
    }
    Some(AdminOptions {
        listen: listen?,
        token: token?,
        tls: tls.ok()?,
    })
}

/// How it is reached by who has this file. Only who asks reads the file of the token.
pub(super) fn access(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<AdminAccess> {
    let listen = reader.text(map, &fields::ADMIN_LISTEN);
    let listen = listen.and_then(|listen| address(reader, &listen));
    let text = reader.text(map, &fields::TOKEN);
    let file = reader.text(map, &fields::TOKEN_FILE);
    let token = match (text, file) {
        (_, Some(file)) => AdminSecret::File(folder.join(&file.value.value)),
        (Some(text), None) => AdminSecret::Text(Secret::new(text.value.value)),
        (None, None) => {
            reader.report(&map.at.clone(), Problem::NoToken);
            return None;
        }
    };
    Some(AdminAccess {
        listen: listen?,
        encrypted: map.has(&fields::ADMIN_TLS),
        token,
    })
}

fn is_on_this_machine(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn token(reader: &mut Reader<'_>, map: &Map<'_>, folder: &Path) -> Option<TokenOrigin> {
    let text = reader.text(map, &fields::TOKEN);
    let file = reader.text(map, &fields::TOKEN_FILE);
    match (map.has(&fields::TOKEN), map.has(&fields::TOKEN_FILE)) {
        (true, true) => {
            reader.report(&map.key(&fields::TOKEN), Problem::TwoTokens);
            None
        }
        (false, false) => {
            reader.report(&map.at.clone(), Problem::NoToken);
            None
        }
        (true, false) => {
            let text = text?;
            match Token::parse(&text.value.value) {
                Ok(token) => Some(TokenOrigin::Text(token)),
                Err(why) => {
                    reader.report(&text.at, Problem::Token(why));
                    None
                }
            }
        }
        // The file is looked into now, and read again when it changes.
        (false, true) => {
            let file = file?;
            let secret = credentials::secret_file(reader, &file, folder)?;
            match Token::parse(secret.expose()) {
                Ok(_) => Some(TokenOrigin::File(folder.join(&file.value.value))),
                Err(why) => {
                    credentials::unusable(reader, &file, format!("is of no use: {why}"));
                    None
                }
            }
        }
    }
}

/// `None` where none is asked for.
fn encryption(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    folder: &Path,
) -> Result<Option<TlsFiles>, Reported> {
    if !map.has(&fields::ADMIN_TLS) {
        return Ok(None);
    }
    let section = reader.section(map, &fields::ADMIN_TLS).ok_or(Reported)?;
    let Some(pair) = tls::own_certificate(reader, &section, folder)? else {
        let field = &fields::CERTIFICATE_FILE;
        reader.report(&section.at, Problem::MissingField(field.name, field.doc));
        return Err(Reported);
    };
    Ok(Some(TlsFiles {
        certificate: pair.certificate,
        key: pair.key,
    }))
}
