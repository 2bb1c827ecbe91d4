//! A unix socket that stays where clients look for it: it is bound again when its file was removed or replaced.

use std::io;
use std::time::Duration;

use atrest::config::{DialAddress, Endpoint};
use tokio::net::{UnixListener, UnixStream};

use super::socket::{Access, Error, Socket, SocketFile};

/// How often the path is to be looked at: inotify would miss what happens to a folder above it.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A socket that is listened on, as far as its path is ours.
#[derive(Debug)]
pub(super) struct KeptSocket {
    endpoint: Endpoint,
    access: Access,
    /// None while the path is lost.
    listening: Option<UnixListener>,
    /// None in Linux' abstract namespace.
    file: Option<SocketFile>,
}

/// What a look at the path has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All is as before.
    InPlace,
    /// The socket was removed or replaced, and is bound again.
    Bound,
    /// It cannot be bound again, for this reason; the next look tries it once more.
    Lost(String),
}

impl KeptSocket {
    pub(super) fn bind(endpoint: Endpoint, access: Access) -> Result<Self, Error> {
        let Socket { listener, file } = Socket::bind(&endpoint, access)?;
        let listening = Some(listening(&endpoint, listener)?);
        Ok(Self { endpoint, access, listening, file })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether it has no file, and so no permissions.
    pub(super) fn is_abstract(&self) -> bool {
        self.file.is_none() && matches!(self.endpoint.dial_address(), DialAddress::Abstract(_))
    }

    /// The next connection; none comes while the path is lost.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        match &self.listening {
            Some(listener) => listener.accept().await.map(|(stream, _)| stream),
            None => std::future::pending().await,
        }
    }

    /// Listens anew when the path does not lead to this socket any more.
    pub(super) async fn look(&mut self) -> Found {
        let is_in_place = self.file.as_ref().is_none_or(SocketFile::is_in_place);
        if self.listening.is_some() && is_in_place {
            return Found::InPlace;
        }
        if self.listening.take().is_some() {
            tracing::warn!("the socket {} was removed or replaced; listening anew", self.endpoint);
        }
        let (endpoint, access) = (self.endpoint.clone(), self.access);
        let bound = tokio::task::spawn_blocking(move || Socket::bind(&endpoint, access));
        let bound = match bound.await {
            Ok(bound) => bound.and_then(|bound| Ok((listening(&self.endpoint, bound.listener)?, bound.file))),
            Err(error) => return Found::Lost(error.to_string()),
        };
        match bound {
            Ok((listening, file)) => {
                (self.listening, self.file) = (Some(listening), file);
                Found::Bound
            }
            Err(error) => Found::Lost(with_source(&error)),
        }
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
