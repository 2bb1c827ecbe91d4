//! `/livez`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::Health;

/// So many connections are open at a time; more wait.
const MAX_CONNECTIONS: usize = 32;
/// So long a connection may be open: whoever keeps one and asks nothing does not keep others out.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Answers on the listener until this is dropped.
pub(in crate::serve) async fn answer<L: Listener>(listener: L, health: Arc<Health>) -> io::Result<()>
where
    L::Addr: std::fmt::Debug,
{
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health);
    let listener = Bounded { listener, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)) };
    axum::serve(listener, router).await
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

/// A listener with limits.
struct Bounded<L> {
    listener: L,
    permits: Arc<Semaphore>,
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = BoundedIo<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; if it were, nothing would be accepted.
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return std::future::pending().await };
        let (io, address) = self.listener.accept().await;
        (BoundedIo { io, end: Box::pin(tokio::time::sleep(CONNECTION_TIME)), _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that ends.
struct BoundedIo<T> {
    io: T,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl<T: AsyncRead + Unpin> AsyncRead for BoundedIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for BoundedIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
