//! The program: how it starts, what signals do, what it says, and how it ends.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use atrest::kms::api::v2::{DecryptRequest, EncryptRequest, EncryptResponse, StatusRequest};
use base64::Engine as _;
use rustix::process::Signal;
use tonic::Code;

use crate::support::{Plugin, Site};

const SEED: &[u8] = b"a seed of 32 bytes, to be hidden";

async fn encrypt(plugin: &Plugin) -> EncryptResponse {
    let request = EncryptRequest { plaintext: SEED.to_vec(), uid: "uid-of-encrypt".to_owned() };
    plugin.client().encrypt(request).await.unwrap().into_inner()
}

async fn decrypt(plugin: &Plugin, answer: EncryptResponse) -> Vec<u8> {
    let EncryptResponse { ciphertext, key_id, annotations } = answer;
    let request = DecryptRequest { ciphertext, uid: "uid-of-decrypt".to_owned(), key_id, annotations };
    std::mem::take(&mut plugin.client().decrypt(request).await.unwrap().into_inner().plaintext)
}

#[tokio::test]
async fn a_killed_plugin_is_replaced_at_once_and_nothing_is_lost() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let answer = encrypt(&plugin).await;
    let mut client = plugin.client();
    client.status(StatusRequest {}).await.unwrap();
    plugin.signal(Signal::KILL);
    assert_eq!(plugin.end().0.signal(), Some(9));
    assert!(site.socket().exists(), "a killed process removes nothing");

    let plugin = site.start(&mut site.serve());
    let time = plugin.until_healthy().await;
    // The load test prints what a release takes, which is to be less than a second.
    assert!(time < Duration::from_secs(3), "{time:?}");
    assert_eq!(decrypt(&plugin, answer).await, SEED);
    assert_eq!(client.status(StatusRequest {}).await.unwrap().into_inner().healthz, "ok", "a client finds the new one");
}

#[tokio::test]
async fn sigterm_and_sigint_end_it_in_good_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = Site::new();
        let plugin = site.start_healthy().await;
        plugin.signal(signal);
        let (status, stdout, log) = plugin.end();
        assert_eq!((status.code(), stdout.as_str()), (Some(0), ""), "{log}");
        assert!(log.contains("stopping") && log.trim_end().ends_with("stopped"), "{log}");
        assert!(!site.socket().exists() && !site.at("health.sock").exists());
    }
}

#[tokio::test]
async fn a_rotation_is_served_at_once_and_sighup_reads_the_keys_again() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let before = encrypt(&plugin).await;
    assert!(site.keyring("rotate").status.success());
    let status = plugin.client().status(StatusRequest {}).await.unwrap().into_inner();
    let after = encrypt(&plugin).await;
    assert_ne!(after.key_id, before.key_id);
    assert_eq!((status.healthz.as_str(), status.key_id), ("ok", after.key_id.clone()));
    assert_eq!(decrypt(&plugin, before).await, SEED);
    plugin.signal(Signal::HUP);
    plugin.until_logged("SIGHUP: the keys were read again").await;
    std::fs::write(site.at("keyring"), "{}").unwrap();
    plugin.signal(Signal::HUP);
    plugin.until_logged("SIGHUP: the keys could not be read again, and stay as they were").await;
    assert_eq!(decrypt(&plugin, after).await, SEED);
}

#[tokio::test]
async fn the_service_manager_is_told_what_happens() {
    let site = Site::new();
    let manager = UnixDatagram::bind(site.at("notify.sock")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let until = |wanted: &str| {
        let mut buffer = [0; 1024];
        loop {
            let len = manager.recv(&mut buffer).unwrap_or_else(|error| panic!("{wanted}: {error}"));
            let message = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if message.contains(wanted) {
                return message;
            }
        }
    };
    let plugin = site.start(site.serve().env("NOTIFY_SOCKET", site.at("notify.sock")));
    until("READY=1");
    until("STATUS=Healthy, encrypting by sha256:");
    plugin.until_healthy().await;
    plugin.signal(Signal::HUP);
    let reloading = until("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    until("READY=1");
    std::fs::remove_file(site.socket()).unwrap();
    std::fs::write(site.socket(), "").unwrap();
    until("STATUS=Not healthy: ");
    plugin.signal(Signal::TERM);
    until("STOPPING=1");
    assert_eq!(plugin.end().0.code(), Some(0));
}

#[test]
fn what_is_wrong_at_the_start_is_said_with_a_hint() {
    let site = Site::new();
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap();
    let path = |name: &str| site.at(name).display().to_string();
    std::fs::write(site.at("file"), "").unwrap();
    let cases = [
        (
            (format!("unix://{}", path("kms.sock")), address.to_string()),
            2,
            format!("cannot listen on {address} for health checks: Address already in use (os error 98)"),
            "choose another address by --health, or turn the health endpoints off: --health none".to_owned(),
        ),
        (
            (format!("unix://{}", path("file")), "none".to_owned()),
            2,
            format!("{} is a file, and no socket", path("file")),
            format!("choose another path by --listen, or remove {} yourself", path("file")),
        ),
        (
            (format!("unix://{}/kms.sock", path("nowhere")), "none".to_owned()),
            3,
            format!("cannot open {}: No such file or directory (os error 2)", path("nowhere")),
            "create the folder first; systemd does so by RuntimeDirectory=".to_owned(),
        ),
        (
            ("unix:kms.sock".to_owned(), "none".to_owned()),
            2,
            "unix:kms.sock names no socket".to_owned(),
            "write three slashes: unix:///run/atrest-kms/kms.sock".to_owned(),
        ),
    ];
    for ((listen, health), code, error, hint) in cases {
        let output = site.serve_at(&listen, &health).env("RUST_LOG", "error").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, format!("atrest-kms-plugin: error: {error}\natrest-kms-plugin: hint: {hint}\n"));
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(code), &b""[..]), "{listen} {health}");
    }
}

