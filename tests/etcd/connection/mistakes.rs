//! Endpoints where etcd is not, or not as it was thought.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Mutex;

use super::{Dead, Scan, free_port, listener, serve};
use crate::support::{Etcd, Pki, Version};

const WHERE: &str = "hint: is etcd running there? Check the host and port in --endpoints";
const SLOW: &str = "hint: check --endpoints and the network; more time is given with --dial-timeout";
const PORT: &str = "hint: check the port in --endpoints: etcd's clients use 2379";
const SOCKET: &str = "hint: check the path of the socket in --endpoints";

#[test]
fn nobody_listens() {
    let dead = Dead::new();
    let endpoint = format!("http://{dead}");
    Scan::of(&endpoint).fails(3, &[&format!("error: cannot connect to etcd at {endpoint}: connection refused"), WHERE]);
    let dead = Dead::at("[::1]:0");
    let endpoint = format!("https://{dead}");
    Scan::of(&endpoint)
        .ca(Pki::new().ca())
        .fails(3, &[&format!("error: cannot connect to etcd at {endpoint}: connection refused"), WHERE]);
}

#[test]
fn nobody_listens_at_any_of_them() {
    let [a, b, c] = [(); 3].map(|()| Dead::new());
    let error = format!(
        "error: cannot connect to etcd\n  {a}: connection refused\n  {b}: connection refused\n  {c}: connection refused"
    );
    Scan::of(&format!("{a},{b},{c}")).fails(3, &[&error, WHERE]);
}

#[test]
fn each_endpoint_has_a_mistake_of_its_own() {
    let silent = listener();
    let [a, c] = [(); 2].map(|()| Dead::new());
    let b = silent.local_addr().unwrap();
    let error = format!(
        "error: cannot connect to etcd\n  {a}: connection refused\n  {b}: no answer within 3s\n  {c}: connection refused"
    );
    Scan::of(&format!("{a}, {b}, {c}")).fails(3, &[&error, WHERE, SLOW]);
}

#[test]
fn the_host_is_unknown() {
    Scan::of("https://etcd-0.invalid:2379").fails(
        3,
        &[
            "error: cannot connect to etcd at https://etcd-0.invalid:2379: the host name cannot be resolved",
            "hint: check the host name in --endpoints",
        ],
    );
}

#[test]
fn nobody_answers() {
    let silent = listener();
    let address = silent.local_addr().unwrap();
    for scheme in ["http", "https"] {
        let error = format!("error: cannot connect to etcd at {scheme}://{address}: no answer within 3s");
        Scan::of(&format!("{scheme}://{address}")).ca(Pki::new().ca()).fails(3, &[&error, SLOW]);
    }
}

#[test]
fn etcd_is_stuck() {
    let pki = Pki::new();
    for etcd in [Etcd::start(Version::V3_4), Etcd::builder(Version::V3_5).tls(&pki, pki.server()).start()] {
        etcd.pause();
        let error = format!("error: cannot connect to etcd at {}: no answer within 3s", etcd.endpoint());
        Scan::of(&etcd.endpoint()).ca(pki.ca()).fails(3, &[&error, SLOW]);
        etcd.resume();
        Scan::of(&etcd.endpoint()).ca(pki.ca()).works();
    }
}

#[test]
fn http_is_spoken_to_tls() {
    let pki = Pki::new();
    for version in Version::ALL {
        for etcd in [
            Etcd::builder(version).tls(&pki, pki.server()).start(),
            Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().start(),
        ] {
            let error =
                format!("error: cannot connect to etcd at http://127.0.0.1:{}: the server speaks TLS", etcd.port());
            let hint = "hint: use https:// in --endpoints, with --cacert, --cert and --key";
            Scan::of(&format!("http://127.0.0.1:{}", etcd.port())).fails(3, &[&error, hint]);
            let endpoint = format!("127.0.0.1:{}", etcd.port());
            let error = format!("error: cannot connect to etcd at {endpoint}: the server speaks TLS");
            Scan::of(&endpoint).fails(3, &[&error, hint]);
        }
    }
}

#[test]
fn tls_is_spoken_to_http() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let endpoint = format!("https://127.0.0.1:{}", etcd.port());
        let error = format!("error: cannot connect to etcd at {endpoint}: the server does not speak TLS");
        let hint = "hint: use http:// in --endpoints, and leave --cacert, --cert and --key out";
        Scan::of(&endpoint).ca(Pki::new().ca()).fails(3, &[&error, hint]);
    }
}

