use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{
    Client as EtcdClient, Compare, CompareOp, GetOptions, KeyValue, KvClient, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use tokio::sync::RwLock;
use tokio::time::Instant;

use super::dial::{Dialer, Leader};
use super::endpoint::Endpoint;
use super::error::Error;
use super::metrics::{Method, Metrics};
use super::tls::TlsOptions;
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
    /// Once it is set, what fails is not tried again: somebody waits for the end.
    pub interrupted: &'static AtomicBool,
}

impl ConnectOptions {
    /// These endpoints, with the timeouts of the command line, and nothing else.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            tls: TlsOptions::default(),
            user: None,
            dial_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(30),
            interrupted: &NEVER,
        }
    }
}

/// For [`ConnectOptions::interrupted`], where nobody interrupts.
pub static NEVER: AtomicBool = AtomicBool::new(false);

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
pub struct Client {
    pub(super) shared: Arc<Shared>,
    metrics: Option<Arc<Metrics>>,
}

pub(super) struct Shared {
    live: RwLock<Live>,
    pub(super) dialer: Dialer,
    /// Of the cluster that was connected to first.
    cluster_id: Option<u64>,
}

/// The channel that is in use.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) kv: KvClient,
    pub(super) client: EtcdClient,
    /// The number of the endpoint.
    pub(super) at: usize,
    /// Counts the channels, so that of many requests that fail at once only one opens the next.
    pub(super) generation: u64,
    /// When the last attempt to replace it failed, and how.
    failed: Option<(Instant, String)>,
}

impl Live {
    fn new((at, client): (usize, EtcdClient), generation: u64) -> Self {
        Self { kv: kv_client(&client), client, at, generation, failed: None }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.shared.dialer.options().endpoints).finish_non_exhaustive()
    }
}

/// The largest answer that is taken, in bytes; larger pages are asked for again in halves.
pub(super) const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// How long requests are tried again while etcd is not available.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pause that grows from try to try, within [`PATIENCE`].
#[derive(Debug)]
pub(super) struct Backoff {
    until: Instant,
    next: Duration,
    interrupted: &'static AtomicBool,
}

impl Backoff {
    fn new(interrupted: &'static AtomicBool) -> Self {
        Self { until: Instant::now() + PATIENCE, next: Duration::from_millis(50), interrupted }
    }

    /// Waits, and says whether another try is due.
    pub(super) async fn wait(&mut self) -> bool {
        if self.interrupted.load(Ordering::Relaxed) || Instant::now() + self.next > self.until {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(Duration::from_secs(2));
        true
    }
}

impl Client {
    /// Connects, authenticates, and makes sure that etcd answers.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`] names what is wrong with each endpoint, within the dial timeout.
    pub async fn connect(options: ConnectOptions) -> Result<Self, Error> {
        let dialer = Dialer::new(options)?;
        let live = Live::new(dialer.dial(0, Leader::NotRequired).await?, 0);
        tracing::info!(endpoint = %dialer.options().endpoints.get(live.at).map(ToString::to_string).unwrap_or_default(), "connected");
        let cluster_id = cluster_id(&live.client).await;
        let live = RwLock::new(live);
        Ok(Self { shared: Arc::new(Shared { live, dialer, cluster_id }), metrics: None })
    }

    /// The same client, whose calls are counted.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Where calls are counted.
    pub(super) fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.metrics.as_ref()
    }

