//! User names, passwords, and the files that hold secrets.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bridge_transport::{Password, Secret};

use super::identity::mqtt_text;
use crate::config::fields::{self, Field};
use crate::config::problem::Problem;
use crate::config::quantity::show_size;
use crate::config::reader::{Found, Map, Reader, Text};

/// The largest secret file that is read.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// The fields of one login.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    username: &'static Field,
    password: &'static Field,
    password_file: &'static Field,
}

/// Who we are to the broker.
pub(super) const BROKER: Fields = Fields {
    username: &fields::USERNAME,
    password: &fields::PASSWORD,
    password_file: &fields::PASSWORD_FILE,
};

/// Who we are to the proxy.
pub(super) const PROXY: Fields = Fields {
    username: &fields::PROXY_USERNAME,
    password: &fields::PROXY_PASSWORD,
    password_file: &fields::PROXY_PASSWORD_FILE,
};

/// Who we are.
#[derive(Debug)]
pub(super) enum Login {
    Anonymous,
    As {
        username: String,
        password: Option<Password>,
    },
}

impl Fields {
    /// The field of `map` that says the most about who we are, if any is there.
    pub(super) fn written(&self, map: &Map<'_>) -> Option<&'static Field> {
        [self.password, self.password_file, self.username]
            .into_iter()
            .find(|field| map.has(field))
    }
}

/// `None` when something about it is wrong.
pub(super) fn check(
    reader: &mut Reader<'_>,
    map: &Map<'_>,
    fields: Fields,
    folder: &Path,
) -> Option<Login> {
    let username = reader
        .text(map, fields.username)
        .and_then(|name| mqtt_text(reader, &name));
    let password = reader
        .text(map, fields.password)
        .and_then(|text| mqtt_text(reader, &text))
        .map(Secret::new);
    let file = reader.text(map, fields.password_file);
    if map.has(fields.password) && map.has(fields.password_file) {
        reader.report(&map.key(fields.password), Problem::TwoPasswords);
        return None;
    }
    // The file is looked into now, and read again at each connect: it may be renewed.
    let password = match file {
        Some(file) => {
            secret_file(reader, &file, folder)?;
            Some(Password::File(folder.join(&file.value.value)))
        }
        None => password.map(Password::Text),
    };
    match (username, map.has(fields.username)) {
        (Some(username), _) => Some(Login::As { username, password }),
        (None, true) => None,
        (None, false) => {
            if let Some(field) = fields.written(map) {
                reader.report(&map.key(field), Problem::PasswordWithoutUsername);
            }
            Some(Login::Anonymous)
        }
    }
}

/// What stands in a file, without the newline that an editor puts at its end.
pub(super) fn secret_file(
    reader: &mut Reader<'_>,
    path: &Found<Text>,
    folder: &Path,
) -> Option<Secret> {
    let (_, bytes) = bytes(reader, path, folder, MAX_SECRET_BYTES)?;
    let what = match String::from_utf8(bytes) {
        Err(_) => "is not valid UTF-8",
        Ok(text) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if !text.is_empty() {
                return Some(Secret::new(text.to_owned()));
            }
            "is empty"
        }
    };
    unusable(reader, path, what.to_owned());
    None
}

/// What stands in a file, and its path as seen from here.
pub(super) fn bytes(
    reader: &mut Reader<'_>,
    path: &Found<Text>,
    folder: &Path,
    max: u64,
) -> Option<(PathBuf, Vec<u8>)> {
    if path.value.value.is_empty() {
        reader.report(&path.at, Problem::EmptyText);
        return None;
    }
    let full = folder.join(&path.value.value);
    match read(&full, max) {
        Ok(Some(bytes)) => return Some((full, bytes)),
        Ok(None) => unusable(reader, path, format!("is larger than {}", show_size(max))),
        Err(error) => {
            let (path_shown, error) = (path.value.shown.clone(), error.to_string());
            let problem = Problem::UnreadableFile {
                path: path_shown,
                error,
            };
            reader.report(&path.at, problem);
        }
    }
    None
}

/// Says what is wrong with the file that stands at `path`.
pub(super) fn unusable(reader: &mut Reader<'_>, path: &Found<Text>, what: String) {
    let path_shown = path.value.shown.clone();
    let problem = Problem::File {
        path: path_shown,
        what,
    };
    reader.report(&path.at, problem);
}

/// `None` of a file that is larger than `max` bytes.
fn read(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= max);
    Ok(fits.then_some(bytes))
}
