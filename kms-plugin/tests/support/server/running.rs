//! A server in this process, on a socket in a folder of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrest::config::Endpoint;
use atrest::kms::api::v1beta1::key_management_service_client::KeyManagementServiceClient as V1Beta1Client;
use atrest::kms::api::v2::key_management_service_client::KeyManagementServiceClient as V2Client;
use atrest_kms_plugin::backend::Backend;
use atrest_kms_plugin::serve::{Error, Handle, HealthAddress, Options, Server, Timing};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// A server, and the folder of its socket.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) path: PathBuf,
    pub(crate) handle: Handle,
    pub(crate) health: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), Error>>,
    folder: TempDir,
}

/// The URL of a socket.
pub(crate) fn endpoint(path: &Path) -> Endpoint {
    Endpoint::parse(&format!("unix://{}", path.display())).expect("an endpoint")
}

/// Options for a test: health endpoints on a free port, and probes that do not keep one waiting.
pub(crate) fn options(path: &Path) -> Options {
    let mut options = Options::new(endpoint(path));
    options.health = Some(HealthAddress::Tcp(([127, 0, 0, 1], 0).into()));
    options.timing = Timing {
        interval: Duration::from_millis(200),
        interval_after_failure: Duration::from_millis(100),
        least: Duration::from_millis(10),
        timeout: Duration::from_millis(500),
    };
    options
}

impl Running {
    pub(crate) async fn start(backend: Arc<dyn Backend>) -> Self {
        Self::start_with(backend, |_| ()).await
    }

    pub(crate) async fn start_with(backend: Arc<dyn Backend>, change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kms.sock");
        let mut options = options(&path);
        change(&mut options);
        let server = Server::bind(backend, options).await.expect("a server");
        let (handle, health) = (server.handle(), server.health_address());
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async move { _ = stopped.await }));
        Self { path, handle, health, stop: Some(stop), server, folder }
    }

    /// Until the backend was probed with success.
    pub(crate) async fn until_healthy(&self) {
        let mut condition = self.handle.condition();
        let healthy = condition.wait_for(|condition| condition.problems().next().is_none());
        tokio::time::timeout(Duration::from_secs(20), healthy).await.expect("in time").expect("a server");
    }

    /// Until something is wrong that these words are in.
    pub(crate) async fn until_problem(&self, words: &str) {
        let mut condition = self.handle.condition();
        let problem = condition.wait_for(|condition| condition.problems().any(|problem| problem.contains(words)));
        let waited = tokio::time::timeout(Duration::from_secs(20), problem).await.map(drop);
        waited.unwrap_or_else(|_| panic!("{words:?} is not in {:?}", self.handle.condition().borrow()));
    }

    /// Stops it, and says how it ended and how long that took.
    pub(crate) async fn stop(mut self) -> (Result<(), Error>, Duration) {
        let began = Instant::now();
        self.order_to_stop();
        let result = (&mut self.server).await.expect("no panic");
        (result, began.elapsed())
    }

    pub(crate) fn order_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).expect("it runs");
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        let url = format!("unix://{}", self.path.display());
        tonic::transport::Endpoint::try_from(url).expect("a URL").connect_lazy()
    }

    pub(crate) fn v2(&self) -> V2Client<Channel> {
        V2Client::new(self.channel())
    }

    pub(crate) fn v1beta1(&self) -> V1Beta1Client<Channel> {
        V1Beta1Client::new(self.channel())
    }
}
