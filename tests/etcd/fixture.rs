//! What these tests share: configurations, objects, and the program run against a real etcd.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use atrest::config;
use atrest::kms::{self, Kms};
use atrest::rekey::{self, Execution};
use atrest::report::{NoProgress, RekeyReport, VerifyReport, VerifyRow};
use atrest::resource::{GroupResource, KeyLayout, Location, Selection};
use atrest::storage::{Client, ConnectOptions, Ranges, RewrapOptions, TlsOptions};
use atrest::transformer::{DataContext, ResourceTransformers};
use atrest::verify::{self, RemovableKey};
use sha2::{Digest as _, Sha256};

use crate::support::{Etcd, KeyValue, vector};

pub(crate) const LOCAL: &str = "snapshots/local.db.gz";
pub(crate) const DAMAGED: &str = "snapshots/damaged.db.gz";
pub(crate) const LOCAL_CONFIG: &str = "snapshots/encryption-config-local.yaml";
pub(crate) const KMS_CONFIG: &str = "snapshots/encryption-config.yaml";

/// 32 bytes of 1, of 2 and of 3.
pub(crate) const K1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
pub(crate) const K2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
pub(crate) const K3: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";

/// A configuration with one entry. A provider is `identity`, `aescbc key1 SECRET`, or `kms v2 NAME`.
pub(crate) fn config(resources: &str, providers: &[&str]) -> String {
    config_of(&[(resources, providers)])
}

/// A configuration with several entries.
pub(crate) fn config_of(entries: &[(&str, &[&str])]) -> String {
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
    for (resources, providers) in entries {
        text += &format!("- resources: [{resources}]\n  providers:\n");
        for provider in *providers {
            text += &match provider.split(' ').collect::<Vec<_>>()[..] {
                ["kms", version, name] => format!(
                    "  - kms: {{apiVersion: {version}, name: {name}, endpoint: 'unix:///nobody/listens.sock'}}\n"
                ),
                [kind, name, secret] => {
                    format!("  - {kind}:\n      keys:\n      - {{name: {name:?}, secret: {secret}}}\n")
                }
                _ => format!("  - {provider}: {{}}\n"),
            };
        }
    }
    text
}

pub(crate) fn transformers(text: &str) -> Arc<ResourceTransformers> {
    let loaded = config::load(text.as_bytes(), &config::Options::default()).expect("the configuration is good");
    Arc::new(ResourceTransformers::from_configurations(&[loaded.config]).expect("the keys are good"))
}

pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(vector(name)).expect("the vector is there")
}

/// A Secret as an API server may store it.
pub(crate) fn secret(namespace: &str, name: &str, password: &str) -> Vec<u8> {
    object("Secret", namespace, name, password)
}

/// An object of the core group as an API server may store it.
pub(crate) fn object(kind: &str, namespace: &str, name: &str, text: &str) -> Vec<u8> {
    let object = serde_json::json!({
        "kind": kind, "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": null},
        "data": {"password": text},
    });
    serde_json::to_vec(&object).expect("it is JSON")
}

pub(crate) fn secret_key(namespace: &str, name: &str) -> String {
    format!("/registry/secrets/{namespace}/{name}")
}

/// Seals a plaintext as an API server with this configuration would.
pub(crate) fn sealed(transformers: &ResourceTransformers, key: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let (group, resource) = resource_of(key);
    let mut out = Vec::new();
    let list = transformers.transformer_for_resource(&group, &resource);
    list.seal(plaintext, DataContext::new(key), &mut out).expect("it can be sealed");
    out
}

/// Opens a value as an API server with this configuration would: the plaintext, and whether it is stale.
pub(crate) fn opened(transformers: &ResourceTransformers, key: &[u8], value: &[u8]) -> (Vec<u8>, bool) {
    let (group, resource) = resource_of(key);
    let list = transformers.transformer_for_resource(&group, &resource);
    let (opened, _) =
        list.open(value, DataContext::new(key)).unwrap_or_else(|error| panic!("{}: {error}", key.escape_ascii()));
    (opened.data.to_vec(), opened.stale)
}