#[tokio::test]
async fn logs_hold_no_secret_and_no_key_id() {
    let site = Site::new();
    let mut serve = site.serve();
    serve.args(["-vv", "--log-format", "json"]);
    let plugin = site.start(&mut serve);
    plugin.until_healthy().await;
    let answer = encrypt(&plugin).await;
    let key_id = answer.key_id.clone();
    let wrong = EncryptResponse { ciphertext: vec![7; 60], ..answer.clone() };
    let EncryptResponse { ciphertext, key_id: _, annotations } = wrong;
    let request = DecryptRequest { ciphertext, uid: "u\n\"1".to_owned(), key_id: key_id.clone(), annotations };
    plugin.client().decrypt(request).await.unwrap_err();
    let unknown = DecryptRequest { ciphertext: vec![7; 60], key_id: "no-such-key".to_owned(), ..Default::default() };
    plugin.client().decrypt(unknown).await.unwrap_err();
    assert_eq!(decrypt(&plugin, answer).await, SEED);
    plugin.until_logged("uid-of-decrypt").await;
    plugin.signal(Signal::TERM);
    let (_, _, log) = plugin.end();
    for line in log.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(value["timestamp"].is_string() && value["level"].is_string(), "{line}");
    }
    let keyring = std::fs::read_to_string(site.at("keyring")).unwrap();
    let keyring: serde_json::Value = serde_json::from_str(&keyring).unwrap();
    let mut secrets = vec![
        String::from_utf8(SEED.to_vec()).unwrap(),
        hex::encode(SEED),
        base64::engine::general_purpose::STANDARD.encode(SEED),
        format!("{SEED:?}"),
        key_id,
        "no-such-key".to_owned(),
    ];
    collect_long_strings(&keyring, &mut secrets);
    assert!(secrets.len() > 6, "the keyring holds a key: {keyring}");
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret} is in\n{log}");
    }
    assert!(log.contains("sha256:") && log.contains("uid-of-encrypt"), "{log}");
}

/// The strings of the keyring that are long enough to be keys or IDs.
fn collect_long_strings(value: &serde_json::Value, out: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) if text.len() >= 32 => out.push(text.clone()),
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect_long_strings(item, out)),
        serde_json::Value::Object(fields) => fields.values().for_each(|item| collect_long_strings(item, out)),
        _ => {}
    }
}

#[tokio::test]
async fn a_process_with_keys_leaves_no_core_dump() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", plugin.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["Max", "core", "file", "size", "0", "0", "bytes"]);
    assert!(plugin.log().contains("memory is "), "locked, or why not");
}

#[tokio::test]
async fn access_that_is_wide_is_warned_of() {
    let site = Site::new();
    let plugin = site.start(site.serve().args(["--socket-mode", "0666"]));
    plugin.until_healthy().await;
    plugin.until_logged("the mode 0666 lets every user connect").await;
    // The kernel's word on who has connected.
    plugin.until_logged(&format!("connection uid={} gid={} pid={}", uid(), gid(), std::process::id())).await;
}

#[tokio::test]
async fn users_who_are_not_allowed_are_named_in_the_log() {
    let site = Site::new();
    let other = (uid() + 1).to_string();
    let plugin = site.start(site.serve().args(["--allow-uid", &other]));
    plugin.until_logged("serving").await;
    plugin.client().status(StatusRequest {}).await.unwrap_err();
    plugin.until_logged(&format!("refused a connection: the user is not allowed uid={}", uid())).await;
}

