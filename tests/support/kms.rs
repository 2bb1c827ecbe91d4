//! A KMS plugin for tests: the algorithm of the vectors (`tests/vectors/README.md`), counted, and broken on demand.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrest::kms::api::{v1beta1, v2};
use atrest::secret::Key;
use atrest::transformer::{AesGcm, DataContext, Transformer as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::{Code, Request, Response, Status};
use zeroize::Zeroizing;

/// How the plugin behaves. Changed while it runs by [`TestKms::set`].
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The key that encrypts.
    pub(crate) current: String,
    /// What Status says instead of that.
    pub(crate) status_key_id: Option<String>,
    /// What Encrypt says instead of that.
    pub(crate) encrypt_key_id: Option<String>,
    pub(crate) version: String,
    pub(crate) v1_version: String,
    pub(crate) healthz: String,
    /// Before each answer.
    pub(crate) delay: Duration,
    /// Every Encrypt, Decrypt and Status fails so.
    pub(crate) fails: Option<(Code, String)>,
    /// Only Decrypt fails so.
    pub(crate) decrypt_fails: Option<(Code, String)>,
    /// Decrypt fails so when it has been called so many times.
    pub(crate) decrypt_fails_after: Option<(u64, Code, String)>,
    /// Decrypt answers other bytes than were encrypted.
    pub(crate) garbles: bool,
    /// Only Encrypt fails so.
    pub(crate) encrypt_fails: Option<(Code, String)>,
    /// So many of the next Decrypt calls fail with `RESOURCE_EXHAUSTED`.
    pub(crate) throttled: u64,
    /// An annotation more.
    pub(crate) annotation: Option<(String, Vec<u8>)>,
    /// Decrypt knows the current key only.
    pub(crate) forgets_old_keys: bool,
    pub(crate) refuses_old_keys_with: Code,
    /// The connection is closed in place of an answer, so many times.
    pub(crate) hang_ups: u64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            current: "kek-2".to_owned(),
            status_key_id: None,
            encrypt_key_id: None,
            version: "v2".to_owned(),
            v1_version: "v1beta1".to_owned(),
            healthz: "ok".to_owned(),
            delay: Duration::ZERO,
            fails: None,
            decrypt_fails: None,
            decrypt_fails_after: None,
            garbles: false,
            encrypt_fails: None,
            throttled: 0,
            annotation: None,
            forgets_old_keys: false,
            refuses_old_keys_with: Code::FailedPrecondition,
            hang_ups: 0,
        }
    }
}

/// How often each method was called.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) status: AtomicU64,
    pub(crate) encrypt: AtomicU64,
    pub(crate) decrypt: AtomicU64,
    pub(crate) v1_version: AtomicU64,
    pub(crate) v1_encrypt: AtomicU64,
    pub(crate) v1_decrypt: AtomicU64,
    under_way: AtomicU64,
    pub(crate) most_at_once: AtomicU64,
}

/// A running plugin. Dropping it stops it and removes its socket.
#[derive(Debug)]
pub(crate) struct TestKms {
    socket: PathBuf,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Removed when it is dropped.
    dir: Option<tempfile::TempDir>,
}

#[derive(Debug, Default)]
struct Shared {
    behaviour: Mutex<Behaviour>,
    calls: Calls,
    authorities: Mutex<Vec<String>>,
}

impl TestKms {
    /// A plugin on a socket of its own, which reports `kek-2`.
    pub(crate) fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("atrest-kms-").tempdir().expect("a temporary folder");
        let socket = dir.path().join("kms.sock");
        let mut kms = Self::start_at(&socket);
        kms.dir = Some(dir);
        kms
    }

    /// A plugin on that socket; a path that begins with `@` is a name of the abstract namespace.
    pub(crate) fn start_at(socket: &Path) -> Self {
        let shared = Arc::new(Shared::default());
        let mut kms = Self { socket: socket.to_owned(), shared, stop: None, thread: None, dir: None };
        kms.resume();
        kms
    }

    /// What `endpoint:` of the configuration names.
    pub(crate) fn endpoint(&self) -> String {
        let prefix = if self.socket.as_os_str().as_bytes().starts_with(b"@") { "unix:///" } else { "unix://" };
        format!("{prefix}{}", self.socket.display())
    }

    /// A configuration of the vectors, or of the tests, with this plugin's socket in it.
    pub(crate) fn in_config(&self, text: &str) -> String {
        let sockets = ["unix:///run/kms-test.sock", "unix:///nobody/listens.sock"];
        sockets.into_iter().fold(text.to_owned(), |text, socket| text.replace(socket, &self.endpoint()))
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.shared.calls
    }

    /// How often (v2 Status, v2 Encrypt, v2 Decrypt, v1 Encrypt, v1 Decrypt) were called.
    pub(crate) fn counts(&self) -> [u64; 5] {
        let Calls { status, encrypt, decrypt, v1_encrypt, v1_decrypt, .. } = &self.shared.calls;
        [status, encrypt, decrypt, v1_encrypt, v1_decrypt].map(|count| count.load(Ordering::SeqCst))
    }

    /// The `:authority` of each request so far.
    pub(crate) fn authorities(&self) -> Vec<String> {
        self.shared.authorities.lock().expect("no panic").clone()
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.behaviour.lock().expect("no panic"));
    }

    /// Stops it, as a crash would: connections are closed.
    pub(crate) fn pause(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the plugin did not panic");
        }
        // A socket of the abstract namespace has no file.
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Starts it again, on the same socket.
    pub(crate) fn resume(&mut self) {
        let listener = listen(&self.socket);
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        self.stop = Some(stop);
        self.thread = Some(std::thread::spawn(serve));
    }
}

