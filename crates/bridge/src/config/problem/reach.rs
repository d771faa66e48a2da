//! What can be wrong with the way to a broker: its URL, and the headers of a WebSocket.

/// What is wrong with a broker's URL. Nothing of a user info is ever in here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlProblem {
    #[error("a broker's URL begins with its scheme")]
    NoScheme,
    #[error("unknown scheme `{0}`")]
    Scheme(String),
    #[error("a URL must not hold a user name or a password")]
    UserInfo,
    #[error("the URL has no host")]
    NoHost,
    #[error("`{0}` is not a host name or an IP address")]
    Host(String),
    #[error("an IPv6 address stands in brackets")]
    Brackets,
    #[error("`{0}` is not a port")]
    Port(String),
    #[error("only the URL of a WebSocket has something behind the port")]
    Path,
    #[error("what stands behind the port is not the path of a request")]
    RequestPath,
    #[error("a Unix socket has an absolute path, and no host")]
    UnixPath,
    #[error("the path of a Unix socket has at most 107 bytes")]
    UnixPathTooLong,
    #[error("a proxy is reached by HTTP")]
    ProxyScheme,
    #[error("the URL of a proxy needs a port")]
    ProxyPort,
    #[error("the URL of a proxy has nothing behind the port")]
    ProxyPath,
}

impl UrlProblem {
    /// The same, quoting `shown` alone: what a variable holds is not shown.
    pub(crate) fn quoting(self, shown: &str) -> Self {
        match self {
            Self::Scheme(_) => Self::Scheme(shown.to_owned()),
            Self::Host(_) => Self::Host(shown.to_owned()),
            Self::Port(_) => Self::Port(shown.to_owned()),
            other => other,
        }
    }

    pub(super) fn remedy(&self) -> String {
        match self {
            Self::NoScheme => "write it like mqtt://localhost:1883",
            Self::Scheme(scheme) => match scheme.as_str() {
                "tcp" | "mqtt+tcp" => "write mqtt://",
                "ssl" | "tls" | "mqtt+ssl" | "mqtt+tls" => "write mqtts://",
                "http" | "mqtt+ws" => "write ws://",
                "https" | "mqtt+wss" => "write wss://",
                "unix" => "write mqtt+unix:///path/of/the/socket",
                _ => "use mqtt://, mqtts://, ws://, wss:// or mqtt+unix://",
            },
            Self::UserInfo => {
                "put them into `username` and `password_file` (or `password: ${NAME}`); an @ in a \
                 path is written %40"
            }
            Self::NoHost | Self::Host(_) => "write it like mqtt://broker.example.com:1883",
            Self::Brackets => "write it like mqtt://[::1]:1883",
            Self::Port(_) => "a port is a number from 1 to 65535",
            Self::Path => "write it like mqtt://broker.example.com:1883, without path or query",
            Self::RequestPath => {
                "write it like wss://broker.example.com/mqtt; other signs than those of ASCII are written %C3%A4"
            }
            Self::UnixPath => "write it like mqtt+unix:///run/mosquitto/mosquitto.sock",
            Self::UnixPathTooLong => "the operating system takes no more: use a shorter one",
            Self::ProxyScheme | Self::ProxyPort | Self::ProxyPath => {
                "write it like http://proxy.example.com:3128"
            }
        }
        .to_owned()
    }
}

/// Who is told in the clear who we are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exposed {
    #[error("`{0}`")]
    Broker(String),
    #[error("the proxy `{0}`")]
    Proxy(String),
    #[error("{0}")]
    Database(String),
}

/// What is wrong with a header. Its value is never in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderProblem {
    #[error("this is not the name of a header")]
    Name,
    #[error("the request makes this header itself")]
    Own,
    #[error("this header is here twice")]
    Twice,
    #[error("the value of this header holds what none can hold")]
    Value,
}

impl HeaderProblem {
    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::Name => "a name has letters, digits and dashes, as in X-Tenant",
            Self::Own => "remove it",
            Self::Twice => "keep one of the two: upper and lower case are the same",
            Self::Value => "use visible signs of ASCII, without spaces or a newline at either end",
        }
    }
}
