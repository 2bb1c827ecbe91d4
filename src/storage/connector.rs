use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::endpoint::{Address, Endpoint};
use super::failure::{ConnectError, ConnectFailure};

/// How TLS is spoken.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// In place of the host of the endpoint.
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) has_client_certificate: bool,
}

/// Opens connections to one endpoint, and remembers why they failed: gRPC knows of a `transport error` only.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    tls: Option<Tls>,
    timeout: Duration,
    failure: Mutex<Option<ConnectFailure>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl Connector {
    pub(super) fn new(endpoint: Endpoint, tls: Option<Tls>, timeout: Duration) -> Self {
        Self(Arc::new(Inner { endpoint, tls, timeout, failure: Mutex::default() }))
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Whether something went wrong.
    pub(super) fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    /// What went wrong, and forgets it.
    pub(super) fn take_failure(&self) -> Option<ConnectFailure> {
        self.failure().take()
    }

    fn failure(&self) -> MutexGuard<'_, Option<ConnectFailure>> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, failure: ConnectFailure) {
        let has_client_certificate = self.0.tls.as_ref().is_some_and(|tls| tls.has_client_certificate);
        let failure = match failure {
            ConnectFailure::ClientCertificateRejected if !has_client_certificate => {
                ConnectFailure::ClientCertificateRequired
            }
            failure => failure,
        };
        let mut known = self.failure();
        if known.is_none() || !failure.is_vague() {
            *known = Some(failure);
        }
    }

    /// A connection, after the handshake of TLS.
    pub(super) async fn connect(&self) -> Result<Connection, ConnectFailure> {
        let failed = |error: io::Error| ConnectFailure::from_io(&error, self.0.timeout);
        let (stream, host): (Box<dyn Stream>, _) = match &self.0.endpoint.address {
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
            Some(tls) => {
                let name = match &tls.server_name {
                    Some(name) => name.clone(),
                    None => ServerName::try_from(host.to_owned()).map_err(|_| ConnectFailure::Resolve)?,
                };
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                Box::new(connector.connect(name, stream).await.map_err(failed)?)
            }
            None => stream,
        };
        Ok(Connection { stream, connector: self.clone(), was_read: false, broken: None })
    }

    /// Whether a server that ended the handshake of TLS takes HTTP/2 without it.
    pub(super) async fn answers_http2(&self) -> bool {
        // RFC 9113, section 3.4: the preface of a client, and settings.
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let Ok(mut connection) = self.connect().await else { return false };
        if connection.write_all(PREFACE).await.is_err() {
            return false;
        }
        let mut frame = [0; 9];
        connection.read_exact(&mut frame).await.is_ok() && frame.get(3) == Some(&SETTINGS)
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that remembers why it broke.
///
/// A server's refusal of the client certificate arrives after the handshake, as an alert in place of the first answer, and
/// what answers without TLS, or is not etcd, shows by the first bytes.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    connector: Connector,
    was_read: bool,
    /// What ended writing, while the rest is read.
    broken: Option<io::Error>,
}

/// The type of a TLS record that carries an alert (RFC 8446, section 5.1), and the major version behind it.
const TLS_ALERT: [u8; 2] = [21, 3];
/// The type of the frame that a server begins with (RFC 9113, section 3.4); three bytes of length stand before it.
const SETTINGS: u8 = 4;

impl Connection {
    /// What the first bytes of a server tell of it.
    fn judge(&self, read: &[u8]) -> Option<ConnectFailure> {
        if read.is_empty() {
            return Some(ConnectFailure::Closed);
        }
        if !self.connector.speaks_tls() && read.starts_with(&TLS_ALERT) {
            return Some(ConnectFailure::SpeaksTls);
        }
        if read.get(3).is_none_or(|kind| *kind == SETTINGS) {
            return None;
        }
        let line = read.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).chars().take(60).collect::<String>();
        Some(ConnectFailure::NotEtcd(line.escape_default().to_string()))
    }

    /// Reads what a server said before it hung up: who finds that he cannot write does not read any more.
    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut dyn Stream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.broken.is_none() {
            match write(Pin::new(&mut *self.stream), cx) {
                Poll::Ready(Err(error)) => self.broken = Some(error),
                written => return written,
            }
        }
        let mut rest = [0; 512];
        loop {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut *self).poll_read(cx, &mut rest) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {}
                Poll::Ready(_) => break,
            }
        }
        let error = self.broken.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        self.connector.record(ConnectFailure::from_io(&error, self.connector.0.timeout));
        Poll::Ready(Err(error))
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut *this.stream).poll_read(cx, buf);
        match &polled {
            Poll::Ready(Ok(())) if !this.was_read => {
                this.was_read = true;
                if let Some(failure) = this.judge(buf.filled().get(before..).unwrap_or_default()) {
                    this.connector.record(failure);
                }
            }
            Poll::Ready(Err(error)) => {
                this.connector.record(ConnectFailure::from_io(error, this.connector.0.timeout));
            }
            _ => {}
        }
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().write(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
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
        Box::pin(async move {
            let timeout = connector.0.timeout;
            let connected = tokio::time::timeout(timeout, connector.connect()).await;
            connected.unwrap_or(Err(ConnectFailure::Timeout(timeout))).map(TokioIo::new).map_err(|failure| {
                connector.record(failure.clone());
                ConnectError { endpoint: connector.0.endpoint.to_string(), failure }
            })
        })
    }
}
