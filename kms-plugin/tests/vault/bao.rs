//! A `bao server` of one's own, in memory, with a transit engine and AppRole.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::Wrapped;
use atrest_kms_plugin::backend::vault::{Options, Vault};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{free_port, install};

const ROOT: &str = "root-token-of-the-tests";

/// What the documentation says that the policy needs.
const POLICY: &str = r#"
path "transit/keys/+" { capabilities = ["read"] }
path "transit/encrypt/+" { capabilities = ["update"] }
path "transit/decrypt/+" { capabilities = ["update"] }
"#;

pub(crate) struct Bao {
    server: Child,
    port: u16,
    dir: tempfile::TempDir,
    unseal_key: String,
    http: reqwest::Client,
    scheme: &'static str,
}

impl Drop for Bao {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Bao {
    pub(crate) async fn start() -> Self {
        Self::start_at(free_port()).await
    }

    pub(crate) async fn start_at(port: u16) -> Self {
        Self::start_with(port, false).await
    }

    /// With TLS: the certificate's authority is in `ca_file`.
    pub(crate) async fn start_with_tls() -> Self {
        Self::start_with(free_port(), true).await
    }

    async fn start_with(port: u16, tls: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let program = install::find("ATREST_BAO", &["openbao-2.7.2/bao"]);
        let mut command = Command::new(program);
        command.args(["server", "-dev", "-dev-no-store-token"]);
        command.arg(format!("-dev-root-token-id={ROOT}")).arg(format!("-dev-listen-address=127.0.0.1:{port}"));
        if tls {
            command.arg("-dev-tls").arg(format!("-dev-tls-cert-dir={}", dir.path().display()));
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).env("HOME", dir.path());
        let mut server = command.spawn().expect("bao starts");
        let stdout = BufReader::new(server.stdout.take().expect("it is piped"));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // To the end, so that the server never waits for a reader.
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(key) = line.trim().strip_prefix("Unseal Key: ") {
                    drop(sender.send(key.to_owned()));
                }
            }
        });
        let unseal_key = receiver.recv_timeout(Duration::from_secs(60)).expect("bao tells its unseal key");
        let ca = |pem: Vec<u8>| reqwest::Certificate::from_pem_bundle(&pem).expect("certificates");
        let mut builder = reqwest::Client::builder();
        if tls {
            builder = builder.tls_certs_only(ca(std::fs::read(dir.path().join("vault-ca.pem")).expect("a file")));
        }
        let scheme = if tls { "https" } else { "http" };
        let http = builder.no_proxy().build().expect("a client");
        let bao = Self { server, port, dir, unseal_key, http, scheme };
        let start = Instant::now();
        while !bao.is_active().await {
            assert!(start.elapsed() < Duration::from_secs(60), "bao does not get ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bao.post("sys/mounts/transit", json!({ "type": "transit" })).await;
        bao.post("sys/auth/approle", json!({ "type": "approle" })).await;
        bao.post("sys/policies/acl/kms", json!({ "policy": POLICY })).await;
        bao
    }

    async fn is_active(&self) -> bool {
        let health = self.http.get(format!("{}/v1/sys/health", self.address())).send().await;
        health.is_ok_and(|health| health.status() == 200)
    }

    /// Kills it; what it knew is gone.
    pub(crate) fn stop(&mut self) {
        self.server.kill().expect("it can be killed");
        self.server.wait().expect("it ends");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.dir.path().join("vault-ca.pem")
    }

    /// A request of the administrator, which succeeds.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.http.request(method, format!("{}/v1/{path}", self.address()));
        request = request.header("x-vault-token", ROOT);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("bao answers");
        let status = answer.status();
        let text = answer.text().await.expect("bao answers");
        assert!(status.is_success(), "{path}: {status}: {text}");
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.admin(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn make_key(&self, name: &str) {
        self.post(&format!("transit/keys/{name}"), json!({ "type": "aes256-gcm96" })).await;
    }

    pub(crate) async fn rotate(&self, name: &str) {
        self.post(&format!("transit/keys/{name}/rotate"), json!({})).await;
    }

    pub(crate) async fn configure(&self, name: &str, configuration: Value) {
        self.post(&format!("transit/keys/{name}/config"), configuration).await;
    }

    pub(crate) async fn delete_key(&self, name: &str) {
        self.configure(name, json!({ "deletion_allowed": true })).await;
        self.admin(Method::DELETE, &format!("transit/keys/{name}"), None).await;
    }

    pub(crate) async fn move_mount(&self, from: &str, to: &str) {
        let answer = self.post("sys/remount", json!({ "from": from, "to": to })).await;
        let status = format!("sys/remount/status/{}", answer["data"]["migration_id"].as_str().expect("an ID"));
        let start = Instant::now();
        while self.admin(Method::GET, &status, None).await["data"]["migration_info"]["status"] != "success" {
            assert!(start.elapsed() < Duration::from_secs(60), "the engine does not move");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn seal(&self) {
        self.post("sys/seal", json!({})).await;
    }

    pub(crate) async fn unseal(&self) {
        self.post("sys/unseal", json!({ "key": self.unseal_key })).await;
        let start = Instant::now();
        while !self.is_active().await {
            assert!(start.elapsed() < Duration::from_secs(60), "bao does not get ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many tokens there are, the root's among them.
    pub(crate) async fn tokens(&self) -> Vec<String> {
        let list = Method::from_bytes(b"LIST").expect("a method");
        let answer = self.admin(list, "auth/token/accessors", None).await;
        let mut keys: Vec<String> = serde_json::from_value(answer["data"]["keys"].clone()).expect("a list");
        keys.sort();
        keys
    }

    /// A token with our policy.
    pub(crate) async fn make_token(&self, more: Value) -> String {
        let mut body = json!({ "policies": ["kms"] });
        body.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
        let answer = self.post("auth/token/create", body).await;
        answer["auth"]["client_token"].as_str().expect("a token").to_owned()
    }

    pub(crate) async fn revoke(&self, token: &str) {
        self.post("auth/token/revoke", json!({ "token": token })).await;
    }

    /// Writes a file as an agent does: whole, or not at all.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.dir.path().join(name);
        let temporary = file.with_extension("new");
        std::fs::write(&temporary, format!("{text}\n")).expect("a file");
        std::fs::rename(&temporary, &file).expect("it can be renamed");
        file
    }

    /// Options with the root token: for tests of what is not the login.
    pub(crate) fn options(&self, key: &str) -> Options {
        let token_file = self.file("token", ROOT);
        Options { vault_token_file: Some(token_file), ..options(&self.address(), key) }
    }

    pub(crate) fn open(&self, key: &str) -> Vault {
        Vault::open(&self.options(key)).expect("the options are right")
    }

    /// Options with a role whose tokens live so long.
    pub(crate) async fn options_with_role(&self, key: &str, ttl: &str, max_ttl: &str) -> Options {
        let role = json!({ "token_policies": ["kms"], "token_ttl": ttl, "token_max_ttl": max_ttl });
        self.post("auth/approle/role/plugin", role).await;
        let id = self.admin(Method::GET, "auth/approle/role/plugin/role-id", None).await;
        let role_id = id["data"]["role_id"].as_str().expect("an ID").to_owned();
        let secret_id_file = self.file("secret-id", &self.make_secret_id().await);
        Options {
            vault_role_id: Some(role_id),
            vault_secret_id_file: Some(secret_id_file),
            ..options(&self.address(), key)
        }
    }

    pub(crate) async fn make_secret_id(&self) -> String {
        let secret = self.post("auth/approle/role/plugin/secret-id", json!({})).await;
        secret["data"]["secret_id"].as_str().expect("an ID").to_owned()
    }
}

/// Options without a login.
pub(crate) fn options(address: &str, key: &str) -> Options {
    Options {
        vault_addr: Some(address.to_owned()),
        vault_namespace: None,
        vault_ca_file: None,
        vault_mount: "transit".to_owned(),
        vault_key: Some(key.to_owned()),
        vault_decrypt_key: Vec::new(),
        vault_token_file: None,
        vault_role_id: None,
        vault_secret_id_file: None,
        vault_approle_mount: "approle".to_owned(),
        vault_connect_timeout: Duration::from_secs(5),
        // A loaded machine.
        vault_timeout: Duration::from_secs(20),
    }
}

pub(crate) fn with_key_id(wrapped: &Wrapped, key_id: &str) -> Wrapped {
    Wrapped { key_id: key_id.to_owned(), ..wrapped.clone() }
}
