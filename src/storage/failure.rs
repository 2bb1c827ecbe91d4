use std::io;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};

/// An endpoint that cannot be used, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{endpoint}: {failure}")]
pub struct ConnectError {
    /// The endpoint, as it was given.
    pub endpoint: String,
    /// What happened.
    pub failure: ConnectFailure,
}

/// What can go wrong between a client and etcd, each with its own way out.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The host name is not known.
    #[error("the host name cannot be resolved")]
    Resolve,
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// There is no such socket.
    #[error("no such socket")]
    NoSocket,
    /// The socket may not be opened.
    #[error("permission denied")]
    PermissionDenied,
    /// The connection was closed in the middle.
    #[error("the connection was closed while it was set up")]
    Closed,
    /// Another failure of the network.
    #[error("{0}")]
    Io(String),
    /// The certificate is signed by nobody who is trusted.
    #[error("the server's certificate is signed by an authority that is not trusted")]
    UnknownAuthority,
    /// The certificate is for another name.
    #[error("the server's certificate is not valid for {wanted}{}", names_of(.presented))]
    NameMismatch {
        /// The name that was looked for.
        wanted: String,
        /// The names in the certificate.
        presented: Vec<String>,
        /// Whether an IP address was looked for.
        is_ip: bool,
    },
    /// The certificate is no longer valid, or the clock is wrong.
    #[error("the server's certificate has expired")]
    Expired,
    /// The certificate is not valid yet, or the clock is wrong.
    #[error("the server's certificate is not valid yet")]
    NotValidYet,
    /// The server shows a certificate that is made to sign others.
    #[error("the server's certificate is that of an authority, and not one of a server")]
    AuthorityAsServer,
    /// The certificate is unusable for another reason.
    #[error("the server's certificate is not accepted: {0}")]
    Certificate(String),
    /// The server wants a certificate and got none.
    #[error("the server requires a client certificate")]
    ClientCertificateRequired,
    /// The server does not accept the certificate.
    #[error("the server does not accept the client certificate")]
    ClientCertificateRejected,
    /// The server ends the handshake without a reason; before TLS 1.3 some do so for want of a certificate.
    #[error("the server refuses the TLS handshake")]
    HandshakeRefused,
    /// TLS was spoken to a server without TLS.
    #[error("the server does not speak TLS")]
    NotTls,
    /// A server with TLS was spoken to without.
    #[error("the server speaks TLS")]
    SpeaksTls,
    /// Another failure of TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// Something answers that is not etcd.
    #[error("what answers is not etcd: {0}")]
    NotEtcd(String),
    /// etcd answers, and cannot serve.
    #[error("etcd is not available: {0}")]
    NotReady(String),
}

fn names_of(names: &[String]) -> String {
    if names.is_empty() { ": it has no names".to_owned() } else { format!(", but for {}", names.join(", ")) }
}

/// rustls has `DnsName("etcd.example")` and `IpAddress(192.0.2.1)`.
fn bare_name(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

impl ConnectFailure {
    pub(super) fn from_io(error: &io::Error, timeout: Duration) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::from_tls(tls);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout(timeout),
            io::ErrorKind::NotFound => Self::NoSocket,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error.to_string()),
        }
    }

    fn from_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::from_certificate(error),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired => Self::ClientCertificateRequired,
                // Before TLS 1.3 a missing certificate is a bad one.
                AlertDescription::BadCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied => Self::ClientCertificateRejected,
                AlertDescription::HandshakeFailure => Self::HandshakeRefused,
                AlertDescription::NoApplicationProtocol => Self::NotEtcd("it does not offer HTTP/2".to_owned()),
                other => Self::Tls(format!("the server answered {other:?}")),
            },
            other => Self::Tls(other.to_string()),
        }
    }

    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            // An authority of the same name, as those of two clusters by kubeadm have, is found by its name first.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotValidYet,
            CertificateError::NotValidForName => {
                Self::NameMismatch { wanted: "the host".to_owned(), presented: Vec::new(), is_ip: false }
            }
            CertificateError::NotValidForNameContext { expected, presented } => Self::NameMismatch {
                wanted: expected.to_str().into_owned(),
                presented: presented.iter().map(|name| bare_name(name).to_owned()).collect(),
                is_ip: matches!(expected, ServerName::IpAddress(_)),
            },
            CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => Self::AuthorityAsServer,
            other => Self::Certificate(other.to_string()),
        }
    }

    /// Whether it says no more than that the connection is gone, so that whatever else is known says more.
    pub(super) fn is_vague(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_))
    }
}
