use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, GetOptions, KeyValue, KvClient, PutOptions, Txn, TxnOp, TxnOpResponse};
use tokio::sync::RwLock;

use super::connector::{ConnectFailure, Connector};
use super::endpoint::Endpoint;
use super::error::Error;
use super::tls::{self, TlsOptions};
use crate::secret::Password;
use crate::source::StoredValue;

/// How to reach etcd. The names are those of etcdctl's flags.
#[derive(Debug)]
pub struct ConnectOptions {
    /// `--endpoints`, tried in order.
    pub endpoints: Vec<Endpoint>,
    /// `--cacert`, `--cert`, `--key` and their like.
    pub tls: TlsOptions,
    /// `--user` and `--password`.
    pub user: Option<(String, Password)>,
    /// `--dial-timeout`: for a connection to some endpoint.
    pub dial_timeout: Duration,
    /// `--command-timeout`: for one request.
    pub command_timeout: Duration,
}

/// What a member of the cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The endpoint that answered.
    pub endpoint: String,
    /// The version of etcd; empty when it does not tell.
    pub version: String,
    /// The size of the database file in bytes; 0 when it does not tell.
    pub db_size: i64,
    /// Identifies the cluster.
    pub cluster_id: u64,
    /// The revision of the store.
    pub revision: i64,
}

/// A cluster of etcd, or of kine.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    live: RwLock<Live>,
    connector: Connector,
    options: ConnectOptions,
}

/// The channel that is in use.
#[derive(Clone)]
struct Live {
    kv: KvClient,
    client: Client,
    /// Counts the channels, so that of many requests that fail at once only one opens the next.
    generation: u64,
}

impl Live {
    fn new(client: Client, generation: u64) -> Self {
        Self { kv: kv_client(&client), client, generation }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("endpoints", &self.shared.options.endpoints).finish_non_exhaustive()
    }
}

/// The largest answer that is taken, in bytes; larger pages are asked for again in halves.
pub(super) const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// How long requests are tried again while etcd is not available.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pause that grows from try to try, within [`PATIENCE`].
#[derive(Debug)]
pub(super) struct Backoff {
    until: tokio::time::Instant,
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { until: tokio::time::Instant::now() + PATIENCE, next: Duration::from_millis(50) }
    }

    /// Waits, and says whether another try is due.
    pub(super) async fn wait(&mut self) -> bool {
        if tokio::time::Instant::now() + self.next > self.until {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
        true
    }
}

