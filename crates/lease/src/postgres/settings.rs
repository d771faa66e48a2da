//! Which database, as whom, and how it is encrypted.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};

/// Where the password of the database's user comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabasePassword {
    /// There is none: the server knows us by something else.
    None,
    /// It is this.
    Text(String),
    /// It is in this file, which is read for each connection.
    File(PathBuf),
}

impl fmt::Debug for DatabasePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// How to reach the database that holds a lease.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    pub(super) config: Config,
    pub(super) password: DatabasePassword,
    pub(super) ca_file: Option<PathBuf>,
}

/// Why a text is no URL of a database. None of it repeats the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPostgresUrl {
    /// Not a URL of PostgreSQL.
    #[error(
        "the URL of a PostgreSQL database is of the form \
         postgres://user@host:5432/database?sslmode=require"
    )]
    NoUrl,
    /// A part of it is wrong.
    #[error("the URL of the database is wrong: {0}")]
    Part(String),
    /// It holds a password.
    #[error("a URL must not hold a password, as it is shown and logged: put it into password_file")]
    Password,
    /// A way of encrypting that protects from nobody who is in the way.
    #[error(
        "sslmode={0} would send the password to whoever answers: write sslmode=require, with which \
         the server's certificate is verified, or sslmode=disable on a network that you trust"
    )]
    Unverified(String),
    /// A parameter that has a field of its own.
    #[error("{0} cannot be in the URL: {1}")]
    Elsewhere(&'static str, &'static str),
    /// It names no host.
    #[error("the URL of the database names no host: write it as in postgres://user@host/database")]
    NoHost,
    /// It names no user.
    #[error("the URL of the database names no user: write it as in postgres://user@host/database")]
    NoUser,
}

impl PostgresSettings {
    /// Reads `postgres://user@host:5432/database`, with several hosts if need be, and the parameters
    /// that `libpq` has.
    ///
    /// Without a word about `sslmode` everything but loopback and a Unix socket is encrypted, and a
    /// certificate is always verified, with the host's name.
    pub fn parse(url: &str) -> Result<Self, InvalidPostgresUrl> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or(InvalidPostgresUrl::NoUrl)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (ssl_mode, others) = ssl_mode(query)?;
        let mut config: Config = format!("postgres://{place}?{}", others.join("&"))
            .parse()
            .map_err(|error| InvalidPostgresUrl::Part(cause(&error)))?;
        if config.get_password().is_some() {
            return Err(InvalidPostgresUrl::Password);
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(InvalidPostgresUrl::NoUser);
        }
        if config.get_hosts().is_empty() {
            return Err(InvalidPostgresUrl::NoHost);
        }
        if config.get_channel_binding() == ChannelBinding::Require {
            return Err(InvalidPostgresUrl::Elsewhere(
                "channel_binding=require",
                "it is not supported; sslmode=require verifies the server's certificate",
            ));
        }
        let near = config.get_hosts().iter().all(is_near);
        let ssl_mode = ssl_mode.unwrap_or(if near {
            SslMode::Disable
        } else {
            SslMode::Require
        });
        config.ssl_mode(ssl_mode);
        // A replica that cannot be written is of no use; with several hosts the next is asked.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("bridge-lease");
        }
        Ok(Self {
            config,
            password: DatabasePassword::None,
            ca_file: None,
        })
    }

    /// With that password.
    pub fn with_password(mut self, password: DatabasePassword) -> Self {
        self.password = password;
        self
    }

    /// Trusts the authorities in that PEM file, instead of those that the machine trusts.
    pub fn with_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The same for each host alone, so that each can be given its share of the time.
    pub(super) fn each_host(&self) -> Vec<Config> {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        let addresses = self.config.get_hostaddrs();
        let alone = |(at, host): (usize, &Host)| {
            let mut config = self.without_hosts();
            match host {
                Host::Tcp(name) => config.host(name),
                Host::Unix(path) => config.host_path(path),
            };
            if let Some(address) = addresses.get(at) {
                config.hostaddr(*address);
            }
            if let Some(port) = ports.get(at).or(ports.first()) {
                config.port(*port);
            }
            config
        };
        hosts.iter().enumerate().map(alone).collect()
    }

    fn without_hosts(&self) -> Config {
        let all = &self.config;
        let mut config = Config::new();
        config
            .ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .channel_binding(all.get_channel_binding())
            .target_session_attrs(all.get_target_session_attrs())
            .keepalives(all.get_keepalives())
            .keepalives_idle(all.get_keepalives_idle());
        if let Some(user) = all.get_user() {
            config.user(user);
        }
        if let Some(database) = all.get_dbname() {
            config.dbname(database);
        }
        if let Some(options) = all.get_options() {
            config.options(options);
        }
        if let Some(name) = all.get_application_name() {
            config.application_name(name);
        }
        if let Some(timeout) = all.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        if let Some(timeout) = all.get_tcp_user_timeout() {
            config.tcp_user_timeout(*timeout);
        }
        if let Some(interval) = all.get_keepalives_interval() {
            config.keepalives_interval(interval);
        }
        if let Some(retries) = all.get_keepalives_retries() {
            config.keepalives_retries(retries);
        }
        config
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Disable
    }

    /// Whether a password is sent unencrypted to a host that is not this one: to be allowed by
    /// whoever writes the configuration only.
    pub fn sends_password_in_plain(&self) -> bool {
        !self.is_encrypted()
            && self.password != DatabasePassword::None
            && !self.config.get_hosts().iter().all(is_near)
    }
}

