use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::endpoint::{Address, Endpoint};

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
    /// The certificate is unusable for another reason.
    #[error("the server's certificate is not accepted: {0}")]
    Certificate(String),
    /// The server wants a certificate and got none.
    #[error("the server requires a client certificate")]
    ClientCertificateRequired,
    /// The server does not accept the certificate.
    #[error("the server does not accept the client certificate")]
    ClientCertificateRejected,
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
}

fn names_of(names: &[String]) -> String {
    if names.is_empty() { ": it has no names".to_owned() } else { format!(", but for {}", names.join(", ")) }
}

impl ConnectFailure {
    fn from_io(error: &io::Error, timeout: Duration) -> Self {
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
            rustls::Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotValidYet,
                CertificateError::NotValidForName => {
                    Self::NameMismatch { wanted: "the host".to_owned(), presented: Vec::new(), is_ip: false }
                }
                CertificateError::NotValidForNameContext { expected, presented } => Self::NameMismatch {
                    wanted: expected.to_str().into_owned(),
                    presented: presented.clone(),
                    is_ip: matches!(expected, ServerName::IpAddress(_)),
                },
                other => Self::Certificate(other.to_string()),
            },
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
                other => Self::Tls(format!("the server answered {other:?}")),
            },
            other => Self::Tls(other.to_string()),
        }
    }
}

/// Opens connections: to whichever endpoint answers, beginning with the one that answered last.
///
/// One gRPC channel stands on it. When the connection breaks the channel asks for another, and so moves to the next endpoint.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    server_name: Option<ServerName<'static>>,
    has_client_certificate: bool,
    timeout: Duration,
    next: AtomicUsize,
    /// What the last attempts failed with, for the message: gRPC says `transport error` only.
    failures: Mutex<Vec<ConnectError>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("endpoints", &self.0.endpoints).finish_non_exhaustive()
    }
}

/// How long one endpoint has before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(300);

impl Connector {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        tls: Option<Arc<ClientConfig>>,
        server_name: Option<ServerName<'static>>,
        has_client_certificate: bool,
        timeout: Duration,
    ) -> Self {
        let (next, failures) = (AtomicUsize::new(0), Mutex::default());
        Self(Arc::new(Inner { endpoints, tls, server_name, has_client_certificate, timeout, next, failures }))
    }

    /// What went wrong with the connections so far, and forgets it.
    pub(super) fn take_failures(&self) -> Vec<ConnectError> {
        std::mem::take(&mut *self.0.failures.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The endpoint that is connected to.
    pub(super) fn current(&self) -> Option<&Endpoint> {
        self.0.endpoints.get(self.0.next.load(Ordering::Relaxed))
    }

    /// Begins with the next endpoint when the next connection is made.
    pub(super) fn move_on(&self) {
        let next = (self.0.next.load(Ordering::Relaxed) + 1) % self.0.endpoints.len().max(1);
        self.0.next.store(next, Ordering::Relaxed);
    }

    fn record(&self, endpoint: &Endpoint, failure: ConnectFailure) {
        let failure = match failure {
            ConnectFailure::ClientCertificateRejected if !self.0.has_client_certificate => {
                ConnectFailure::ClientCertificateRequired
            }
            failure => failure,
        };
        let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|known| known.endpoint != endpoint.to_string());
        failures.push(ConnectError { endpoint: endpoint.to_string(), failure });
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        let count = self.0.endpoints.len();
        let first = self.0.next.load(Ordering::Relaxed);
        let mut attempts = FuturesUnordered::new();
        // Whoever waits for the connection has the same patience, and should hear which endpoint it was.
        let patience = self.0.timeout.mul_f32(0.9);
        for turn in 0..count {
            let at = (first + turn) % count;
            let Some(endpoint) = self.0.endpoints.get(at) else { continue };
            attempts.push(async move {
                let wait = STAGGER * u32::try_from(turn).unwrap_or(u32::MAX);
                tokio::time::sleep(wait.min(patience / 2)).await;
                let dialed = tokio::time::timeout(patience.saturating_sub(wait), self.dial(endpoint)).await;
                let failed = match dialed {
                    Ok(Ok(connection)) => return Ok((at, connection)),
                    Ok(Err(failure)) => failure,
                    Err(_) => ConnectFailure::Timeout(self.0.timeout),
                };
                self.record(endpoint, failed.clone());
                Err(ConnectError { endpoint: endpoint.to_string(), failure: failed })
            });
        }
        let mut last = ConnectError { endpoint: String::new(), failure: ConnectFailure::Refused };
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok((at, connection)) => {
                    self.0.next.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<Connection, ConnectFailure> {
        let failed = |error: io::Error| ConnectFailure::from_io(&error, self.0.timeout);
        let (stream, host): (Box<dyn Stream>, _) = match &endpoint.address {
            Address::Tcp { host, port } => {
                let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), *port))
                    .await
                    .map_err(|_| ConnectFailure::Resolve)?
                    .collect();
                let stream = TcpStream::connect(addresses.as_slice()).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                (Box::new(stream), host.as_str())
            }
            Address::Unix(path) => (Box::new(UnixStream::connect(path).await.map_err(failed)?), "localhost"),
        };
        let stream: Box<dyn Stream> = match &self.0.tls {
            Some(config) if endpoint.tls != Some(false) => {
                let name = match &self.0.server_name {
                    Some(name) => name.clone(),
                    None => ServerName::try_from(host.to_owned()).map_err(|_| ConnectFailure::Resolve)?,
                };
                let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
                Box::new(stream.map_err(|error| ConnectFailure::from_io(&error, self.0.timeout))?)
            }
            _ => stream,
        };
        Ok(Connection { stream, connector: self.clone(), endpoint: endpoint.clone(), last_read: LastRead::Nothing })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that remembers why it broke.
///
/// A server's refusal of the client certificate arrives after the handshake, as an alert in place of the first answer, and an
/// answer in TLS to a request without arrives as a record.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    connector: Connector,
    endpoint: Endpoint,
    last_read: LastRead,
}

#[derive(PartialEq, Eq)]
enum LastRead {
    Nothing,
    Something,
}

/// The type of a TLS record that carries an alert (RFC 8446, section 5.1), and the major version behind it.
const TLS_ALERT: [u8; 2] = [21, 3];

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut *this.stream).poll_read(cx, buf);
        match &polled {
            Poll::Ready(Ok(())) if this.last_read == LastRead::Nothing => {
                let read = buf.filled().get(before..).unwrap_or_default();
                let plain = this.connector.0.tls.is_none() || this.endpoint.tls == Some(false);
                if read.is_empty() {
                    this.connector.record(&this.endpoint, ConnectFailure::Closed);
                } else if plain && read.starts_with(&TLS_ALERT) {
                    this.connector.record(&this.endpoint, ConnectFailure::SpeaksTls);
                } else if read.starts_with(b"HTTP/1") {
                    let line = read.split(|byte| *byte == b'\r').next().unwrap_or_default();
                    let line = String::from_utf8_lossy(line).chars().take(60).collect();
                    this.connector.record(&this.endpoint, ConnectFailure::NotEtcd(line));
                }
                this.last_read = LastRead::Something;
            }
            Poll::Ready(Err(error)) => {
                this.connector.record(&this.endpoint, ConnectFailure::from_io(error, this.connector.0.timeout));
            }
            _ => {}
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await.map(TokioIo::new) })
    }
}
