//! The server, from its options to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atrest::config::Endpoint;
use atrest::kms::api::v1beta1::key_management_service_server::KeyManagementServiceServer as V1Beta1Server;
use atrest::kms::api::v2::key_management_service_server::KeyManagementServiceServer as V2Server;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tower_layer::{Identity, Stack};

use super::health::{Condition, Health, Timing, http, probe_for_ever};
use super::intake::Intake;
use super::journal::Journal;
use super::kept_socket::KeptSocket;
use super::limits::MAX_MESSAGE_BYTES;
use super::listener::{Admission, Listener, stopped};
use super::metrics::Metrics;
use super::service::Service;
use super::socket::{self, Access};
use super::v1beta1::V1Beta1;
use super::v2::V2;
use crate::backend::{self, Backend};

/// So many calls may be open on one connection.
const MAX_STREAMS: u32 = 64;
/// So much a client may send on one call before it is read: a message.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// So much a client may send on all calls of a connection before it is read.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Connections that the listener has accepted, and whose HTTP/2 has not begun.
const CONNECTIONS_BETWEEN: usize = 16;
/// So long clients have to close their connections when the server stops. Those that stay without a call are not waited for.
const IDLE_TIME: Duration = Duration::from_millis(500);

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where kube-apiserver connects.
    pub listen: Endpoint,
    /// The mode and the group of the socket's file.
    pub access: Access,
    /// The users who may connect; empty for all whom the mode lets.
    pub allowed_uids: Vec<u32>,
    /// So many connections may be open; more are refused.
    pub max_connections: usize,
    /// The version in the answer to Status.
    pub status_version: StatusVersion,
    /// Where the health endpoints are.
    pub health: Option<HealthAddress>,
    /// When the backend is probed.
    pub timing: Timing,
    /// How long clients are waited for.
    pub patience: Patience,
    /// So long calls that are open may take when the server stops.
    pub drain_timeout: Duration,
}

impl Options {
    /// The defaults: only this process's user may connect, and there are no health endpoints.
    #[must_use]
    pub fn new(listen: Endpoint) -> Self {
        Self {
            listen,
            access: Access::default(),
            allowed_uids: Vec::new(),
            max_connections: 128,
            status_version: StatusVersion::default(),
            health: None,
            timing: Timing::default(),
            patience: Patience::default(),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the beginning of a connection to its first HTTP/2 frame.
    pub greeting: Duration,
    /// After so long without a frame a client is asked by a PING whether it is still there.
    pub ping_interval: Duration,
    /// So long it has for the answer.
    pub ping_timeout: Duration,
    /// From the headers of a request to its end.
    pub body: Duration,
    /// A call takes no longer, whatever its client says. kube-apiserver's default is 3 s.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            greeting: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            body: Duration::from_secs(10),
            call: Duration::from_secs(60),
        }
    }
}

/// What Status says that the plugin speaks. kube-apiserver notes the first answer, and takes another one for an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusVersion {
    /// `v2`: kube-apiserver 1.29 and later.
    #[default]
    V2,
    /// `v2beta1`: 1.27 and 1.28 accept nothing else, and later releases accept it too.
    V2Beta1,
}

impl StatusVersion {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }
}

/// Where the health endpoints are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A unix socket, with the same mode and group as the other.
    Unix(Endpoint),
}

