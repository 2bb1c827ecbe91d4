use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An endpoint of etcd, as etcdctl's `--endpoints` spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to connect to.
    pub address: Address,
    /// TLS by the scheme; without a scheme it depends on whether TLS files are given.
    pub tls: Option<bool>,
}

/// Where an endpoint listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or an IP address, and a port.
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        /// The port; 2379 when none is given.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// Text that is no endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not an endpoint: {reason}")]
pub struct InvalidEndpoint {
    text: String,
    reason: &'static str,
}

const DEFAULT_PORT: u16 = 2379;

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What stands in front of an @ may be a password.
        let shown = text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, host)| format!("…@{host}"));
        let invalid = |reason| InvalidEndpoint { text: shown.clone(), reason };
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        let tls = match scheme {
            None => None,
            Some("http" | "unix") => Some(false),
            Some("https" | "unixs") => Some(true),
            Some(_) => return Err(invalid("the scheme must be http, https, unix or unixs")),
        };
        if matches!(scheme, Some("unix" | "unixs")) {
            if rest.is_empty() {
                return Err(invalid("the path of the socket is missing"));
            }
            return Ok(Self { address: Address::Unix(rest.into()), tls });
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(invalid("only a host and a port can be given"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']').ok_or_else(|| invalid("the bracket is not closed"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| invalid("in brackets must be an IPv6 address"))?;
                let port = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':').ok_or_else(|| invalid("a colon must follow the bracket"))?),
                };
                (host, port)
            }
            None if authority.matches(':').count() > 1 => {
                return Err(invalid("an IPv6 address must stand in brackets"));
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(invalid("the host is missing"));
        }
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| invalid("the port must be a number"))?;
        Ok(Self { address: Address::Tcp { host: host.to_owned(), port }, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, self.tls) {
            (Address::Tcp { .. }, Some(true)) => f.write_str("https://")?,
            (Address::Tcp { .. }, Some(false)) => f.write_str("http://")?,
            (Address::Unix(_), Some(true)) => f.write_str("unixs://")?,
            (Address::Unix(_), _) => f.write_str("unix://")?,
            (Address::Tcp { .. }, None) => {}
        }
        match &self.address {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: Option<bool>) -> Endpoint {
        Endpoint { address: Address::Tcp { host: host.into(), port }, tls }
    }

    #[test]
    fn endpoints_are_read_as_etcdctl_reads_them() {
        for (text, endpoint, shown) in [
            ("127.0.0.1:2379", tcp("127.0.0.1", 2379, None), "127.0.0.1:2379"),
            ("etcd-0", tcp("etcd-0", 2379, None), "etcd-0:2379"),
            ("http://localhost:1", tcp("localhost", 1, Some(false)), "http://localhost:1"),
            ("https://etcd.example.com/", tcp("etcd.example.com", 2379, Some(true)), "https://etcd.example.com:2379"),
            ("https://[::1]:4001", tcp("::1", 4001, Some(true)), "https://[::1]:4001"),
            ("[fe80::1]", tcp("fe80::1", 2379, None), "[fe80::1]:2379"),
            (
                "unix:///run/etcd.sock",
                Endpoint { address: Address::Unix("/run/etcd.sock".into()), tls: Some(false) },
                "unix:///run/etcd.sock",
            ),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Ok(endpoint.clone()), "{text}");
            assert_eq!(endpoint.to_string(), shown);
        }
    }

    #[test]
    fn other_text_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "the host is missing"),
            ("https://", "the host is missing"),
            ("ftp://a:1", "the scheme must be http, https, unix or unixs"),
            ("unix://", "the path of the socket is missing"),
            ("::1:2379", "an IPv6 address must stand in brackets"),
            ("[::1", "the bracket is not closed"),
            ("[a]:1", "in brackets must be an IPv6 address"),
            ("[::1]2379", "a colon must follow the bracket"),
            ("host:port", "the port must be a number"),
            ("host:70000", "the port must be a number"),
            ("http://host:1/v3", "only a host and a port can be given"),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(InvalidEndpoint { text: text.into(), reason }), "{text}");
        }
    }
}
