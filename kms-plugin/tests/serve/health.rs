//! `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atrest::kms::api::v2::{EncryptRequest, StatusRequest};
use atrest_kms_plugin::backend::Error;
use atrest_kms_plugin::serve::{HealthAddress, Options, Server};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::support::{Memory, Running, endpoint, options};

/// The status line's code, the content type and the body.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    (code, content_type.to_owned(), body.to_owned())
}

async fn get_at(address: SocketAddr, path: &str) -> (u16, String) {
    let (code, _, body) = get(TcpStream::connect(address).await.unwrap(), path).await;
    (code, body)
}

#[tokio::test]
async fn ready_means_that_the_backend_works() {
    let backend = Arc::new(Memory::remote());
    let server = Running::start(backend.clone()).await;
    let health = server.health.unwrap();
    server.until_healthy().await;
    assert_eq!(get_at(health, "/readyz").await, (200, "ok\n".to_owned()));
    backend.fail(Some(|| Error::Throttled { retry_after: None }));
    server.until_problem("limits the rate").await;
    assert_eq!(get_at(health, "/readyz").await, (503, "the KMS limits the rate of requests\n".to_owned()));
    // A plugin that is restarted because its KMS is throttled would only ask more.
    assert_eq!(get_at(health, "/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(get_at(health, "/healthz").await.0, 404);
    backend.fail(None);
    server.until_healthy().await;
    assert_eq!(get_at(health, "/readyz").await.0, 200);
}

#[tokio::test]
async fn a_warning_of_the_backend_is_shown_and_changes_nothing_else() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    backend.warn(Some("the file cannot be read"));
    assert_eq!(server.v2().status(StatusRequest {}).await.unwrap().into_inner().healthz, "ok");
    let health = server.health.unwrap();
    assert_eq!(get_at(health, "/readyz").await, (200, "ok\nwarning: the file cannot be read\n".to_owned()));
    assert!(get_at(health, "/metrics").await.1.contains("\natrest_kms_plugin_backend_warning 1\n"));
    backend.warn(None);
    server.v2().status(StatusRequest {}).await.unwrap();
    assert_eq!(get_at(health, "/readyz").await, (200, "ok\n".to_owned()));
    assert!(get_at(health, "/metrics").await.1.contains("\natrest_kms_plugin_backend_warning 0\n"));
}

#[tokio::test]
async fn ready_means_that_the_first_probe_has_ended() {
    let backend = Arc::new(Memory::remote());
    backend.delay(Duration::from_millis(300));
    let server = Running::start_with(backend, |options| options.timing.timeout = Duration::from_secs(20)).await;
    let health = server.health.unwrap();
    assert_eq!(get_at(health, "/readyz").await, (503, "the first probe has not ended\n".to_owned()));
    assert_eq!(get_at(health, "/livez").await.0, 200);
    server.until_healthy().await;
    assert_eq!(get_at(health, "/readyz").await.0, 200);
}

#[tokio::test]
async fn ready_means_that_the_socket_is_there() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    std::fs::remove_file(&server.path).unwrap();
    let _other = std::os::unix::net::UnixListener::bind(&server.path).unwrap();
    server.until_problem("another process listens").await;
    let expected = format!("another process listens on {}\n", server.path.display());
    assert_eq!(get_at(server.health.unwrap(), "/readyz").await, (503, expected));
}