#[test]
fn another_kind_of_server_answers() {
    for (greeting, shown) in [
        (&b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..], "HTTP/1.1 404 Not Found"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "SSH-2.0-OpenSSH_9.2p1 Debian-2"),
        (b"\x4a\0\0\0\x0a5.7.33\0\x08\0\0\0", "J\\u{0}\\u{0}\\u{0}"),
    ] {
        let address = serve(move |mut stream| {
            stream.write_all(greeting).unwrap();
            // Waits for the client to go.
            _ = stream.read_to_end(&mut Vec::new());
        });
        let outcome = Scan::of(&address).run();
        let error = format!("atrest: error: cannot connect to etcd at {address}: what answers is not etcd: {shown}");
        assert!(outcome.stderr.starts_with(&error), "{}", outcome.stderr);
        assert!(outcome.stderr.ends_with(&format!("\natrest: {PORT}\n")), "{}", outcome.stderr);
        assert_eq!(outcome.code, Some(3));
        let error = format!("error: cannot connect to etcd at https://{address}: the server does not speak TLS");
        let hint = "hint: use http:// in --endpoints, and leave --cacert, --cert and --key out";
        Scan::of(&format!("https://{address}")).ca(Pki::new().ca()).fails(3, &[&error, hint]);
    }
}

#[test]
fn it_is_etcd_s_port_for_metrics() {
    for version in Version::ALL {
        let port = free_port();
        let _etcd = Etcd::builder(version).arg(format!("--listen-metrics-urls=http://127.0.0.1:{port}")).start();
        let outcome = Scan::of(&format!("127.0.0.1:{port}")).run();
        let error =
            format!("atrest: error: cannot connect to etcd at 127.0.0.1:{port}: what answers is not etcd: HTTP/1");
        assert!(outcome.stderr.starts_with(&error), "{}", outcome.stderr);
        assert!(outcome.stderr.ends_with(&format!("\natrest: {PORT}\n")), "{}", outcome.stderr);
        assert_eq!(outcome.code, Some(3));
    }
}

/// etcd answers its clients there too.
#[test]
fn it_is_etcd_s_port_for_other_members() {
    for version in Version::ALL {
        let port = free_port();
        let _etcd = Etcd::builder(version).arg(format!("--listen-peer-urls=http://127.0.0.1:{port}")).start();
        Scan::of(&format!("127.0.0.1:{port}")).works();
    }
}

#[test]
fn the_connection_is_closed_at_once() {
    let address = serve(|stream| _ = stream.shutdown(Shutdown::Both));
    let why = "the connection was closed while it was set up";
    let hint = "hint: check --endpoints: is it etcd's client port, and is TLS (https://) wanted?";
    for endpoint in [address.clone(), format!("https://{address}")] {
        let error = format!("error: cannot connect to etcd at {endpoint}: {why}");
        Scan::of(&endpoint).ca(Pki::new().ca()).fails(3, &[&error, hint]);
    }
}

/// A server with TLS hung up on the first connection, and the second took what was left of the time: nothing remained to
/// ask whether it speaks TLS, and that the connection was closed was all that was said.
#[test]
fn a_connection_is_closed_and_the_next_is_silent() {
    let plain = Mutex::new(Vec::new());
    let address = serve(move |mut stream| {
        let mut first = [0];
        if stream.read_exact(&mut first).is_err() {
            return;
        }
        // RFC 8446, sections 5.1 and 6: a handshake record is answered with the fatal alert handshake_failure.
        if first == [22] {
            _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 40]);
            return;
        }
        let mut plain = plain.lock().unwrap();
        if plain.is_empty() {
            _ = stream.shutdown(Shutdown::Both);
        }
        // Held open from the second on.
        plain.push(stream);
    });
    let error = format!("error: cannot connect to etcd at {address}: the server speaks TLS");
    let hint = "hint: use https:// in --endpoints, with --cacert, --cert and --key";
    Scan::of(&address).fails(3, &[&error, hint]);
}

#[test]
fn the_socket_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("etcd.sock");
    let error = format!("error: cannot connect to etcd at unix://{}: no such socket", path.display());
    Scan::of(&format!("unix://{}", path.display())).fails(3, &[&error, SOCKET]);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = format!("error: cannot connect to etcd at unix://{}: connection refused", path.display());
    Scan::of(&format!("unix://{}", path.display())).fails(3, &[&error, WHERE]);
}

#[test]
fn the_endpoint_is_none() {
    Scan::of("ftp://127.0.0.1").fails(
        2,
        &["error: --endpoints: \"ftp://127.0.0.1\" is not an endpoint: the scheme must be http, https, unix or unixs"],
    );
    Scan::of("::1:2379")
        .fails(2, &["error: --endpoints: \"::1:2379\" is not an endpoint: an IPv6 address must stand in brackets"]);
    Scan::of(" ,").fails(
        2,
        &["error: no endpoint is given", "hint: name the members of etcd with --endpoints or ETCDCTL_ENDPOINTS"],
    );
}
