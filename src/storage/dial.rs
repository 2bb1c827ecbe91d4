use std::pin::pin;
use std::time::Duration;

use etcd_client::Client;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Code;

use super::client::{ConnectOptions, kv_client};
use super::connector::{Connector, Tls};
use super::endpoint::Endpoint;
use super::error::Error;
use super::failure::{ConnectError, ConnectFailure};
use super::tls::{self, TlsOptions};

/// Finds an endpoint that answers.
pub(super) struct Dialer {
    options: ConnectOptions,
    tls: Option<Tls>,
}

/// Whether a member that knows of no leader may answer. Upstream requires one of watches alone (`WithRequireLeader`): a member
/// that is cut off would have them wait for events that never come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    NotRequired,
    Required,
}

/// How long one endpoint has before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(300);

impl Dialer {
    pub(super) fn new(options: ConnectOptions) -> Result<Self, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let with_tls = options.endpoints.iter().any(|endpoint| endpoint.tls.unwrap_or(options.tls.wants_tls()));
        let tls = if with_tls { Some(tls_of(&options.tls)?) } else { None };
        Ok(Self { options, tls })
    }

    pub(super) fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// The first endpoint that answers, and the client for it, beginning with the endpoint of that number.
    ///
    /// A member that takes connections may still be stuck, so an endpoint answers when etcd does. The next one is tried when
    /// one has failed, or takes long.
    pub(super) async fn dial(&self, first: usize, leader: Leader) -> Result<(usize, Client), Error> {
        let deadline = Instant::now() + self.options.dial_timeout;
        let endpoints = self.options.endpoints.iter().enumerate();
        let mut waiting = endpoints.clone().skip(first).chain(endpoints.take(first));
        let mut attempts = FuturesUnordered::new();
        let mut failures = Vec::new();
        loop {
            let mut pause = self.options.dial_timeout;
            if let Some((at, endpoint)) = waiting.next() {
                pause = STAGGER;
                attempts.push(async move { (at, endpoint, self.attempt(endpoint, deadline, leader).await) });
            }
            match timeout(pause, attempts.next()).await {
                Err(_) => {}
                Ok(Some((at, _, Ok(Ok(client))))) => return Ok((at, client)),
                Ok(Some((at, endpoint, Ok(Err(failure))))) => {
                    tracing::debug!(%endpoint, %failure, "an endpoint cannot be used");
                    failures.push((at, ConnectError { endpoint: endpoint.to_string(), failure }));
                }
                Ok(Some((_, _, Err(error)))) => return Err(error),
                Ok(None) => break,
            }
        }
        failures.sort_by_key(|(at, _)| *at);
        Err(Error::Unreachable { endpoints: failures.into_iter().map(|(_, failure)| failure).collect() })
    }

    /// The error is what the whole cluster answers, and not this endpoint only.
    async fn attempt(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
        leader: Leader,
    ) -> Result<Result<Client, ConnectFailure>, Error> {
        let tls = self.tls.clone().filter(|_| endpoint.tls.unwrap_or(self.options.tls.wants_tls()));
        let connector = Connector::new(endpoint.clone(), tls, self.options.dial_timeout);
        let mut open = pin!(self.open(&connector, leader));
        // gRPC connects again by itself: when it has failed before, some time is kept for finding out why.
        let opened = match timeout_at(deadline - self.options.dial_timeout / 4, &mut open).await {
            Err(_) if !connector.has_failed() => timeout_at(deadline, open).await,
            opened => opened,
        };
        let error = match opened {
            Ok(Ok(client)) => return Ok(Ok(client)),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let failure = match (error, connector.take_failure()) {
            (None | Some(Error::Unavailable { .. } | Error::Etcd { .. } | Error::Client(_)), Some(failure)) => {
                self.explain(endpoint, &connector, failure, deadline).await
            }
            (None, None) => ConnectFailure::Timeout(self.options.dial_timeout),
            (Some(Error::Unavailable { message }), None) => ConnectFailure::NotReady(message),
            (Some(Error::Etcd { code: Code::Unimplemented | Code::Unknown, message }), None) => {
                ConnectFailure::NotEtcd(message)
            }
            (Some(error), _) => return Err(error),
        };
        Ok(Err(failure))
    }

    /// Connects, authenticates, and makes sure that etcd answers.
    async fn open(&self, connector: &Connector, leader: Leader) -> Result<Client, Error> {
        let unavailable = |error: tonic::transport::Error| Error::Unavailable { message: error.to_string() };
        // The connector knows the endpoint; this name is only what requests say they are for.
        let channel = tonic::transport::Endpoint::from_static("http://etcd")
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(4 * 1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024)
            .connect_with_connector(connector.clone())
            .await
            .map_err(unavailable)?;
        let mut client_options = etcd_client::ConnectOptions::new()
            .with_auto_token_refresh(true)
            .with_require_leader(leader == Leader::Required);
        if let Some((user, password)) = &self.options.user {
            client_options = client_options.with_user(user, password.expose());
        }
        let client = Client::from_channel(etcd_client::Channel::Tonic(channel), Some(client_options)).await;
        let client = client.map_err(|error| self.error(error))?;
        // Nothing is known of a connection before it has answered: a refused client certificate shows only now. Whether this
        // key may be read does not matter.
        match kv_client(&client).get("compact_rev_key", None).await {
            Ok(_) => Ok(client),
            Err(error) => match self.error(error) {
                Error::PermissionDenied => Ok(client),
                error => Err(error),
            },
        }
    }

    /// What etcd's refusal means to the user who is given.
    pub(super) fn error(&self, error: etcd_client::Error) -> Error {
        match (Error::from_client(error), &self.options.user) {
            (Error::WrongPassword { .. }, Some((user, _))) => Error::WrongPassword { user: user.clone() },
            (error, _) => error,
        }
    }

    /// Servers that are spoken to with TLS and have none, or the other way round, often just hang up.
    async fn explain(
        &self,
        endpoint: &Endpoint,
        connector: &Connector,
        failure: ConnectFailure,
        deadline: Instant,
    ) -> ConnectFailure {
        if !failure.is_vague() {
            return failure;
        }
        let timeout = self.options.dial_timeout;
        if connector.speaks_tls() {
            let plain = Connector::new(endpoint.clone(), None, timeout);
            return match timeout_at(deadline, plain.answers_http2()).await {
                Ok(true) => ConnectFailure::NotTls,
                _ => failure,
            };
        }
        let any = TlsOptions { danger_accept_any_certificate: true, ..TlsOptions::default() };
        let Ok(tls) = tls_of(&any) else { return failure };
        match timeout_at(deadline, Connector::new(endpoint.clone(), Some(tls), timeout).connect()).await {
            Ok(Ok(_)) => ConnectFailure::SpeaksTls,
            Ok(Err(with_tls)) if is_of_tls(&with_tls) => ConnectFailure::SpeaksTls,
            _ => failure,
        }
    }
}

fn is_of_tls(failure: &ConnectFailure) -> bool {
    matches!(
        failure,
        ConnectFailure::ClientCertificateRequired
            | ConnectFailure::ClientCertificateRejected
            | ConnectFailure::HandshakeRefused
            | ConnectFailure::Certificate(_)
            | ConnectFailure::Tls(_)
    )
}

fn tls_of(options: &TlsOptions) -> Result<Tls, Error> {
    Ok(Tls {
        config: tls::client_config(options)?,
        server_name: options.server_name.as_deref().map(tls::server_name).transpose()?,
        has_client_certificate: options.cert_file.is_some(),
    })
}
