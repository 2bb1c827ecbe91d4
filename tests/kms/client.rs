//! The client: late plugins, lost ones, slow ones, and what is said of them.

use std::path::Path;
use std::time::{Duration, Instant};

use atrest::config::Endpoint;
use atrest::kms::{Client, Connection, Error};
use atrest::secret::Key;
use tonic::Code;
use zeroize::Zeroizing;

use crate::support::TestKms;

fn client(endpoint: &str, timeout: Duration) -> Client {
    Client::new(Connection::new(Endpoint::parse(endpoint).unwrap(), timeout))
}

fn key() -> Key {
    Key::new(Zeroizing::new(vec![7; 32]))
}

const THREE_SECONDS: Duration = Duration::from_secs(3);

/// Tests 24 to 28 of the specification: what is encrypted is decrypted, and `:authority` is `localhost`.
#[tokio::test]
async fn both_apis_are_spoken_over_one_connection() {
    let kms = TestKms::start();
    let client = client(&kms.endpoint(), THREE_SECONDS);
    let status = client.status().await.unwrap();
    assert_eq!((status.version.as_str(), status.healthz.as_str(), status.key_id.as_str()), ("v2", "ok", "kek-2"));
    let encrypted = client.encrypt(&key()).await.unwrap();
    assert_eq!(encrypted.key_id, "kek-2");
    assert_eq!(client.decrypt(&encrypted).await.unwrap(), key());
    let cipher = client.v1_encrypt(&key()).await.unwrap();
    assert_eq!(client.v1_decrypt(&cipher).await.unwrap(), key());
    assert_eq!(kms.counts(), [1, 1, 1, 1, 1]);
    assert_eq!(kms.calls().v1_version.load(std::sync::atomic::Ordering::SeqCst), 1, "the version is checked once");
    assert_eq!(kms.authorities(), ["localhost"; 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_starts_late_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("late.sock");
    let client = client(&format!("unix://{}", socket.display()), THREE_SECONDS);
    let start = || {
        std::thread::sleep(Duration::from_millis(1500));
        TestKms::start_at(&socket)
    };
    let (status, _kms) = std::thread::scope(|scope| {
        let kms = scope.spawn(start);
        let status = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(client.status()));
        (status, kms.join().unwrap())
    });
    assert_eq!(status.unwrap().key_id, "kek-2");
}

#[tokio::test]
async fn a_plugin_that_never_starts_is_waited_for_no_longer_than_the_timeout() {
    let begun = Instant::now();
    let client = client("unix:///nobody/listens.sock", Duration::from_millis(500));
    let error = client.status().await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(450) && begun.elapsed() < THREE_SECONDS, "{:?}", begun.elapsed());
    assert_eq!(
        error.to_string(),
        "no connection to unix:///nobody/listens.sock: No such file or directory (os error 2) (tried for 500ms, the provider's \
         timeout)"
    );
    assert_eq!(error.code(), Some(Code::DeadlineExceeded));
}

#[tokio::test]
async fn a_plugin_that_was_restarted_is_found_again() {
    let mut kms = TestKms::start();
    let client = client(&kms.endpoint(), THREE_SECONDS);
    for _ in 0..3 {
        assert_eq!(client.status().await.unwrap().key_id, "kek-2");
        kms.pause();
        kms.resume();
    }
    assert_eq!(client.status().await.unwrap().key_id, "kek-2");
}

#[tokio::test]
async fn a_slow_plugin_runs_into_the_timeout_of_the_configuration() {
    let kms = TestKms::start();
    kms.set(|kms| kms.delay = Duration::from_millis(600));
    let error = client(&kms.endpoint(), Duration::from_millis(200)).status().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { method: "Status", .. }), "{error:?}");
    assert_eq!(error.to_string(), "Status has not been answered within 200ms (the provider's timeout)");
    assert_eq!(client(&kms.endpoint(), THREE_SECONDS).status().await.unwrap().key_id, "kek-2");
}

/// Test 27: another version than v1beta1 is not used, and is asked for again, since it may have been replaced.
#[tokio::test]
async fn another_version_of_kms_v1_is_refused_before_anything_is_encrypted() {
    let kms = TestKms::start();
    kms.set(|kms| kms.v1_version = "invalid".into());
    let client = client(&kms.endpoint(), THREE_SECONDS);
    let error = client.v1_encrypt(&key()).await.unwrap_err();
    assert_eq!(error.to_string(), "the plugin speaks version \"invalid\", only v1beta1 is supported");
    assert_eq!(kms.counts()[3], 0);
    kms.set(|kms| kms.v1_version = "v1beta1".into());
    assert_eq!(client.v1_decrypt(&client.v1_encrypt(&key()).await.unwrap()).await.unwrap(), key());
}

/// The plugin of the tests says `unknown key id "kek-9"`, as others do.
#[tokio::test]
async fn a_raw_key_id_is_not_repeated() {
    let kms = TestKms::start();
    let client = client(&kms.endpoint(), THREE_SECONDS);
    let mut encrypted = client.encrypt(&key()).await.unwrap();
    encrypted.key_id = "kek-9".to_owned();
    let error = client.decrypt(&encrypted).await.unwrap_err();
    assert_eq!(error.to_string(), "Decrypt: Unknown: unknown key id \"(key ID)\"");
    assert_eq!(format!("{encrypted:?}"), "Encrypted(60 bytes, 1 annotations)");
}

/// What Encrypt and Status say was repeated with the key ID in it.
#[tokio::test]
async fn a_raw_key_id_is_not_repeated_of_encrypt_either() {
    let kms = TestKms::start();
    let client = client(&kms.endpoint(), THREE_SECONDS);
    let status = client.status().await.unwrap();
    assert_eq!(format!("{status:?}"), format!("Status(\"v2\", \"ok\", {})", atrest::report::key_id_hash("kek-2")));
    kms.set(|kms| kms.encrypt_fails = Some((Code::Internal, "kek-2 is disabled".into())));
    let error = client.encrypt(&key()).await.unwrap_err();
    assert_eq!(error.to_string(), "Encrypt: Internal: (key ID) is disabled");
}

#[tokio::test]
async fn sockets_of_the_abstract_namespace_are_dialled() {
    let name = format!("@atrest-client-{}", std::process::id());
    let kms = TestKms::start_at(Path::new(&name));
    assert_eq!(kms.endpoint(), format!("unix:///{name}"));
    assert_eq!(client(&kms.endpoint(), THREE_SECONDS).status().await.unwrap().key_id, "kek-2");
}

#[tokio::test]
async fn an_endpoint_without_a_socket_is_told_at_once() {
    let error = client("unix:@foo", THREE_SECONDS).status().await.unwrap_err();
    assert_eq!(error.to_string(), "unix:@foo names no socket");
}
