//! The socket: what is in its place before, who may connect, what happens to it while the server runs, and how it ends.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atrest::config::Endpoint;
use atrest::kms::api::v2::key_management_service_client::KeyManagementServiceClient;
use atrest::kms::api::v2::{EncryptRequest, StatusRequest};
use atrest_kms_plugin::serve::{Access, Error, Options, Server, SocketError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::http2::{Answer, PREFACE, Raw, STATUS, literal, other_fields, request_fields};
use crate::support::{Memory, Running, endpoint, options};

async fn bind(path: &Path) -> Result<Server, SocketError> {
    match Server::bind(Arc::new(Memory::local()), options(path)).await {
        Ok(server) => Ok(server),
        Err(Error::Socket(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// A socket on which nobody listens any more.
fn leave_socket(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
    assert!(path.symlink_metadata().unwrap().file_type().is_socket());
}

async fn status(client: &mut KeyManagementServiceClient<Channel>) -> String {
    client
        .status(StatusRequest {})
        .await
        .map(|answer| answer.into_inner().healthz)
        .unwrap_or_else(|error| error.to_string())
}

/// Until a new connection is answered.
async fn until_served(path: &Path) {
    for _ in 0..200 {
        let endpoint = tonic::transport::Endpoint::try_from(format!("unix://{}", path.display())).unwrap();
        if let Ok(channel) = endpoint.connect().await
            && KeyManagementServiceClient::new(channel).status(StatusRequest {}).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} is not served", path.display());
}

#[tokio::test]
async fn a_socket_that_a_killed_server_has_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kms.sock");
    leave_socket(&path);
    bind(&path).await.unwrap();
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "precious").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    leave_socket(&at("left"));
    symlink(at("left"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    for (name, what) in
        [("file", "a file"), ("folder", "a folder"), ("link", "a symbolic link"), ("dangling", "a symbolic link")]
    {
        let error = bind(&at(name)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{} is {what}, and no socket", at(name).display()));
    }
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
    assert!(at("left").symlink_metadata().unwrap().file_type().is_socket());
    assert!(at("dangling").is_symlink() && !at("nowhere").exists());
}

#[tokio::test]
async fn a_socket_on_which_somebody_listens_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kms.sock");
    let other = UnixListener::bind(&path).unwrap();
    let error = bind(&path).await.unwrap_err();
    assert_eq!(error.to_string(), format!("another process listens on {}", path.display()));
    // It still hears who connects: the server above, when it looked, and this.
    UnixStream::connect(&path).await.unwrap();
    other.accept().unwrap();
    other.accept().unwrap();
}

#[tokio::test]
async fn a_folder_that_is_not_there_and_a_path_that_is_too_long_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let error = bind(&folder.path().join("none/kms.sock")).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot open {}", folder.path().join("none").display()));
    let long = folder.path().join("x".repeat(108));
    assert_eq!(bind(&long).await.unwrap_err().to_string(), format!("cannot listen on {}", long.display()));
    let options = Options::new(Endpoint::parse("unix:kms.sock").unwrap());
    let error = Server::bind(Arc::new(Memory::local()), options).await.unwrap_err();
    assert_eq!(error.to_string(), "unix:kms.sock names no socket");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_servers_that_start_together_one_listens() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = folder.path().join(format!("{round}.sock"));
        leave_socket(&path);
        let starts = (0..4).map(|_| {
            let path = path.clone();
            tokio::spawn(async move { bind(&path).await })
        });
        let mut servers = Vec::new();
        for start in starts.collect::<Vec<_>>() {
            match start.await.unwrap() {
                Ok(server) => servers.push(server),
                Err(error) => assert_eq!(error.to_string(), format!("another process listens on {}", path.display())),
            }
        }
        assert_eq!(servers.len(), 1);
    }
}

/// A lock on the folder, which whoever can read it may take, kept servers from starting and from listening anew.
#[tokio::test]
async fn a_lock_on_the_folder_keeps_no_server_from_starting_or_listening_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kms.sock");
    let lock = std::fs::File::open(folder.path()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.listen = endpoint(&path)).await;
    server.until_healthy().await;
    std::fs::remove_file(&path).unwrap();
    until_served(&path).await;
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kms.sock"], "our own lock is gone");
    drop(lock);
}

/// What lies where the lock's file is to be is neither followed nor trusted.
#[tokio::test]
async fn a_lock_s_file_that_others_could_open_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, lock) = (folder.path().join("kms.sock"), folder.path().join(".kms.sock.lock"));
    let refused = format!("{} is not a file that only this process's user can open", lock.display());
    symlink(folder.path().join("elsewhere"), &lock).unwrap();
    assert_eq!(bind(&path).await.unwrap_err().to_string(), refused);
    assert!(!folder.path().join("elsewhere").exists(), "the link is not followed");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    assert_eq!(bind(&path).await.unwrap_err().to_string(), refused);
    std::fs::remove_dir(&lock).unwrap();
    std::fs::write(&lock, "").unwrap();
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(bind(&path).await.unwrap_err().to_string(), refused);
    // That of a server which was killed while it started.
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o600)).unwrap();
    bind(&path).await.unwrap();
    assert!(!lock.exists());
}

