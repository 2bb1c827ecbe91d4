//! Accepts connections, and sees to it that the socket stays where clients look for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atrest::config::Endpoint;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::connection::{Connection, Peer};
use super::health::Health;
use super::journal::{Journal, Kind};
use super::kept_socket::{Found, KeptSocket, LOOK_INTERVAL};
use super::metrics::Metrics;
use super::socket::{Access, Error};

/// After an error of accept(2), which is one of the whole process: no more files, no more memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may connect, how many, and how long they may wait before they speak.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) access: Access,
    /// Empty: everybody whom the file's mode lets.
    pub(super) allowed_uids: Vec<u32>,
    pub(super) max_connections: usize,
    /// For the first bytes of HTTP/2.
    pub(super) greeting_time: Duration,
}

/// The socket that clients connect to.
#[derive(Debug)]
pub(super) struct Listener {
    socket: KeptSocket,
    admission: Admission,
    permits: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    journal: Arc<Journal>,
}

impl Listener {
    pub(super) fn bind(
        endpoint: Endpoint,
        admission: Admission,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        journal: Arc<Journal>,
    ) -> Result<Self, Error> {
        let socket = KeptSocket::bind(endpoint, admission.access)?;
        let permits = Arc::new(Semaphore::new(admission.max_connections.min(Semaphore::MAX_PERMITS)));
        let listener = Self { socket, admission, permits, metrics, health, journal };
        listener.warn_of_access();
        Ok(listener)
    }

    fn warn_of_access(&self) {
        let (mode, endpoint) = (self.admission.access.mode, self.socket.endpoint());
        if self.socket.is_abstract() {
            tracing::warn!(
                "{endpoint}: an abstract socket has no permissions: every process in this network namespace can connect"
            );
        } else if mode & 0o007 != 0 {
            tracing::warn!("{endpoint}: the mode {mode:04o} lets every user connect");
        }
    }

    /// Accepts connections until told to stop, or until nobody takes them. The socket's file is gone afterwards.
    pub(super) async fn run(
        mut self,
        connections: mpsc::Sender<io::Result<Connection>>,
        mut stop: watch::Receiver<bool>,
    ) {
        // Whatever it waits for, an order to stop ends that: a place among the connections may not come any more.
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = self.accept_until_closed(connections) => {}
        }
    }

    async fn accept_until_closed(&mut self, connections: mpsc::Sender<io::Result<Connection>>) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => match self.socket.look().await {
                    Found::InPlace => {}
                    Found::Bound => self.health.set_socket(None),
                    // It is tried again at every look.
                    Found::Lost(reason) => self.health.set_socket(Some(reason)),
                },
                accepted = self.socket.accept() => match accepted {
                    Ok(stream) => {
                        let Some(connection) = self.admit(stream) else { continue };
                        if connections.send(Ok(connection)).await.is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        if self.journal.admits(Kind::NotAccepted) {
                            tracing::warn!("cannot accept a connection: {error}");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// Whether this client may connect.
    fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let peer = match Peer::of(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                if self.is_refused("the kernel does not say whose they are") {
                    tracing::warn!("refused a connection: the kernel does not say whose it is: {error}");
                }
                return None;
            }
        };
        let Peer { uid, gid, pid } = peer;
        if !self.admission.allowed_uids.is_empty() && !self.admission.allowed_uids.contains(&uid) {
            if self.is_refused("the user is not allowed") {
                tracing::warn!(uid, gid, pid, "refused a connection: the user is not allowed");
            }
            return None;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            if self.is_refused("too many are open") {
                tracing::warn!(uid, gid, pid, "refused a connection: {} are open", self.admission.max_connections);
            }
            return None;
        };
        if self.journal.admits(Kind::Connection) {
            tracing::info!(uid, gid, pid, "connection");
        } else {
            tracing::debug!(uid, gid, pid, "connection");
        }
        Some(Connection::new(stream, peer, Arc::clone(&self.metrics), permit, self.admission.greeting_time))
    }

    /// Counts a connection that is refused. Whether it is logged.
    fn is_refused(&self, reason: &'static str) -> bool {
        self.metrics.refused_connections.inc();
        self.journal.admits(Kind::Refused(reason))
    }
}

/// Comes when there is an order to stop, or nobody left to give one.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}