impl fmt::Display for PostgresSettings {
    /// Host, port and database; nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL at ")?;
        let ports = self.config.get_ports();
        for (at, host) in self.config.get_hosts().iter().enumerate() {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5_432);
            if at > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(host) => write!(f, "{host}:{port}")?,
                Host::Unix(path) => write!(f, "{}/.s.PGSQL.{port}", path.display())?,
            }
        }
        let user = self.config.get_user().unwrap_or_default();
        write!(f, "/{}", self.config.get_dbname().unwrap_or(user))
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("at", &self.to_string())
            .field("user", &self.config.get_user())
            .field("encrypted", &self.is_encrypted())
            .field("password", &self.password)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

/// What a query says of encryption, and the rest of it, as the library does not know every mode.
fn ssl_mode(query: &str) -> Result<(Option<SslMode>, Vec<&str>), InvalidPostgresUrl> {
    let mut mode = None;
    let mut others = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (key, value) {
            ("sslmode", "disable") => mode = Some(SslMode::Disable),
            ("sslmode", "require" | "verify-full") => mode = Some(SslMode::Require),
            ("sslmode", "allow" | "prefer" | "verify-ca") => {
                return Err(InvalidPostgresUrl::Unverified(value.to_owned()));
            }
            ("sslmode", _) => {
                let why = "sslmode is one of disable, require and verify-full";
                return Err(InvalidPostgresUrl::Part(why.to_owned()));
            }
            ("sslrootcert", _) => {
                let remedy = "set ca_file";
                return Err(InvalidPostgresUrl::Elsewhere("sslrootcert", remedy));
            }
            ("password", _) => return Err(InvalidPostgresUrl::Password),
            ("sslcert" | "sslkey", _) => {
                let remedy = "the database's user is known by its password";
                return Err(InvalidPostgresUrl::Elsewhere("sslcert", remedy));
            }
            _ => others.push(parameter),
        }
    }
    Ok((mode, others))
}

fn is_near(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(host) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost"
                || bare
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
    }
}

/// The innermost cause of an error: the outer ones of this library say only of what kind it is.
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        PostgresSettings::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn case_33_a_password_in_the_url_is_refused_with_the_remedy_and_never_repeated() {
        for url in [
            "postgres://bridge:s3cr3t@db/leases",
            "postgres://bridge@db/leases?password=s3cr3t",
        ] {
            let error = refused(url);
            assert!(error.contains("password_file"), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted_unless_it_is_said_otherwise() {
        for (url, encrypted) in [
            ("postgres://bridge@db.example.com/leases", true),
            (
                "postgres://bridge@db.example.com/leases?sslmode=verify-full",
                true,
            ),
            (
                "postgresql://bridge@db.example.com/leases?sslmode=disable",
                false,
            ),
            ("postgres://bridge@127.0.0.1:5433/leases", false),
            ("postgres://bridge@localhost/leases?sslmode=require", true),
            ("postgres://bridge@%2Frun%2Fpostgresql/leases", false),
            ("postgres://bridge@localhost,db.example.com/leases", true),
        ] {
            let settings = PostgresSettings::parse(url).unwrap();
            assert_eq!(settings.is_encrypted(), encrypted, "{url}");
        }
    }

    #[test]
    fn what_would_be_encrypted_for_anybody_is_refused() {
        for mode in ["allow", "prefer", "verify-ca"] {
            let error = refused(&format!("postgres://u@db/x?sslmode={mode}"));
            assert!(error.contains("write sslmode=require"), "{error}");
        }
    }

    #[test]
    fn i25_what_is_wrong_with_a_url_is_said() {
        for (url, said) in [
            ("mysql://db/x", "is of the form postgres://"),
            ("postgres://db/x", "names no user"),
            ("postgres://u@/x", "names no host"),
            ("postgres://u@db/x?sslmode=on", "sslmode is one of"),
            ("postgres://u@db/x?sslrootcert=/ca.pem", "set ca_file"),
            ("postgres://u@db/x?nonsense=1", "nonsense"),
            ("postgres://u@db:port/x", "the URL of the database is wrong"),
            ("postgres://u@db/x?channel_binding=require", "not supported"),
        ] {
            let error = refused(url);
            assert!(error.contains(said), "{url}: {error}");
        }
    }

    #[test]
    fn neither_display_nor_debug_shows_a_password() {
        let settings = PostgresSettings::parse("postgres://bridge@a:1,b:2/leases").unwrap();
        let settings = settings.with_password(DatabasePassword::Text("s3cr3t".to_owned()));
        assert_eq!(settings.to_string(), "PostgreSQL at a:1,b:2/leases");
        assert!(!format!("{settings:?}").contains("s3cr3t"));
    }

    #[test]
    fn a_password_in_plain_to_another_host_is_known() {
        let settings = |url| {
            let settings = PostgresSettings::parse(url).unwrap();
            settings.with_password(DatabasePassword::File("/run/secrets/db".into()))
        };
        assert!(settings("postgres://u@db/x?sslmode=disable").sends_password_in_plain());
        assert!(!settings("postgres://u@db/x").sends_password_in_plain());
        assert!(!settings("postgres://u@localhost/x").sends_password_in_plain());
    }
}