    /// What identifies the cluster, where it tells: kine does not.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u64> {
        self.shared.cluster_id.filter(|id| *id != 0)
    }

    /// Asks the member that is connected to.
    ///
    /// # Errors
    ///
    /// When etcd is not available; a member that does not answer such requests (kine does not in all versions) has an empty status.
    pub async fn status(&self) -> Result<ServerStatus, Error> {
        let Live { mut client, at, .. } = self.live().await;
        let endpoint = self.shared.dialer.options().endpoints.get(at).map(ToString::to_string).unwrap_or_default();
        let mut status = ServerStatus { endpoint, version: String::new(), db_size: 0, cluster_id: 0, revision: 0 };
        match self.limited(Method::STATUS, client.status()).await {
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
        self.compare_and(key, expected_revision, put, GetOnFailure::Yes).await
    }

    /// Puts a value under a key that is not there. What is there otherwise is not read: this is the one shape in which kine creates.
    ///
    /// # Errors
    ///
    /// As [`Client::optimistic_put`].
    pub async fn optimistic_create(&self, key: &[u8], value: Vec<u8>, lease: i64) -> Result<Written, Error> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        self.compare_and(key, 0, put, GetOnFailure::No).await
    }

    /// Deletes a key when it is still at the revision at which it was read.
    ///
    /// # Errors
    ///
    /// As [`Client::optimistic_put`].
    pub async fn optimistic_delete(&self, key: &[u8], expected_revision: i64) -> Result<Written, Error> {
        self.compare_and(key, expected_revision, TxnOp::delete(key, None), GetOnFailure::Yes).await
    }

    async fn compare_and(
        &self,
        key: &[u8],
        expected_revision: i64,
        operation: TxnOp,
        get_on_failure: GetOnFailure,
    ) -> Result<Written, Error> {
        let mut txn =
            Txn::new().when([Compare::mod_revision(key, CompareOp::Equal, expected_revision)]).and_then([operation]);
        if get_on_failure == GetOnFailure::Yes {
            txn = txn.or_else([TxnOp::get(key, None)]);
        }
        let response = self.txn(txn).await?;
        if response.succeeded() {
            return Ok(Written::Done { revision: response.header().map_or(0, etcd_client::ResponseHeader::revision) });
        }
        let current = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(mut range) => range.take_kvs().into_iter().next(),
            _ => None,
        });
        Ok(Written::Conflict { current: current.map(stored_value) })
    }

    /// A transaction, which is sent once.
    pub(super) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Error> {
        let Live { mut kv, generation, .. } = self.live().await;
        let result = self.limited(Method::TXN, kv.txn(txn)).await;
        self.reconnecting(generation, result)
    }

    /// Has another connection made when a request has failed that is sent once: for the next one, and without waiting for it.
    pub(super) fn reconnecting<T>(&self, generation: u64, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().is_err_and(Error::is_transient) {
            let client = self.clone();
            tokio::spawn(async move { client.reconnect(generation).await });
        }
        result
    }

    /// A read, tried again while etcd is not available.
    pub(super) async fn range(&self, key: &[u8], options: GetOptions) -> Result<etcd_client::GetResponse, Error> {
        let mut backoff = self.backoff();
        loop {
            let Live { mut kv, generation, .. } = self.live().await;
            let error = match self.limited(Method::RANGE, kv.get(key, Some(options.clone()))).await {
                Err(error) if error.is_transient() => error,
                result => return result,
            };
            tracing::debug!(%error, "reading again");
            let waited = backoff.wait().await;
            match self.redial(generation).await {
                // It knows better what is wrong.
                Err(refused) if !waited || !refused.is_transient() => return Err(refused),
                _ if !waited => return Err(error),
                _ => {}
            }
        }
    }

    /// Whether somebody waits for the end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.shared.dialer.options().interrupted.load(Ordering::Relaxed)
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff::new(self.shared.dialer.options().interrupted)
    }

    pub(super) async fn live(&self) -> Live {
        self.shared.live.read().await.clone()
    }

    /// The channel that requests go through now, for [`Client::reconnect`].
    pub(super) async fn generation(&self) -> u64 {
        self.shared.live.read().await.generation
    }

    /// Replaces a channel that failed, beginning with the next endpoint: a member that answers may still be cut off from the
    /// others.
    pub(super) async fn reconnect(&self, failed: u64) {
        if let Err(error) = self.redial(failed).await {
            tracing::debug!(%error, "no endpoint answers");
        }
    }

    async fn redial(&self, failed: u64) -> Result<(), Error> {
        let asked = Instant::now();
        let mut live = self.shared.live.write().await;
        if live.generation != failed {
            return Ok(());
        }
        // Of many that wait, one has tried: what it found holds for all.
        if let Some((at, message)) = &live.failed
            && *at >= asked
        {
            return Err(Error::Unavailable { message: message.clone() });
        }
        let next = (live.at + 1) % self.shared.dialer.options().endpoints.len();
        match self.shared.dialer.dial(next, Leader::NotRequired).await {
            Ok((at, client)) => {
                self.same_cluster(&client).await?;
                *live = Live::new((at, client), failed + 1);
                Ok(())
            }
            Err(error) => {
                live.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Two clusters that were restored from one snapshot have the same keys at the same revisions.
    pub(super) async fn same_cluster(&self, client: &EtcdClient) -> Result<(), Error> {
        let expected = self.shared.cluster_id;
        match cluster_id(client).await {
            Some(actual) if expected.is_some_and(|expected| expected != actual) => Err(Error::OtherCluster),
            _ => Ok(()),
        }
    }

    pub(super) async fn limited<T>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Error> {
        let patience = self.shared.dialer.options().command_timeout;
        let counted = self.metrics.as_ref().map(|metrics| metrics.call(method));
        match tokio::time::timeout(patience, call).await {
            Ok(result) => {
                if let Some(counted) = counted {
                    counted.finish(result.as_ref().err());
                }
                result.map_err(|error| self.shared.dialer.error(error))
            }
            Err(_) => {
                if let Some(counted) = counted {
                    counted.finish_with("DeadlineExceeded");
                }
                Err(Error::Unavailable { message: format!("no answer within {patience:?}") })
            }
        }
    }
}

/// What identifies the cluster, where it tells.
async fn cluster_id(client: &EtcdClient) -> Option<u64> {
    let mut client = client.clone();
    let status = tokio::time::timeout(Duration::from_secs(2), client.status()).await.ok()?.ok()?;
    status.header().map(etcd_client::ResponseHeader::cluster_id)
}

/// Whether a transaction reads the key when its comparison fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GetOnFailure {
    Yes,
    No,
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
        /// What is stored now; nothing when the key is gone, or was not read.
        current: Option<StoredValue>,
    },
}

pub(super) fn kv_client(client: &EtcdClient) -> KvClient {
    client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES)
}

pub(super) fn stored_value(kv: KeyValue) -> StoredValue {
    let (create_revision, mod_revision) = (kv.create_revision(), kv.mod_revision());
    let (version, lease) = (kv.version(), kv.lease());
    let (key, value) = kv.into_key_value();
    StoredValue { key, value, create_revision, mod_revision, version, lease }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_options_prints_no_password() {
        let options = ConnectOptions {
            endpoints: vec!["127.0.0.1:2379".parse().unwrap()],
            tls: TlsOptions::default(),
            user: Some(("root".to_owned(), Password::new("hunter2".to_owned()))),
            dial_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(30),
            interrupted: &NEVER,
        };
        let text = format!("{options:?}");
        assert!(text.contains("root") && !text.contains("hunter2"), "{text}");
    }
}
