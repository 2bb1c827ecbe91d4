//! What a test stores in etcd and finds there.

use etcd_client::{CompactionOptions, ConnectOptions, GetOptions, KvClient, LeaseTimeToLiveOptions, PutOptions};

pub(crate) use etcd_client::KeyValue;

/// A client whose methods block. They may be called in asynchronous tests too.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: String,
    user: Option<(String, String)>,
}

// Derived, it would print the password.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(endpoint: String, user: Option<(String, String)>) -> Self {
        Self { endpoint, user }
    }

    /// A connected client of etcd-client, for what has no method here.
    pub(crate) async fn connect(&self) -> etcd_client::Client {
        let options = self.user.as_ref().map(|(name, password)| ConnectOptions::new().with_user(name, password));
        etcd_client::Client::connect([&self.endpoint], options).await.expect("etcd can be reached")
    }

    /// Stores a value without a lease; answers the revision.
    pub(crate) fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> i64 {
        self.put_with_lease(key, value, 0)
    }

    /// Stores a value under a lease; answers the revision.
    pub(crate) fn put_with_lease(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> i64 {
        let (key, value) = (key.into(), value.into());
        self.run(async |client| {
            let put = client.put(key, value, Some(PutOptions::new().with_lease(lease))).await;
            put.expect("etcd takes the value").header().expect("etcd sends a header").revision()
        })
    }

    /// The value at that key now.
    pub(crate) fn get(&self, key: impl Into<Vec<u8>>) -> Option<KeyValue> {
        self.range(key.into(), GetOptions::new()).pop()
    }

    /// The value at that key at that revision.
    pub(crate) fn get_at(&self, key: impl Into<Vec<u8>>, revision: i64) -> Option<KeyValue> {
        self.range(key.into(), GetOptions::new().with_revision(revision)).pop()
    }

    /// Every key that begins so, in order; all keys for an empty prefix.
    pub(crate) fn get_prefix(&self, prefix: impl Into<Vec<u8>>) -> Vec<KeyValue> {
        let prefix = prefix.into();
        let options =
            if prefix.is_empty() { GetOptions::new().with_all_keys() } else { GetOptions::new().with_prefix() };
        self.range(prefix, options)
    }

    /// Deletes a key; answers whether it was there.
    pub(crate) fn delete(&self, key: impl Into<Vec<u8>>) -> bool {
        let key = key.into();
        self.run(async |client| client.delete(key, None).await.expect("etcd deletes").deleted() == 1)
    }

    /// The revision of the whole store.
    pub(crate) fn revision(&self) -> i64 {
        self.run(async |client| {
            let answer = client.get("\0", None).await.expect("etcd answers");
            answer.header().expect("etcd sends a header").revision()
        })
    }

    /// Whether the member leads its cluster; not when it does not answer in time.
    pub(crate) fn leads(&self, within: std::time::Duration) -> bool {
        let asked = || async {
            let mut client = etcd_client::Client::connect([&self.endpoint], None).await.ok()?;
            let status = client.status().await.ok()?;
            Some(status.leader() != 0 && status.header()?.member_id() == status.leader())
        };
        blocking(|| async { tokio::time::timeout(within, asked()).await.ok().flatten() }) == Some(true)
    }

    /// Forgets what was before that revision, and frees its pages.
    pub(crate) fn compact(&self, revision: i64) {
        self.run(async |client| {
            let options = CompactionOptions::new().with_physical();
            client.compact(revision, Some(options)).await.expect("etcd compacts");
        });
    }

    /// A new lease of so many seconds.
    pub(crate) fn grant_lease(&self, seconds: i64) -> i64 {
        self.run(async |client| client.lease_grant(seconds, None).await.expect("etcd grants a lease").id())
    }

    /// The seconds that a lease has left; -1 when it is gone.
    pub(crate) fn lease_ttl(&self, lease: i64) -> i64 {
        self.run(async |client| client.lease_time_to_live(lease, None).await.expect("etcd answers").ttl())
    }

    /// The keys under a lease.
    pub(crate) fn lease_keys(&self, lease: i64) -> Vec<Vec<u8>> {
        self.run(async |client| {
            let options = LeaseTimeToLiveOptions::new().with_keys();
            client.lease_time_to_live(lease, Some(options)).await.expect("etcd answers").keys().to_vec()
        })
    }

    /// All leases.
    pub(crate) fn leases(&self) -> Vec<i64> {
        self.run(async |client| {
            client.leases().await.expect("etcd answers").leases().iter().map(etcd_client::LeaseStatus::id).collect()
        })
    }

    /// What `etcdctl snapshot save` would write.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.run(async |client| {
            let mut stream = client.snapshot().await.expect("etcd sends a snapshot");
            let mut bytes = Vec::new();
            while let Some(part) = stream.message().await.expect("etcd sends a snapshot") {
                bytes.extend_from_slice(part.blob());
            }
            bytes
        })
    }

    /// Makes the user `root` and enables authentication.
    pub(super) fn enable_auth(&self, root_password: &str) {
        self.run(async |client| {
            client.user_add("root", root_password, None).await.expect("etcd takes the user");
            client.role_add("root").await.expect("etcd takes the role");
            client.user_grant_role("root", "root").await.expect("etcd grants the role");
            client.auth_enable().await.expect("etcd enables authentication");
        });
    }

    fn range(&self, key: Vec<u8>, options: GetOptions) -> Vec<KeyValue> {
        self.run(async |client| {
            let mut kv: KvClient = client.kv_client().max_decoding_message_size(usize::MAX);
            kv.get(key, Some(options)).await.expect("etcd answers").take_kvs()
        })
    }

    fn run<T: Send>(&self, act: impl AsyncFnOnce(&mut etcd_client::Client) -> T + Send) -> T {
        blocking(|| async { act(&mut self.connect().await).await })
    }
}

/// On a thread of its own, since a thread that runs asynchronous code may not block on more of it.
fn blocking<T: Send, F: Future<Output = T>>(act: impl FnOnce() -> F + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(act())
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