impl Drop for TestKms {
    fn drop(&mut self) {
        self.pause();
    }
}

fn listen(socket: &Path) -> StdListener {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;
    let listener = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => StdListener::bind_addr(&SocketAddr::from_abstract_name(name).expect("a name")),
        None => StdListener::bind(socket),
    };
    let listener = listener.expect("a socket");
    listener.set_nonblocking(true).expect("a socket that does not block");
    listener
}

async fn serve(listener: StdListener, shared: Arc<Shared>) {
    let listener = UnixListener::from_std(listener).expect("a listener");
    let incoming = futures::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let incoming =
        Box::pin(incoming) as std::pin::Pin<Box<dyn futures::Stream<Item = std::io::Result<UnixStream>> + Send>>;
    let v2 = v2::key_management_service_server::KeyManagementServiceServer::new(Service(Arc::clone(&shared)));
    let v1 = v1beta1::key_management_service_server::KeyManagementServiceServer::new(Service(Arc::clone(&shared)));
    let seen = Arc::clone(&shared);
    let look = move |request: http::Request<tonic::body::Body>| {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        seen.authorities.lock().expect("no panic").push(authority);
        request
    };
    let layer = Look(Arc::new(look));
    let server = tonic::transport::Server::builder().layer(layer).add_service(v2).add_service(v1);
    server.serve_with_incoming(incoming).await.expect("the plugin serves");
}

/// Shows each request to a function.
struct Look<F>(Arc<F>);

impl<F> Clone for Look<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, F> tower_layer::Layer<S> for Look<F> {
    type Service = Looked<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Looked { inner, look: Arc::clone(&self.0) }
    }
}

struct Looked<S, F> {
    inner: S,
    look: Arc<F>,
}

impl<S: Clone, F> Clone for Looked<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), look: Arc::clone(&self.look) }
    }
}

impl<S, F> tower_service::Service<http::Request<tonic::body::Body>> for Looked<S, F>
where
    S: tower_service::Service<http::Request<tonic::body::Body>>,
    F: Fn(http::Request<tonic::body::Body>) -> http::Request<tonic::body::Body>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> S::Future {
        self.inner.call((self.look)(request))
    }
}

struct Service(Arc<Shared>);

/// The key-encryption keys of the vectors.
fn kek(key_id: &str) -> Result<AesGcm, Status> {
    let hex = match key_id {
        "kek-1" => "6b656b2d31206578616d706c65206b65792075736564206279207465737473ff",
        "kek-2" => "6b656b2d32206578616d706c65206b65792075736564206279207465737473fe",
        other => return Err(Status::unknown(format!("unknown key id {other:?}"))),
    };
    let bytes = hex::decode(hex).expect("hexadecimal digits");
    AesGcm::new(&Key::new(Zeroizing::new(bytes))).map_err(|error| Status::internal(error.to_string()))
}

fn wrap(key_id: &str, plaintext: &[u8]) -> Result<Vec<u8>, Status> {
    let mut out = Vec::new();
    let context = DataContext::new(key_id.as_bytes());
    kek(key_id)?
        .transform_to_storage(plaintext, context, &mut out)
        .map_err(|error| Status::internal(error.to_string()))?;
    Ok(out)
}

fn unwrap(key_id: &str, ciphertext: &[u8]) -> Result<Vec<u8>, Status> {
    let context = DataContext::new(key_id.as_bytes());
    let opened = kek(key_id)?.transform_from_storage(ciphertext, context);
    opened.map(|opened| opened.data.to_vec()).map_err(|_| Status::unknown("cipher: message authentication failed"))
}

fn garbled(mut plaintext: Vec<u8>, garbles: bool) -> Vec<u8> {
    if garbles {
        plaintext.reverse();
    }
    plaintext
}

impl Service {
    /// What every call begins with.
    async fn begin(&self, count: &AtomicU64) -> Result<(Behaviour, UnderWay<'_>), Status> {
        count.fetch_add(1, Ordering::SeqCst);
        let now = self.0.calls.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.calls.most_at_once.fetch_max(now, Ordering::SeqCst);
        let under_way = UnderWay(&self.0.calls.under_way);
        let behaviour = {
            let mut behaviour = self.0.behaviour.lock().expect("no panic");
            if behaviour.hang_ups > 0 {
                behaviour.hang_ups -= 1;
                // tonic has no way to hang up, and this is what a broken connection looks like to a client.
                return Err(Status::unavailable("hung up"));
            }
            behaviour.clone()
        };
        tokio::time::sleep(behaviour.delay).await;
        match behaviour.fails.clone() {
            Some((code, message)) => Err(Status::new(code, message)),
            None => Ok((behaviour, under_way)),
        }
    }