#[tokio::test]
async fn only_our_user_may_connect_unless_told_otherwise() {
    // The tests of this folder run in a process each, or else this would be seen by others.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let server = Running::start(Arc::new(Memory::local())).await;
    let metadata = server.path.metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    std::fs::write(server.path.with_file_name("other"), "").unwrap();
    let mode = server.path.with_file_name("other").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644, "the umask is as it was");
    rustix::process::umask(umask);
}

#[tokio::test]
async fn the_mode_and_the_group_can_be_chosen() {
    // Root may give it to any group, others to their own.
    let group = if rustix::process::geteuid().is_root() { 1337 } else { rustix::process::getegid().as_raw() };
    let access = Access { mode: 0o660, group: Some(group) };
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.access = access).await;
    let metadata = server.path.metadata().unwrap();
    assert_eq!((metadata.permissions().mode() & 0o7777, metadata.gid()), (0o660, group));
    assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
}

#[tokio::test]
async fn a_socket_that_is_deleted_comes_back() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let mut connected = server.v2();
    assert_eq!(status(&mut connected).await, "ok");
    std::fs::remove_file(&server.path).unwrap();
    until_served(&server.path).await;
    server.until_healthy().await;
    assert_eq!(server.path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(status(&mut connected).await, "ok", "the connection of before is still there");
}

#[tokio::test]
async fn a_socket_that_is_replaced_is_missed_until_its_path_is_free() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    std::fs::remove_file(&server.path).unwrap();
    let other = UnixListener::bind(&server.path).unwrap();
    server.until_problem("another process listens on").await;
    drop(other);
    until_served(&server.path).await;
    server.until_healthy().await;

    std::fs::remove_file(&server.path).unwrap();
    std::fs::write(&server.path, "precious").unwrap();
    server.until_problem("is a file, and no socket").await;
    assert_eq!(std::fs::read(&server.path).unwrap(), b"precious");
    std::fs::remove_file(&server.path).unwrap();
    until_served(&server.path).await;
    server.until_healthy().await;
}

#[tokio::test]
async fn at_the_end_our_socket_is_removed_and_no_other() {
    let server = Running::start(Arc::new(Memory::local())).await;
    let path = server.path.clone();
    let keep = tempfile::tempdir().unwrap();
    server.until_healthy().await;
    server.stop().await.0.unwrap();
    assert!(!path.exists());

    let path = keep.path().join("kms.sock");
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.listen = endpoint(&path)).await;
    server.until_healthy().await;
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    server.stop().await.0.unwrap();
    assert!(path.symlink_metadata().unwrap().file_type().is_socket());
}

#[tokio::test]
async fn an_abstract_socket_is_served() {
    let name = format!("atrest-test-{}", std::process::id());
    let listen = Endpoint::parse(&format!("unix:///@{name}")).unwrap();
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.listen = listen.clone()).await;
    server.until_healthy().await;
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
    let error = Server::bind(Arc::new(Memory::local()), Options::new(listen)).await.unwrap_err();
    assert_eq!(error.to_string(), format!("another process listens on @{name}"));
}