impl Store {
    /// Connects, authenticates, and makes sure that etcd answers.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] names what is wrong with each endpoint, within the dial timeout.
    pub async fn connect(options: ConnectOptions) -> Result<Self, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::NoEndpoint);
        }
        let wants_tls = |endpoint: &Endpoint| endpoint.tls.unwrap_or(options.tls.wants_tls());
        let config = match options.endpoints.iter().any(wants_tls) {
            true => Some(tls::client_config(&options.tls)?),
            false => None,
        };
        let server_name = options.tls.server_name.as_deref().map(tls::server_name).transpose()?;
        let connector = Connector::new(
            options.endpoints.clone(),
            config,
            server_name,
            options.tls.cert_file.is_some(),
            options.dial_timeout,
        );
        let client = match tokio::time::timeout(options.dial_timeout, open(&connector, &options)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(explain(&connector, &options, error).await),
            Err(_) => return Err(explain(&connector, &options, timed_out(options.dial_timeout)).await),
        };
        let live = RwLock::new(Live::new(client, 0));
        Ok(Self { shared: Arc::new(Shared { live, connector, options }) })
    }

    /// Asks the member that is connected to.
    ///
    /// # Errors
    ///
    /// When etcd is not available; a member that does not answer such requests (kine does not in all versions) has an empty status.
    pub async fn status(&self) -> Result<ServerStatus, Error> {
        let mut client = self.live().await.client;
        let endpoint = self.shared.connector.current().map(ToString::to_string).unwrap_or_default();
        let mut status = ServerStatus { endpoint, version: String::new(), db_size: 0, cluster_id: 0, revision: 0 };
        match self.limited(client.status()).await {
            Ok(response) => {
                response.version().clone_into(&mut status.version);
                status.db_size = response.db_size();
                if let Some(header) = response.header() {
                    status.cluster_id = header.cluster_id();
                    status.revision = header.revision();
                }
                Ok(status)
            }
            Err(Error::Etcd { .. } | Error::PermissionDenied) => Ok(status),
            Err(error) => Err(error),
        }
    }

    /// Reads one key at the latest revision.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, or refuses.
    pub async fn get(&self, key: &[u8]) -> Result<Option<StoredValue>, Error> {
        let mut response = self.range(key, GetOptions::new()).await?;
        Ok(response.take_kvs().into_iter().next().map(stored_value))
    }

    /// Puts a value when the key is still at the revision at which it was read; 0 means that there is no such key.
    ///
    /// # Errors
    ///
    /// As etcd answers. After [`Error::Unavailable`] it is not known whether the value was written.
    pub async fn optimistic_put(
        &self,
        key: &[u8],
        value: Vec<u8>,
        expected_revision: i64,
        lease: i64,
    ) -> Result<Written, Error> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        self.compare_and(key, expected_revision, put).await
    }

    /// Deletes a key when it is still at the revision at which it was read.
    ///
    /// # Errors
    ///
    /// As [`Store::optimistic_put`].
    pub async fn optimistic_delete(&self, key: &[u8], expected_revision: i64) -> Result<Written, Error> {
        self.compare_and(key, expected_revision, TxnOp::delete(key, None)).await
    }

    async fn compare_and(&self, key: &[u8], expected_revision: i64, operation: TxnOp) -> Result<Written, Error> {
        let txn = Txn::new()
            .when([Compare::mod_revision(key, CompareOp::Equal, expected_revision)])
            .and_then([operation])
            .or_else([TxnOp::get(key, None)]);
        let mut kv = self.live().await.kv;
        let response = self.limited(kv.txn(txn)).await?;
        if response.succeeded() {
            return Ok(Written::Done { revision: response.header().map_or(0, etcd_client::ResponseHeader::revision) });
        }
        let current = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(mut range) => range.take_kvs().into_iter().next(),
            _ => None,
        });
        Ok(Written::Conflict { current: current.map(stored_value) })
    }

    /// A read, tried again while etcd is not available.
    pub(super) async fn range(&self, key: &[u8], options: GetOptions) -> Result<etcd_client::GetResponse, Error> {
        let mut backoff = Backoff::new();
        loop {
            let Live { mut kv, generation, .. } = self.live().await;
            match self.limited(kv.get(key, Some(options.clone()))).await {
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "reading again");
                    if !backoff.wait().await {
                        return Err(error);
                    }
                    self.reconnect(generation).await;
                }
                result => return result,
            }
        }
    }

    async fn live(&self) -> Live {
        self.shared.live.read().await.clone()
    }

    /// The channel that requests go through now, for [`Store::reconnect`].
    pub(super) async fn generation(&self) -> u64 {
        self.shared.live.read().await.generation
    }

    /// Replaces a channel that failed, beginning with the next endpoint: a member that answers may still be cut off from the
    /// others.
    pub(super) async fn reconnect(&self, failed: u64) {
        let shared = &self.shared;
        let mut live = shared.live.write().await;
        if live.generation != failed {
            return;
        }
        if shared.options.endpoints.len() > 1 {
            shared.connector.move_on();
        }
        let opened = tokio::time::timeout(shared.options.dial_timeout, open(&shared.connector, &shared.options)).await;
        if let Ok(Ok(client)) = opened {
            *live = Live::new(client, failed + 1);
        }
    }

    async fn limited<T>(&self, call: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T, Error> {
        match tokio::time::timeout(self.shared.options.command_timeout, call).await {
            Ok(result) => result.map_err(Error::from_client),
            Err(_) => Err(timed_out(self.shared.options.command_timeout)),
        }
    }
}

/// What became of a conditional write.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// It was done.
    Done {
        /// The revision that the write made.
        revision: i64,
    },
    /// The key was at another revision.
    Conflict {
        /// What is stored now; nothing when the key is gone.
        current: Option<StoredValue>,
    },
}

fn timed_out(after: Duration) -> Error {
    Error::Unavailable { message: no_answer(after) }
}

fn no_answer(after: Duration) -> String {
    format!("no answer within {after:?}")
}

fn kv_client(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES)
}