    fn throttle(&self) -> Result<(), Status> {
        let mut behaviour = self.0.behaviour.lock().expect("no panic");
        let calls = &self.0.calls;
        let called = calls.decrypt.load(Ordering::SeqCst) + calls.v1_decrypt.load(Ordering::SeqCst);
        if let Some((_, code, message)) = behaviour.decrypt_fails_after.as_ref().filter(|(after, ..)| called > *after) {
            return Err(Status::new(*code, message));
        }
        if behaviour.throttled == 0 {
            return Ok(());
        }
        behaviour.throttled -= 1;
        Err(Status::resource_exhausted("slow down"))
    }
}

struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl v2::key_management_service_server::KeyManagementService for Service {
    async fn status(&self, _: Request<v2::StatusRequest>) -> Result<Response<v2::StatusResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.status).await?;
        let Behaviour { current, status_key_id, version, healthz, .. } = behaviour;
        Ok(Response::new(v2::StatusResponse { version, healthz, key_id: status_key_id.unwrap_or(current) }))
    }

    async fn encrypt(&self, request: Request<v2::EncryptRequest>) -> Result<Response<v2::EncryptResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.encrypt).await?;
        if let Some((code, message)) = behaviour.encrypt_fails {
            return Err(Status::new(code, message));
        }
        let request = request.into_inner();
        if request.uid.is_empty() {
            return Err(Status::invalid_argument("no uid"));
        }
        let ciphertext = wrap(&behaviour.current, &request.plaintext)?;
        let mut annotations = BTreeMap::from([("alg.kms.example.com".to_owned(), b"aes-256-gcm".to_vec())]);
        annotations.extend(behaviour.annotation);
        let key_id = behaviour.encrypt_key_id.unwrap_or(behaviour.current);
        Ok(Response::new(v2::EncryptResponse { ciphertext, key_id, annotations }))
    }

    async fn decrypt(&self, request: Request<v2::DecryptRequest>) -> Result<Response<v2::DecryptResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.decrypt).await?;
        self.throttle()?;
        if let Some((code, message)) = behaviour.decrypt_fails {
            return Err(Status::new(code, message));
        }
        let request = request.into_inner();
        if request.uid.is_empty() {
            return Err(Status::invalid_argument("no uid"));
        }
        if behaviour.forgets_old_keys && request.key_id != behaviour.current {
            return Err(Status::new(behaviour.refuses_old_keys_with, "the key is gone"));
        }
        let plaintext = garbled(unwrap(&request.key_id, &request.ciphertext)?, behaviour.garbles);
        Ok(Response::new(v2::DecryptResponse { plaintext }))
    }
}

#[tonic::async_trait]
impl v1beta1::key_management_service_server::KeyManagementService for Service {
    async fn version(&self, _: Request<v1beta1::VersionRequest>) -> Result<Response<v1beta1::VersionResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.v1_version).await?;
        Ok(Response::new(v1beta1::VersionResponse {
            version: behaviour.v1_version,
            runtime_name: "test".to_owned(),
            runtime_version: "1".to_owned(),
        }))
    }

    async fn encrypt(
        &self,
        request: Request<v1beta1::EncryptRequest>,
    ) -> Result<Response<v1beta1::EncryptResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.v1_encrypt).await?;
        if let Some((code, message)) = behaviour.encrypt_fails {
            return Err(Status::new(code, message));
        }
        let wrapped = wrap(&behaviour.current, &request.into_inner().plain)?;
        let cipher = [behaviour.current.as_bytes(), b"\0", &wrapped].concat();
        Ok(Response::new(v1beta1::EncryptResponse { cipher }))
    }

    async fn decrypt(
        &self,
        request: Request<v1beta1::DecryptRequest>,
    ) -> Result<Response<v1beta1::DecryptResponse>, Status> {
        let (behaviour, _under_way) = self.begin(&self.0.calls.v1_decrypt).await?;
        self.throttle()?;
        if let Some((code, message)) = behaviour.decrypt_fails {
            return Err(Status::new(code, message));
        }
        let cipher = request.into_inner().cipher;
        let no_key_id = || Status::unknown("no key id");
        let at = cipher.iter().position(|byte| *byte == 0).ok_or_else(no_key_id)?;
        let (key_id, wrapped) = cipher.split_at(at);
        let key_id = std::str::from_utf8(key_id).map_err(|_| no_key_id())?;
        if behaviour.forgets_old_keys && key_id != behaviour.current {
            return Err(Status::new(behaviour.refuses_old_keys_with, "the key is gone"));
        }
        let plain = garbled(unwrap(key_id, wrapped.strip_prefix(b"\0").unwrap_or_default())?, behaviour.garbles);
        Ok(Response::new(v1beta1::DecryptResponse { plain }))
    }
}
