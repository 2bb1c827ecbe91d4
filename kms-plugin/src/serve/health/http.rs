//! `/livez`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.
//!
//! The kubelet ends a plugin whose `/livez` does not answer, so that nobody who can connect may keep an answer from it: a connection is for
//! one request, ends soon, and is closed before its time when there are too many. None waits for another.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::Health;
use crate::serve::kept_socket::{Found, KeptSocket, LOOK_INTERVAL};

/// So many connections are open at a time; for one more the oldest is closed. Who asks at once has been answered long before.
const MAX_CONNECTIONS: usize = 128;
/// So long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// So long a connection may be open, so that nobody reads an answer for ever.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// After an error of accept(2), which is one of the whole process: no more files, no more memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the health endpoints are asked.
pub(in crate::serve) trait Listener: Send {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

impl Listener for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        Ok(TcpListener::accept(self).await?.0)
    }
}

/// A unix socket that is bound again like kube-apiserver's.
#[derive(Debug)]
pub(in crate::serve) struct HealthSocket {
    socket: KeptSocket,
    /// Why it cannot be bound again.
    lost: Option<String>,
}

impl From<KeptSocket> for HealthSocket {
    fn from(socket: KeptSocket) -> Self {
        Self { socket, lost: None }
    }
}

impl HealthSocket {
    async fn look(&mut self) {
        match self.socket.look().await {
            Found::InPlace => {}
            Found::Bound => self.lost = None,
            // Nobody can ask `/readyz` for it.
            Found::Lost(reason) if self.lost.as_ref() == Some(&reason) => {}
            Found::Lost(reason) => {
                tracing::warn!("health checks: {reason}");
                self.lost = Some(reason);
            }
        }
    }
}

impl Listener for HealthSocket {
    type Io = tokio::net::UnixStream;

    async fn accept(&mut self) -> io::Result<Self::Io> {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                accepted = self.socket.accept() => return accepted,
                _ = look.tick() => self.look().await,
            }
        }
    }
}

/// Answers on the listener until this is dropped.
pub(in crate::serve) async fn answer(mut listener: impl Listener, health: Arc<Health>) {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health);
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok(io) => connections.begin(converse(io, router.clone())),
            Err(error) => {
                tracing::debug!("health checks: cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers one request.
async fn converse(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(REQUEST_TIME).keep_alive(false);
    let connection = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("health checks: a connection failed: {error}"),
        Err(_) => tracing::debug!("health checks: a connection took too long"),
    }
}

/// The open connections, the oldest first. They end with this.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    handles: VecDeque<AbortHandle>,
}

impl Connections {
    fn begin(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.handles.retain(|handle| !handle.is_finished());
        while self.handles.len() >= MAX_CONNECTIONS {
            if let Some(oldest) = self.handles.pop_front() {
                oldest.abort();
            }
        }
        self.handles.push_back(self.tasks.spawn(connection));
    }
}

/// Whether requests can be served: the API server's and the kubelet's view are the same.
async fn ready(State(health): State<Arc<Health>>) -> Response {
    let condition = health.known.borrow().clone();
    let problems: Vec<_> = condition.problems().collect();
    let warning = condition.warning().map(|warning| format!("warning: {warning}\n")).unwrap_or_default();
    if problems.is_empty() {
        return format!("ok\n{warning}").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n{warning}", problems.join("\n"))).into_response()
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    match health.metrics.text() {
        Ok(text) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