/// It ended with 3, and kube-apiserver could not say why its KMS was away.
#[tokio::test]
async fn a_keyring_that_cannot_be_read_is_waited_for() {
    let site = Site::new();
    let (keyring, away) = (site.at("keyring"), site.at("away"));
    std::fs::rename(&keyring, &away).unwrap();
    let plugin = site.start(&mut site.serve());
    plugin.until_logged("serving").await;
    let missing = format!("{}: cannot read it: No such file or directory (os error 2)", keyring.display());
    plugin.until_logged(&format!("{missing}; it is tried again while the plugin serves")).await;
    let error = plugin.client().status(StatusRequest {}).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unavailable, &*format!("the KMS is not available: {missing}")));
    let request = EncryptRequest { plaintext: SEED.to_vec(), uid: String::new() };
    assert_eq!(plugin.client().encrypt(request).await.unwrap_err().code(), Code::Unavailable);

    std::fs::write(&keyring, "{}").unwrap();
    std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(0o600)).unwrap();
    plugin.signal(Signal::HUP);
    plugin.until_logged(&format!("{}: it is not a keyring", keyring.display())).await;

    std::fs::rename(&away, &keyring).unwrap();
    plugin.until_healthy().await;
    let answer = encrypt(&plugin).await;
    assert_eq!(decrypt(&plugin, answer).await, SEED);
    plugin.until_logged("the keys could be read").await;
    assert!(site.keyring("rotate").status.success());
    let before = plugin.client().status(StatusRequest {}).await.unwrap().into_inner().key_id;
    assert_eq!(encrypt(&plugin).await.key_id, before, "it is served as any other");
}

#[tokio::test]
async fn a_wrong_passphrase_is_waited_out() {
    let site = Site::new();
    let (sealed, passphrase) = (site.at("sealed"), site.at("passphrase"));
    std::fs::write(&passphrase, "the passphrase of this test").unwrap();
    let flags = |mut command: Command| {
        command.arg("--keyring").arg(&sealed).arg("--passphrase-file").arg(&passphrase).env_remove("RUST_LOG");
        command
    };
    let program = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atrest-kms-plugin"));
        command.arg(name);
        command
    };
    assert!(flags(program("keygen")).output().unwrap().status.success());
    std::fs::write(&passphrase, "another one than that of this test").unwrap();
    let mut serve = flags(program("serve"));
    serve.args(["--backend", "keyring", "--health", "none", "--listen"]);
    serve.arg(format!("unix://{}", site.socket().display()));
    let plugin = site.start(&mut serve);
    plugin.until_logged("it does not open: the passphrase is wrong, or the file is damaged").await;
    let error = plugin.client().status(StatusRequest {}).await.unwrap_err();
    assert!(error.message().contains("the passphrase is wrong"), "{error}");
    std::fs::write(&passphrase, "the passphrase of this test").unwrap();
    plugin.until_healthy().await;
}

/// Of a number of connections that is none, or too large for the semaphore, the program panicked or served nobody.
#[test]
fn flags_that_are_wrong_end_it_with_2() {
    let site = Site::new();
    std::fs::remove_file(site.at("keyring")).unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["--max-connections", "0"], "0 is not in 1..=65535"),
        (&["--max-connections", "18446744073709551615"], "number too large to fit in target type"),
        (&["--tpm-pcrs", "7"], "--tpm-tcti and --tpm-pcrs are for keyrings that a TPM seals"),
        (&["--tpm"], "the argument '--plain' cannot be used with '--tpm'"),
    ];
    for (flags, error) in cases {
        let output = site.serve().args(flags).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(error), "{stderr}");
    }
    let output = site.serve_at(&format!("unix://{}", site.socket().display()), "none").arg("--keyring=").output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}

/// 21 225 lines were written of one burst of calls.
#[tokio::test]
async fn a_burst_of_failed_calls_is_a_few_lines_and_a_number() {
    let site = Site::new();
    let plugin = site.start_healthy().await;
    let mut client = plugin.client();
    for _ in 0..50 {
        client.encrypt(EncryptRequest::default()).await.unwrap_err();
    }
    plugin.until_logged("40 more in 10 s: failed calls of v2 Encrypt: InvalidArgument").await;
    let lines = plugin.log().lines().filter(|line| line.contains("method=\"Encrypt\"")).count();
    assert_eq!(lines, 10, "{}", plugin.log());
}

/// An empty variable turned all messages off but errors, as a unit's `Environment=RUST_LOG=` has it.
#[tokio::test]
async fn an_empty_rust_log_is_as_none() {
    let site = Site::new();
    let plugin = site.start(site.serve().env("RUST_LOG", ""));
    plugin.until_logged(" INFO serving version=").await;
    let plugin =
        site.start(site.serve_at(&format!("unix://{}", site.at("2").display()), "none").env("RUST_LOG", "a=b=c"));
    plugin.until_logged(" WARN RUST_LOG counts as not set: ").await;
    plugin.until_logged(" INFO serving version=").await;
}

#[tokio::test]
async fn health_endpoints_in_the_network_are_warned_of() {
    let site = Site::new();
    let listen = |name: &str| format!("unix://{}", site.at(name).display());
    let plugin = site.start(&mut site.serve_at(&listen("1"), "0.0.0.0:0"));
    plugin.until_logged(" WARN 0.0.0.0:0: /readyz and /metrics are open to the network, without a password").await;
    let plugin = site.start(&mut site.serve_at(&listen("2"), "127.0.0.1:0"));
    plugin.until_logged("serving").await;
    assert!(!plugin.log().contains("open to the network"), "{}", plugin.log());
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn gid() -> u32 {
    rustix::process::getgid().as_raw()
}
