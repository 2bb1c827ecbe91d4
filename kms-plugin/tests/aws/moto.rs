//! A `moto_server` of one's own, and credentials for it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::aws::{Aws, Options};
use aws_sdk_kms::Client;
use aws_sdk_kms::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_kms::types::KeyMetadata;

use crate::support::{free_port, install, own_process};

pub(crate) const REGION: &str = "eu-central-1";

/// Runs an async test in a process whose environment has credentials, and none of the machine's.
pub(crate) fn test<F: Future<Output = ()>>(name: &str, body: impl FnOnce() -> F) {
    with_environment(name, &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")], body);
}

/// The same with other variables.
pub(crate) fn with_environment<F: Future<Output = ()>>(
    name: &str,
    more: &[(&'static str, &str)],
    body: impl FnOnce() -> F,
) {
    let variables = || {
        let own = [
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_CONFIG_FILE", "/dev/null"),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ];
        own.iter().chain(more).map(|(name, value)| (*name, value.into())).collect()
    };
    own_process::run(name, variables, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(body());
    });
}

pub(crate) struct Moto {
    server: Child,
    port: u16,
    /// The administrator's.
    pub(crate) kms: Client,
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.server.kill().expect("it can be killed");
        self.server.wait().expect("it ends");
    }
}

impl Moto {
    pub(crate) async fn start() -> Self {
        let port = free_port();
        let mut command = Command::new(install::find("ATREST_MOTO_SERVER", &["moto/bin/moto_server"]));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let config = aws_sdk_kms::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(Credentials::new("admin", "admin", None, None, "test"))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .build();
        let moto = Self { server: server.expect("moto_server starts"), port, kms: Client::from_conf(config) };
        let start = Instant::now();
        while moto.kms.list_keys().send().await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(90), "moto does not get ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        moto
    }

    /// Can be reached at another port too from now on.
    pub(crate) async fn forward(&self, port: u16) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
        let to = self.port;
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(("127.0.0.1", to)).await.expect("moto answers");
                    // How it ends is for the client to tell.
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                });
            }
        });
    }

    pub(crate) async fn make_key(&self) -> KeyMetadata {
        self.kms.create_key().send().await.expect("a key").key_metadata.expect("it is described")
    }

    pub(crate) async fn make_key_arn(&self) -> String {
        self.make_key().await.arn.expect("it has one")
    }

    pub(crate) fn options(&self, key: &str) -> Options {
        options(&format!("http://127.0.0.1:{}", self.port), key)
    }

    pub(crate) fn open(&self, key: &str) -> Aws {
        Aws::open(&self.options(key)).expect("the options are right")
    }

    /// By a name that has to mean that key.
    pub(crate) fn open_pinned(&self, key: &str, arn: &str) -> Aws {
        Aws::open(&pinned(self.options(key), arn)).expect("the options are right")
    }
}

pub(crate) fn pinned(options: Options, arn: &str) -> Options {
    Options { aws_pinned_key_arn: Some(arn.to_owned()), ..options }
}

pub(crate) fn options(endpoint: &str, key: &str) -> Options {
    Options {
        aws_key_id: Some(key.to_owned()),
        aws_pinned_key_arn: None,
        aws_decrypt_key_id: Vec::new(),
        aws_region: Some(REGION.to_owned()),
        aws_endpoint_url: Some(endpoint.to_owned()),
        aws_encryption_context: Vec::new(),
        // A loaded machine, and a server in Python.
        aws_attempt_timeout: Duration::from_secs(20),
        aws_timeout: Duration::from_secs(30),
    }
}