pub(super) fn stored_value(kv: KeyValue) -> StoredValue {
    let (create_revision, mod_revision) = (kv.create_revision(), kv.mod_revision());
    let (version, lease) = (kv.version(), kv.lease());
    let (key, value) = kv.into_key_value();
    StoredValue { key, value, create_revision, mod_revision, version, lease }
}

async fn open(connector: &Connector, options: &ConnectOptions) -> Result<Client, Error> {
    let unavailable = |error: tonic::transport::Error| Error::Unavailable { message: error.to_string() };
    // The connector knows the endpoints; this name is only what requests say they are for.
    let channel = tonic::transport::Endpoint::from_static("http://etcd")
        .connect_timeout(options.dial_timeout)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .initial_stream_window_size(4 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .connect_with_connector(connector.clone())
        .await
        .map_err(unavailable)?;
    let mut client_options = etcd_client::ConnectOptions::new().with_auto_token_refresh(true);
    if let Some((user, password)) = &options.user {
        client_options = client_options.with_user(user, password.expose());
    }
    let client = Client::from_channel(etcd_client::Channel::Tonic(channel), Some(client_options)).await;
    let client = client.map_err(|error| match Error::from_client(error) {
        Error::WrongPassword { .. } => {
            Error::WrongPassword { user: options.user.as_ref().map(|(user, _)| user.clone()).unwrap_or_default() }
        }
        error => error,
    })?;
    // Nothing is known of a connection before it has answered: a refused client certificate shows only now. Whether this
    // key may be read does not matter.
    match kv_client(&client).get("compact_rev_key", Some(GetOptions::new().with_keys_only())).await {
        Ok(_) => Ok(client),
        Err(error) => match Error::from_client(error) {
            Error::PermissionDenied => Ok(client),
            error => Err(error),
        },
    }
}

/// The cause of a failed connection, as the connector saw it; gRPC itself knows of a `transport error` only.
async fn explain(connector: &Connector, options: &ConnectOptions, error: Error) -> Error {
    let mut endpoints = connector.take_failures();
    match error {
        Error::Unavailable { .. } if !endpoints.is_empty() => {
            for failed in &mut endpoints {
                let endpoint = options.endpoints.iter().find(|endpoint| endpoint.to_string() == failed.endpoint);
                if failed.failure == ConnectFailure::Closed
                    && let Some(endpoint) = endpoint
                    && speaks_tls(endpoint, options).await
                {
                    failed.failure = ConnectFailure::SpeaksTls;
                }
            }
            Error::Unreachable { endpoints }
        }
        Error::Unavailable { message } if message == no_answer(options.dial_timeout) => {
            let endpoint = connector.current().map(ToString::to_string).unwrap_or_default();
            let failure = ConnectFailure::Timeout(options.dial_timeout);
            Error::Unreachable { endpoints: vec![super::ConnectError { endpoint, failure }] }
        }
        Error::Etcd { code, message } if code == tonic::Code::Unimplemented || code == tonic::Code::Unknown => {
            let endpoint = connector.current().map(ToString::to_string).unwrap_or_default();
            let failure = ConnectFailure::NotEtcd(message);
            Error::Unreachable { endpoints: vec![super::ConnectError { endpoint, failure }] }
        }
        error => error,
    }
}

/// Whether a server that closed a connection without TLS would have liked one with TLS.
async fn speaks_tls(endpoint: &Endpoint, options: &ConnectOptions) -> bool {
    if endpoint.tls.unwrap_or(options.tls.wants_tls()) {
        return false;
    }
    let any = TlsOptions { danger_accept_any_certificate: true, ..TlsOptions::default() };
    let Ok(config) = tls::client_config(&any) else { return false };
    let with_tls = Endpoint { tls: Some(true), ..endpoint.clone() };
    let probe = Connector::new(vec![with_tls], Some(config), None, false, options.dial_timeout);
    let Ok(opened) = tokio::time::timeout(options.dial_timeout / 2, open(&probe, options)).await else { return false };
    match opened {
        Ok(_) => true,
        Err(_) => probe.take_failures().iter().any(|failed| {
            matches!(
                failed.failure,
                ConnectFailure::ClientCertificateRequired
                    | ConnectFailure::ClientCertificateRejected
                    | ConnectFailure::Certificate(_)
                    | ConnectFailure::Tls(_)
            )
        }),
    }
}