fn resource_of(key: &[u8]) -> (String, String) {
    let layout = KeyLayout::default();
    match layout.locate(key) {
        Location::Object { resource, .. } | Location::Unknown { resource: Some(resource), .. } => {
            (resource.group.to_owned(), resource.resource.to_owned())
        }
        _ => (String::new(), "no-resource".to_owned()),
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Everything that is stored.
pub(crate) fn everything(etcd: &Etcd) -> BTreeMap<Vec<u8>, KeyValue> {
    etcd.client().get_prefix("").into_iter().map(|kv| (kv.key().to_vec(), kv)).collect()
}

/// What must not change of a value that is not rewritten.
pub(crate) fn state(kv: &KeyValue) -> (&[u8], i64, i64, i64, i64) {
    (kv.value(), kv.create_revision(), kv.mod_revision(), kv.version(), kv.lease())
}

/// Stores many values, in few transactions where they are small.
pub(crate) fn put_all(etcd: &Etcd, values: Vec<(Vec<u8>, Vec<u8>)>) {
    block_on(async {
        let mut client = etcd.client().connect().await;
        let mut operations = Vec::new();
        let mut bytes = 0;
        for (key, value) in values {
            bytes += value.len();
            operations.push(etcd_client::TxnOp::put(key, value, None));
            if operations.len() == 100 || bytes > 512 * 1024 {
                let txn = etcd_client::Txn::new().and_then(std::mem::take(&mut operations));
                client.txn(txn).await.expect("etcd takes the values");
                bytes = 0;
            }
        }
        let txn = etcd_client::Txn::new().and_then(operations);
        client.txn(txn).await.expect("etcd takes the values");
    });
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

pub(crate) async fn client(etcd: &Etcd) -> Client {
    client_with(etcd, Duration::from_secs(30)).await
}

pub(crate) async fn client_with(etcd: &Etcd, command_timeout: Duration) -> Client {
    client_of(&[etcd.endpoint()], command_timeout).await
}

/// A client of several endpoints, of which it takes the first that answers.
pub(crate) async fn client_of(endpoints: &[String], command_timeout: Duration) -> Client {
    let options = ConnectOptions {
        endpoints: endpoints.iter().map(|endpoint| endpoint.parse().expect("it is an endpoint")).collect(),
        tls: TlsOptions::default(),
        user: None,
        dial_timeout: Duration::from_secs(10),
        command_timeout,
        interrupted: &atrest::storage::NEVER,
    };
    Client::connect(options).await.expect("etcd answers")
}

pub(crate) fn everywhere() -> Selection {
    Selection::default()
}

pub(crate) fn of_resources(resources: &[&str]) -> Selection {
    let resources = resources.iter().map(|resource| GroupResource::resolve(resource)).collect();
    Selection { resources, ..Selection::default() }
}

pub(crate) fn execution(concurrency: usize) -> Execution {
    Execution { concurrency, rate: None, rewrap: RewrapOptions::default(), quota_bytes: None, journal: None }
}

pub(crate) async fn rekey_with(
    client: &Client,
    transformers: &Arc<ResourceTransformers>,
    selection: &Selection,
    execution: Execution,
) -> RekeyReport {
    // Many tests have damaged values alone under the key that writes.
    let trusted: Vec<_> = transformers.lists().map(|(_, list)| list.write_key()).collect();
    let options = rekey::Options { transformers, selection, source: "test".to_owned(), trusted: &trusted };
    let stop = AtomicBool::new(false);
    let kms = Arc::new(Kms::new(transformers, kms::Options::default()).expect("no endpoint is given"));
    rekey::execute(client, transformers, &kms, &options, execution, &NoProgress, &stop).await.expect("it can be done")
}

pub(crate) fn rekey(etcd: &Etcd, transformers: &Arc<ResourceTransformers>) -> RekeyReport {
    block_on(async { rekey_with(&client(etcd).await, transformers, &everywhere(), execution(64)).await })
}

/// The report, and each value's row.
pub(crate) fn verify(etcd: &Etcd, config: &str) -> (VerifyReport, Vec<VerifyRow>) {
    verify_removable(etcd, config, None)
}

pub(crate) fn verify_removable(etcd: &Etcd, config: &str, removable: Option<&str>) -> (VerifyReport, Vec<VerifyRow>) {
    let (transformers, selection) = (transformers(config), everywhere());
    let options = verify::Options {
        transformers: &transformers,
        selection: &selection,
        source: "test".to_owned(),
        expect_current: false,
        removable: removable.map(RemovableKey::parse),
        scope: String::new(),
        rows: verify::Rows::Every,
    };
    let mut seen = Vec::new();
    let mut rows = |row: &VerifyRow| seen.push(row.clone());
    let report = block_on(async {
        let client = client(etcd).await;
        let prefixes = selection.prefixes().expect("it selects something");
        let keys = async || Ok(Ranges::of_prefixes(&client, &prefixes).keys_only());
        let stop = AtomicBool::new(false);
        let values = Ranges::of_prefixes(&client, &prefixes);
        let kms = Kms::new(&transformers, kms::Options::default()).expect("no endpoint is given");
        verify::verify(values, keys, &kms, &options, &NoProgress, &stop, &mut rows).await.expect("etcd can be read")
    });
    (report, seen)
}

/// A place for configurations and journals, in which the program is run.
#[derive(Debug)]
pub(crate) struct Workshop(tempfile::TempDir);

impl Workshop {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("the file can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        path
    }

    /// The program, with what reaches this etcd.
    pub(crate) fn atrest(&self, etcd: &Etcd, command: &str) -> Command {
        self.atrest_with(etcd.flags(), command)
    }

    /// The program, with these flags first.
    pub(crate) fn atrest_with<F: AsRef<OsStr>>(&self, flags: impl IntoIterator<Item = F>, command: &str) -> Command {
        let mut atrest = Command::new(env!("CARGO_BIN_EXE_atrest"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD") || name == "RUST_LOG" {
                atrest.env_remove(name);
            }
        }
        atrest.current_dir(self.path()).arg(command).args(flags);
        atrest.stdin(Stdio::null());
        atrest
    }

    /// Runs it to the end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, etcd: &Etcd, command: &str, args: impl IntoIterator<Item = A>) -> Ran {
        Ran::of(self.atrest(etcd, command).args(args).output().expect("the program can be started"))
    }

    /// Runs it to the end against what serves at an endpoint.
    pub(crate) fn run_at<A: AsRef<OsStr>>(
        &self,
        endpoint: &str,
        command: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Ran {
        let mut atrest = self.atrest_with(["--endpoints", endpoint], command);
        Ran::of(atrest.args(args).output().expect("the program can be started"))
    }

    /// Starts it.
    pub(crate) fn start<A: AsRef<OsStr>>(
        &self,
        etcd: &Etcd,
        command: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Running {
        let mut atrest = self.atrest(etcd, command);
        atrest.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(atrest.spawn().expect("the program can be started"))
    }
}

/// What the program did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("it prints text"),
            stderr: String::from_utf8(output.stderr).expect("it prints text"),
        }
    }

    /// Standard output as JSON, of a run with that exit code.
    pub(crate) fn json(&self, code: i32) -> serde_json::Value {
        assert_eq!(self.code, Some(code), "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// The program while it runs. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn signal(&self, signal: &str) {
        let script = format!("kill -{signal} {}", self.0.id());
        let status = Command::new("sh").arg("-c").arg(script).status().expect("sh can be started");
        assert!(status.success(), "kill: {status}");
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it is our child");
    }

    pub(crate) fn wait(mut self) -> Ran {
        use std::io::Read as _;
        // The report fits the pipe many times, so reading one after the other does not block.
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().expect("it is piped").read_to_end(&mut stdout).expect("it can be read");
        self.0.stderr.take().expect("it is piped").read_to_end(&mut stderr).expect("it can be read");
        let status = self.0.wait().expect("it is our child");
        Ran::of(Output { status, stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails when it has ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Polls until there is something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of a journal, without a last one that is not finished.
pub(crate) fn journal(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
    whole.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}
