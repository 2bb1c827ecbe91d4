//! Accepts connections, and sees to it that the socket stays where clients look for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use atrest::config::{DialAddress, Endpoint};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::connection::{Connection, Peer};
use super::health::Health;
use super::metrics::Metrics;
use super::socket::{Access, Error, Socket, SocketFile};

/// How often the path is looked at: inotify would miss what happens to a folder above it.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// After an error of accept(2), which is one of the whole process: no more files, no more memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may connect, and how many.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) access: Access,
    /// Empty: everybody whom the file's mode lets.
    pub(super) allowed_uids: Vec<u32>,
    pub(super) max_connections: usize,
}

/// The socket that clients connect to.
#[derive(Debug)]
pub(super) struct Listener {
    endpoint: Endpoint,
    admission: Admission,
    permits: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    /// None while the path is lost.
    listening: Option<UnixListener>,
    file: Option<SocketFile>,
}

impl Listener {
    pub(super) fn bind(
        endpoint: Endpoint,
        admission: Admission,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
    ) -> Result<Self, Error> {
        let Socket { listener, file } = Socket::bind(&endpoint, admission.access)?;
        let listening = listening(&endpoint, listener)?;
        let permits = Arc::new(Semaphore::new(admission.max_connections));
        let listener = Self { endpoint, admission, permits, metrics, health, listening: Some(listening), file };
        listener.warn_of_access();
        Ok(listener)
    }

    fn warn_of_access(&self) {
        let mode = self.admission.access.mode;
        if self.file.is_none() {
            tracing::warn!(
                "{}: an abstract socket has no permissions: every process in this network namespace can connect",
                self.endpoint
            );
        } else if mode & 0o007 != 0 {
            tracing::warn!("{}: the mode {mode:04o} lets every user connect", self.endpoint);
        }
    }

    /// Accepts connections until told to stop, or until nobody takes them. The socket's file is gone afterwards.
    pub(super) async fn run(
        mut self,
        connections: mpsc::Sender<io::Result<Connection>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                _ = look.tick() => self.look().await,
                accepted = accept(self.listening.as_ref()) => match accepted {
                    Ok(stream) => {
                        let Some(connection) = self.admit(stream) else { continue };
                        if connections.send(Ok(connection)).await.is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!("cannot accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// Whether this client may connect.
    fn admit(&self, stream: UnixStream) -> Option<Connection> {
        let refused = || {
            self.metrics.refused_connections.inc();
            None
        };
        let peer = match Peer::of(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!("refused a connection: the kernel does not say whose it is: {error}");
                return refused();
            }
        };
        let Peer { uid, gid, pid } = peer;
        if !self.admission.allowed_uids.is_empty() && !self.admission.allowed_uids.contains(&uid) {
            tracing::warn!(uid, gid, pid, "refused a connection: the user is not allowed");
            return refused();
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            tracing::warn!(uid, gid, pid, "refused a connection: {} are open", self.admission.max_connections);
            return refused();
        };
        tracing::info!(uid, gid, pid, "connection");
        Some(Connection::new(stream, peer, Arc::clone(&self.metrics), permit))
    }

    /// Listens anew when the path does not lead to our socket any more.
    async fn look(&mut self) {
        let is_in_place = self.file.as_ref().is_none_or(SocketFile::is_in_place);
        if self.listening.is_some() && is_in_place {
            return;
        }
        if self.listening.take().is_some() {
            tracing::warn!("the socket {} was removed or replaced; listening anew", self.endpoint);
            self.health.set_socket(Some(format!("the socket {} was removed or replaced", self.endpoint)));
        }
        let (endpoint, access) = (self.endpoint.clone(), self.admission.access);
        let bound = tokio::task::spawn_blocking(move || {
            let Socket { listener, file } = Socket::bind(&endpoint, access)?;
            Ok::<_, Error>((endpoint, listener, file))
        });
        let bound = match bound.await {
            Ok(bound) => bound,
            Err(error) => return tracing::error!("{error}"),
        };
        match bound.and_then(|(endpoint, listener, file)| Ok((listening(&endpoint, listener)?, file))) {
            Ok((listening, file)) => {
                (self.listening, self.file) = (Some(listening), file);
                self.health.set_socket(None);
            }
            // It is tried again at every look.
            Err(error) => self.health.set_socket(Some(with_source(&error))),
        }
    }
}

/// Comes when there is an order to stop, or nobody left to give one.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}

/// The next connection; none comes while nothing is listened on.
async fn accept(listening: Option<&UnixListener>) -> io::Result<UnixStream> {
    match listening {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn listening(endpoint: &Endpoint, listener: std::os::unix::net::UnixListener) -> Result<UnixListener, Error> {
    let address = || match endpoint.dial_address() {
        DialAddress::None => endpoint.to_string(),
        address => address.to_string(),
    };
    UnixListener::from_std(listener).map_err(|source| Error::System {
        operation: "listen on",
        address: address(),
        source,
    })
}

fn with_source(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