/// Why a server does not start, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] socket::Error),
    /// The health endpoints' address.
    #[error("cannot listen on {address} for health checks")]
    Health {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The gRPC server ended by itself.
    #[error("the gRPC server ended")]
    Grpc(#[source] tonic::transport::Error),
    /// A part of the server ended by itself.
    #[error("the {part} ended")]
    Ended {
        /// Which.
        part: &'static str,
    },
}

/// A server that listens, and answers once it runs.
#[derive(Debug)]
pub struct Server {
    service: Arc<Service>,
    listener: Listener,
    health_listener: Option<HealthListener>,
    options: Options,
}

#[derive(Debug)]
enum HealthListener {
    Tcp(TcpListener),
    Unix(http::HealthSocket),
}

impl Server {
    /// Listens. The backend is not asked for anything yet, and so may be down.
    ///
    /// # Errors
    ///
    /// When the socket or the address of the health endpoints cannot be listened on.
    pub async fn bind(backend: Arc<dyn Backend>, options: Options) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new(backend.name()));
        let health = Arc::new(Health::new(Arc::clone(&metrics)));
        let health_listener = match &options.health {
            None => None,
            Some(HealthAddress::Tcp(address)) => {
                let failed = |source| Error::Health { address: *address, source };
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                if !address.ip().is_loopback() {
                    tracing::warn!("{address}: /readyz and /metrics are open to the network, without a password");
                }
                Some(HealthListener::Tcp(listener))
            }
            Some(HealthAddress::Unix(endpoint)) => {
                Some(HealthListener::Unix(KeptSocket::bind(endpoint.clone(), options.access)?.into()))
            }
        };
        let admission = Admission {
            access: options.access,
            allowed_uids: options.allowed_uids.clone(),
            max_connections: options.max_connections,
            greeting_time: options.patience.greeting,
        };
        let endpoint = options.listen.clone();
        let journal = Arc::<Journal>::default();
        let listener =
            Listener::bind(endpoint, admission, Arc::clone(&metrics), Arc::clone(&health), Arc::clone(&journal))?;
        let service = Arc::new(Service::new(backend, health, metrics, journal));
        Ok(Self { service, listener, health_listener, options })
    }

    /// The address of the health endpoints, if they are on one.
    #[must_use]
    pub fn health_address(&self) -> Option<SocketAddr> {
        match &self.health_listener {
            Some(HealthListener::Tcp(listener)) => listener.local_addr().ok(),
            _ => None,
        }
    }

    /// What can be done with the server while it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { service: Arc::clone(&self.service) }
    }

    /// Answers until `stop` is ready, and then finishes the calls that are open.
    ///
    /// # Errors
    ///
    /// When a part of the server ends by itself, which is not to happen.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { service, listener, health_listener, options } = self;
        let metrics = Arc::clone(&service.metrics);
        let (stop_sender, stop_receiver) = watch::channel(false);
        let (connection_sender, connections) = mpsc::channel(CONNECTIONS_BETWEEN);
        let mut tasks = Tasks::default();
        let listening = tasks.spawn(listener.run(connection_sender, stop_receiver.clone()));
        tasks.spawn(probe_for_ever(Arc::clone(&service.backend), Arc::clone(&service.health), options.timing));
        tasks.spawn(Arc::clone(&service.journal).count_for_ever());
        let answering = match health_listener {
            None => None,
            Some(HealthListener::Tcp(listener)) => {
                Some(tasks.spawn(http::answer(listener, Arc::clone(&service.health))))
            }
            Some(HealthListener::Unix(socket)) => Some(tasks.spawn(http::answer(socket, Arc::clone(&service.health)))),
        };

        let mut drain = stop_receiver;
        let signal = async move { stopped(&mut drain).await };
        let grpc = grpc(service, options.status_version, options.patience)
            .serve_with_incoming_shutdown(ReceiverStream::new(connections), signal);
        tokio::pin!(grpc, stop);
        tokio::select! {
            () = &mut stop => {}
            result = &mut grpc => return result.map_err(Error::Grpc).and(Err(Error::Ended { part: "listener" })),
        }
        _ = stop_sender.send(true);
        // The listener and the gRPC server wait for each other, so that both have to go on. Whatever hangs, the time is limited.
        let end = async {
            let calls = async {
                tokio::select! {
                    result = &mut grpc => result.map_err(Error::Grpc),
                    () = until_idle(&metrics) => Ok(()),
                }
            };
            // The socket goes at once, so that a successor can listen.
            let (_, result) = tokio::join!(listening, calls);
            result
        };
        let result = tokio::time::timeout(options.drain_timeout, end).await.unwrap_or_else(|_| {
            tracing::warn!("calls that were still open are given up");
            Ok(())
        });
        if let Some(answering) = answering {
            answering.abort();
            // The file of its socket goes with it.
            _ = answering.await;
        }
        result
    }
}

/// Until no call is open, and clients have had time for a goodbye.
async fn until_idle(metrics: &Metrics) {
    tokio::time::sleep(IDLE_TIME).await;
    while metrics.open_calls.get() > 0 {
        tokio::time::sleep(IDLE_TIME / 10).await;
    }
}

/// Both services.
fn grpc(
    service: Arc<Service>,
    status_version: StatusVersion,
    patience: Patience,
) -> tonic::transport::server::Router<Stack<Intake, Identity>> {
    let v2 = V2 { service: Arc::clone(&service), status_version };
    let v1beta1 = V1Beta1 { service };
    tonic::transport::Server::builder()
        .max_concurrent_streams(Some(MAX_STREAMS))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(patience.ping_interval))
        .http2_keepalive_timeout(Some(patience.ping_timeout))
        .timeout(patience.call)
        .layer(Intake::new(patience.body))
        .add_service(V2Server::new(v2).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(V1Beta1Server::new(v1beta1).max_decoding_message_size(MAX_MESSAGE_BYTES))
}

/// Tasks that end with the server.
#[derive(Debug, Default)]
struct Tasks(Vec<tokio::task::AbortHandle>);

impl Tasks {
    fn spawn<F>(&mut self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let task = tokio::spawn(task);
        self.0.push(task.abort_handle());
        task
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// What can be done with a server while it runs.
#[derive(Clone, Debug)]
pub struct Handle {
    service: Arc<Service>,
}

impl Handle {
    /// Has the backend read its keys again.
    ///
    /// # Errors
    ///
    /// When it cannot; what was known before stays in force.
    pub async fn reload(&self) -> Result<(), backend::Error> {
        let result = self.service.backend.reload().await;
        self.service.health.look_again();
        result
    }

    /// How the plugin is, and each change of it.
    #[must_use]
    pub fn condition(&self) -> watch::Receiver<Condition> {
        self.service.health.subscribe()
    }
}
