//! A connection that was accepted: whose it is, and that it is counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::authority;
use super::metrics::Metrics;

/// The process at the other end, as the kernel saw it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its process, unless that is in a PID namespace which this process does not see.
    pub pid: Option<i32>,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        // The kernel says 0 for a process of another namespace.
        let pid = credentials.pid().filter(|pid| *pid != 0);
        Ok(Self { uid: credentials.uid(), gid: credentials.gid(), pid })
    }
}

/// A connection of a client that may connect.
#[derive(Debug)]
pub(super) struct Connection {
    stream: authority::Stream<UnixStream>,
    peer: Peer,
    metrics: Arc<Metrics>,
    /// Until the client has begun to speak HTTP/2: whoever connects and says nothing keeps no place.
    greeting: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn new(
        stream: UnixStream,
        peer: Peer,
        metrics: Arc<Metrics>,
        permit: OwnedSemaphorePermit,
        greeting_time: Duration,
    ) -> Self {
        metrics.connections.inc();
        let greeting = Some(Box::pin(tokio::time::sleep(greeting_time)));
        Self { stream: authority::Stream::new(stream), peer, metrics, greeting, _permit: permit }
    }

    /// Whether the client has taken too long to begin.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        if self.greeting.is_some() && self.stream.has_begun() {
            self.greeting = None;
        }
        self.greeting.as_mut().is_some_and(|greeting| greeting.as_mut().poll(cx).is_ready())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
        tracing::debug!(uid = self.peer.uid, pid = self.peer.pid, "connection closed");
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending if self.is_late(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            poll => poll,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