#[tokio::test]
async fn metrics_count_calls_and_name_the_key_by_its_hash() {
    let backend = Arc::new(Memory::local());
    let server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    let mut client = server.v2();
    client.encrypt(EncryptRequest { plaintext: b"seed".to_vec(), uid: String::new() }).await.unwrap();
    client.encrypt(EncryptRequest { plaintext: vec![], uid: String::new() }).await.unwrap_err();
    client.status(StatusRequest {}).await.unwrap();
    let (code, content_type, text) = get(TcpStream::connect(server.health.unwrap()).await.unwrap(), "/metrics").await;
    assert_eq!((code, content_type.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    // echo -n kek-1 | sha256sum
    let key = r#"atrest_kms_plugin_key_id_hash_info{key_id_hash="sha256:6ad4ff2bfd375211dd97cbb809e358fe8af9271fce7034f1a54618486f0488a0"} 1"#;
    for expected in [
        r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Encrypt",grpc_status_code="OK"} 1"#,
        r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Encrypt",grpc_status_code="InvalidArgument"} 1"#,
        r#"atrest_kms_plugin_requests_total{method_name="/v2.KeyManagementService/Status",grpc_status_code="OK"} 1"#,
        r#"atrest_kms_plugin_connections 1"#,
        r#"atrest_kms_plugin_build_info{version="0.1.0",backend="memory"} 1"#,
        key,
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is not in\n{text}");
    }
    assert!(!text.contains("kek-1"), "{text}");
    let probe =
        text.lines().find_map(|line| line.strip_prefix("atrest_kms_plugin_last_successful_probe_timestamp_seconds "));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - probe.unwrap().parse::<f64>().unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
}

#[tokio::test]
async fn a_busy_port_is_an_error_at_start() {
    let busy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = busy.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kms.sock");
    let mut options = options(&path);
    options.health = Some(HealthAddress::Tcp(address));
    let error = Server::bind(Arc::new(Memory::local()), options).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on {address} for health checks"));
    assert!(!path.exists());
}

#[tokio::test]
async fn the_endpoints_can_be_on_a_socket_or_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.sock");
    let change = |options: &mut Options| options.health = Some(HealthAddress::Unix(endpoint(&path)));
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    let (code, _, body) = get(UnixStream::connect(&path).await.unwrap(), "/readyz").await;
    assert_eq!((code, body.as_str()), (200, "ok\n"));
    server.stop().await.0.unwrap();
    assert!(!path.exists());

    let server = Running::start_with(Arc::new(Memory::local()), |options| options.health = None).await;
    assert_eq!(server.health, None);
    server.until_healthy().await;
}

/// 200 idle connections made the kubelet's check of `/livez` time out, and the kubelet ends a plugin for that.
#[tokio::test]
async fn whoever_keeps_connections_keeps_nobody_out() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let health = server.health.unwrap();
    let mut kept = Vec::new();
    for _ in 0..400 {
        let mut idle = TcpStream::connect(health).await.unwrap();
        // Some have begun a request.
        if kept.len() % 2 == 0 {
            idle.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        }
        kept.push(idle);
    }
    for _ in 0..20 {
        let answer = tokio::time::timeout(Duration::from_secs(5), get_at(health, "/livez"));
        assert_eq!(answer.await.expect("the kubelet waits no longer"), (200, "ok\n".to_owned()));
    }
    drop(kept);
}

#[tokio::test]
async fn a_connection_is_for_one_request_and_ends_when_none_comes() {
    let server = Running::start(Arc::new(Memory::local())).await;
    let health = server.health.unwrap();
    let mut stream = TcpStream::connect(health).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nok\n"), "{text}");
    assert!(text.contains("\r\nconnection: close\r\n"), "{text}");

    let mut slow = TcpStream::connect(health).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut rest));
    // Closed or reset, as the system has it.
    _ = ended.await.expect("it is closed");
}

/// Only kube-apiserver's socket came back; without the other all checks failed until the plugin was restarted.
#[tokio::test]
async fn a_health_socket_that_is_deleted_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("health.sock");
    let change = |options: &mut Options| options.health = Some(HealthAddress::Unix(endpoint(&path)));
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    std::fs::remove_file(&path).unwrap();
    let stream = async {
        loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let stream = tokio::time::timeout(Duration::from_secs(20), stream).await.expect("it is back");
    assert_eq!(get(stream, "/livez").await.0, 200);
    server.stop().await.0.unwrap();
    assert!(!path.exists());
}
