use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint as Target};

use super::Error;
use crate::causes::innermost;
use crate::config::{DialAddress, Endpoint};

/// One connection to the socket of a plugin, made when it is first needed and again whenever it is lost.
///
/// A call waits for a plugin that is not there yet, up to its timeout, as kube-apiserver's do (`grpc.WaitForReady`).
#[derive(Debug)]
pub struct Connection {
    endpoint: Endpoint,
    timeout: Duration,
    /// Whose the timeout is, in words.
    limit: &'static str,
    channel: OnceLock<Channel>,
    /// Why the last attempt to connect has failed.
    failure: Arc<Mutex<Option<String>>>,
}

/// How long a message may be: encrypted data keys have 1 KiB, annotations 32 KiB, and v1 has 64 KiB.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// What a plugin says is repeated up to here.
const MAX_SAID: usize = 300;
/// A key ID of fewer bytes is not looked for.
const MIN_SECRET: usize = 4;
/// How soon a socket is tried again that nobody listens on.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

impl Connection {
    /// A connection to be made. Every call ends after `timeout`.
    #[must_use]
    pub fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self { endpoint, timeout, limit: "the provider's timeout", channel: OnceLock::new(), failure: Arc::default() }
    }

    /// A connection whose timeout is not one of a configuration.
    pub(super) fn of_check(endpoint: Endpoint, timeout: Duration) -> Self {
        Self { limit: "the longest that this check waits", ..Self::new(endpoint, timeout) }
    }

    /// The socket.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The longest that a call takes.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn channel(&self) -> Result<&Channel, Error> {
        let path = socket_path(self.endpoint.dial_address())
            .ok_or_else(|| Error::NoSocket { endpoint: self.endpoint.to_string() })?;
        Ok(self.channel.get_or_init(|| {
            // As the authority of kube-apiserver's requests since 1.32, and the one that every server takes.
            let target = Target::from_static("http://localhost");
            target.connect_with_connector_lazy(Connector { path, failure: Arc::clone(&self.failure) })
        }))
    }

    /// Waits for somebody who listens on the socket.
    ///
    /// # Errors
    ///
    /// When nobody does for the time of a call.
    pub async fn probe(&self) -> Result<(), Error> {
        let path = socket_path(self.endpoint.dial_address())
            .ok_or_else(|| Error::NoSocket { endpoint: self.endpoint.to_string() })?;
        let connect = Connector { path, failure: Arc::clone(&self.failure) }.connect();
        match tokio::time::timeout(self.timeout, connect).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.timed_out("connect")),
        }
    }

    /// Makes a call, again when the connection breaks under it and there is time left.
    ///
    /// `secret` is a text that no error may repeat: a key ID.
    pub(super) async fn call<T, F>(
        &self,
        method: &'static str,
        secret: Option<&str>,
        mut call: impl FnMut(Channel, Duration) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let channel = self.channel()?;
        let deadline = Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // tonic panics at a `grpc-status-details-bin` that is not base64: a plugin may not end us.
            let answer = AssertUnwindSafe(call(channel.clone(), left)).catch_unwind();
            let status = match tokio::time::timeout(left, answer).await {
                Ok(Ok(Ok(response))) => return Ok(response.into_inner()),
                Ok(Ok(Err(status))) => status,
                Ok(Err(_)) => {
                    let message = "the plugin's answer cannot be understood".to_owned();
                    return Err(Error::Rpc { method, code: tonic::Code::Internal, message });
                }
                Err(_) => return Err(self.timed_out(method)),
            };
            // What has a source comes from the transport, and not from the plugin.
            let broke = std::error::Error::source(&status).is_some();
            if broke && deadline > Instant::now() + CONNECT_INTERVAL {
                tracing::debug!(endpoint = %self.endpoint, method, error = %status, "the connection broke; once more");
                tokio::time::sleep(CONNECT_INTERVAL).await;
                continue;
            }
            if broke && status.code() == tonic::Code::Cancelled {
                return Err(self.timed_out(method));
            }
            if broke {
                let message = format!("{}: is it a plugin, which speaks gRPC, that listens there?", innermost(&status));
                return Err(Error::Rpc { method, code: tonic::Code::Unavailable, message });
            }
            return Err(Error::Rpc { method, code: status.code(), message: said(status.message(), secret) });
        }
    }

    pub(super) fn timed_out(&self, method: &'static str) -> Error {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(cause) => {
                let endpoint = self.endpoint.to_string();
                Error::Unreachable { endpoint, timeout: self.timeout, limit: self.limit, cause }
            }
            None => Error::Timeout { method, timeout: self.timeout, limit: self.limit },
        }
    }

    /// The request with the time that it may take, which the plugin is told too.
    pub(super) fn request<T>(message: T, timeout: Duration) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(timeout);
        request
    }

    pub(super) const fn max_message_bytes() -> usize {
        MAX_MESSAGE_BYTES
    }
}

/// What a plugin says, in one line, cut, and without the key ID.
pub(super) fn said(message: &str, secret: Option<&str>) -> String {
    let message = match secret {
        // A shorter one tells nothing, and would be found everywhere.
        Some(secret) if secret.len() >= MIN_SECRET => message.replace(secret, "(key ID)"),
        _ => message.to_owned(),
    };
    let mut shown: String = message
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .take(MAX_SAID)
        .collect();
    if message.chars().count() > MAX_SAID {
        shown.push('…');
    }
    shown
}

/// The socket as a path. What begins with a NUL is a name of Linux' abstract namespace.
pub(super) fn socket_path(address: DialAddress<'_>) -> Option<PathBuf> {
    match address {
        DialAddress::None => None,
        DialAddress::Path(path) => Some(path.to_owned()),
        DialAddress::Abstract(name) => Some(PathBuf::from(OsString::from_vec([b"\0", name].concat()))),
    }
}

/// Connects to the socket, and goes on trying as long as somebody waits.
#[derive(Clone)]
struct Connector {
    path: PathBuf,
    failure: Arc<Mutex<Option<String>>>,
}

impl Connector {
    async fn connect(self) -> UnixStream {
        loop {
            let connected = UnixStream::connect(&self.path).await;
            let cause = connected.as_ref().err().map(ToString::to_string);
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = cause;
            match connected {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(CONNECT_INTERVAL).await,
            }
        }
    }
}

impl tower_service::Service<http::Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let connect = self.clone().connect();
        Box::pin(async { Ok(TokioIo::new(connect.await)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plugin_says_is_cut_and_has_no_key_id() {
        assert_eq!(said("unknown key id \"kek-9\"\n", Some("kek-9")), "unknown key id \"(key ID)\"\\n");
        let long = said(&"x".repeat(1000), None);
        assert_eq!((long.chars().count(), long.ends_with("x…")), (301, true));
    }
}