#[tokio::test]
async fn users_who_are_not_allowed_are_refused() {
    let own = rustix::process::geteuid().as_raw();
    for (allowed, is_answered) in [(vec![own + 1], false), (vec![own + 1, own], true), (vec![], true)] {
        let server =
            Running::start_with(Arc::new(Memory::local()), |options| options.allowed_uids = allowed.clone()).await;
        let stream = UnixStream::connect(&server.path).await.unwrap();
        let mut byte = [0];
        // A server that accepts says nothing before it has heard something, or sends its SETTINGS.
        let read = tokio::time::timeout(Duration::from_secs(2), async {
            stream.readable().await.unwrap();
            stream.try_read(&mut byte)
        });
        let is_closed = matches!(read.await, Ok(Ok(0)));
        assert_eq!(!is_closed, is_answered, "{allowed:?}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_refused() {
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.max_connections = 2).await;
    server.until_healthy().await;
    let block = [request_fields(STATUS), literal(":authority", "localhost"), other_fields()].concat();
    let mut first = Raw::connect(&server.path).await;
    let mut second = Raw::connect(&server.path).await;
    assert!(matches!(first.request(1, &block).await, Answer::Whole { .. }));
    assert!(matches!(second.request(1, &block).await, Answer::Whole { .. }));
    let third = UnixStream::connect(&server.path).await.unwrap();
    third.readable().await.unwrap();
    assert_eq!(third.try_read(&mut [0]).unwrap(), 0, "closed at once");
    drop(first);
    until_served(&server.path).await;
}

#[tokio::test]
async fn open_calls_are_finished_at_the_end() {
    let backend = Arc::new(Memory::local());
    let mut server = Running::start(backend.clone()).await;
    server.until_healthy().await;
    backend.delay(Duration::from_millis(1000));
    let mut client = server.v2();
    let call = tokio::spawn(async move {
        client.encrypt(EncryptRequest { plaintext: b"seed".to_vec(), uid: String::new() }).await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.order_to_stop();
    let path = server.path.clone();
    let (result, _) = tokio::join!(server.stop(), async {
        // A successor listens while the call is still open.
        for _ in 0..50 {
            if !path.exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the socket is still there");
    });
    result.0.unwrap();
    assert_eq!(call.await.unwrap().unwrap().into_inner().key_id, "kek-1");
}

#[tokio::test]
async fn a_call_that_hangs_does_not_hold_up_the_end_for_long() {
    let backend = Arc::new(Memory::local());
    let change = |options: &mut Options| options.drain_timeout = Duration::from_millis(300);
    let server = Running::start_with(backend.clone(), change).await;
    server.until_healthy().await;
    backend.fall_silent();
    let mut client = server.v2();
    let call = tokio::spawn(async move {
        client.encrypt(EncryptRequest { plaintext: b"seed".to_vec(), uid: String::new() }).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (result, time) = server.stop().await;
    result.unwrap();
    assert!(time >= Duration::from_millis(300) && time < Duration::from_secs(10), "{time:?}");
    call.abort();
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let server = Running::start(Arc::new(Memory::local())).await;
    server.until_healthy().await;
    let mut client = server.v2();
    assert_eq!(status(&mut client).await, "ok");
    let (result, time) = server.stop().await;
    result.unwrap();
    assert!(time < Duration::from_secs(5), "{time:?}");
}

#[tokio::test]
async fn a_client_that_has_fallen_silent_does_not_hold_up_the_end() {
    let change = |options: &mut Options| options.drain_timeout = Duration::from_secs(3600);
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    let mut raw = Raw::connect(&server.path).await;
    let block = [request_fields(STATUS), literal(":authority", "localhost"), other_fields()].concat();
    assert!(matches!(raw.request(1, &block).await, Answer::Whole { .. }));
    // It neither closes its connection nor answers the server's PING.
    let (result, time) = server.stop().await;
    result.unwrap();
    assert!(time < Duration::from_secs(10), "{time:?}");
    drop(raw);
}

/// The listener waited for a place among the connections that the gRPC server was to take, which waited for the listener.
#[tokio::test]
async fn many_connections_at_once_do_not_hold_up_the_end() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kms.sock");
        let mut options = options(&path);
        options.drain_timeout = Duration::from_millis(300);
        let server = Server::bind(Arc::new(Memory::local()), options).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let running = server.run(async move { _ = stopped.await });
        tokio::pin!(running);
        // The listener has begun, and from here on nobody takes what it accepts.
        tokio::select! {
            biased;
            result = &mut running => panic!("{result:?}"),
            () = std::future::ready(()) => {}
        }
        let mut clients = Vec::new();
        for _ in 0..60 {
            clients.push(UnixStream::connect(&path).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), running).await.expect("it ends").unwrap();
        assert!(!path.exists());
        drop(clients);
    }
}

/// With as many silent connections as are allowed, a client was refused for as long as they stayed.
#[tokio::test]
async fn whoever_connects_and_says_nothing_keeps_no_place() {
    let server = Running::start_with(Arc::new(Memory::local()), |options| options.max_connections = 8).await;
    server.until_healthy().await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(UnixStream::connect(&server.path).await.unwrap());
        let mut preface_only = UnixStream::connect(&server.path).await.unwrap();
        preface_only.write_all(PREFACE).await.unwrap();
        silent.push(preface_only);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = std::time::Instant::now();
    until_served(&server.path).await;
    let time = began.elapsed();
    assert!(time >= Duration::from_secs(2) && time < Duration::from_secs(15), "{time:?}");
    drop(silent);
}

/// A client that has spoken and is gone without a goodbye kept its place as well: nothing asked whether it is there.
#[tokio::test]
async fn a_client_that_answers_no_ping_is_given_up() {
    let change = |options: &mut Options| {
        options.max_connections = 1;
        options.patience.ping_interval = Duration::from_millis(300);
        options.patience.ping_timeout = Duration::from_millis(300);
    };
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    let block = [request_fields(STATUS), literal(":authority", "localhost"), other_fields()].concat();
    let mut silent = Raw::connect(&server.path).await;
    assert!(matches!(silent.request(1, &block).await, Answer::Whole { .. }));
    until_served(&server.path).await;
    drop(silent);
}

/// One that does answer stays, however long it has nothing to ask: kube-apiserver keeps its connection for ever.
#[tokio::test]
async fn an_idle_client_that_answers_pings_stays() {
    let change = |options: &mut Options| {
        options.max_connections = 1;
        options.patience.ping_interval = Duration::from_millis(100);
        options.patience.ping_timeout = Duration::from_secs(10);
        options.patience.greeting = Duration::from_millis(500);
    };
    let server = Running::start_with(Arc::new(Memory::local()), change).await;
    server.until_healthy().await;
    let mut client = server.v2();
    assert_eq!(status(&mut client).await, "ok");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refused = UnixStream::connect(&server.path).await.unwrap();
    refused.readable().await.unwrap();
    assert_eq!(refused.try_read(&mut [0]).unwrap(), 0, "the one place is taken");
    assert_eq!(status(&mut client).await, "ok");
}
