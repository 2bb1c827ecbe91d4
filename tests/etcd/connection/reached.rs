//! What works.

use super::Scan;
use crate::support::{Algorithm, Etcd, KeyEncoding, Pki, Request, Version};

#[test]
fn by_http_and_without_a_scheme() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        etcd.client().put("/registry/secrets/default/a", "k8s\0plain");
        let stdout = Scan::of(&etcd.endpoint()).works();
        assert!(stdout.contains("secrets"), "{stdout}");
        Scan::of(&format!("127.0.0.1:{}", etcd.port())).works();
        Scan::of(&format!("localhost:{}", etcd.port())).works();
        Scan::of(&format!("{}/", etcd.endpoint())).works();
    }
}

#[test]
fn by_https_to_an_ip_address_or_a_name_of_the_certificate() {
    let pki = Pki::new();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).start();
        for endpoint in [etcd.endpoint(), etcd.endpoint_at("localhost"), format!("127.0.0.1:{}", etcd.port())] {
            Scan::of(&endpoint).ca(pki.ca()).works();
        }
    }
}

#[test]
fn by_another_name_of_the_certificate() {
    let pki = Pki::new();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.issue(&Request::server(&["etcd.example"]))).start();
        Scan::of(&etcd.endpoint()).ca(pki.ca()).flag("--tls-server-name", "etcd.example").works();
        Scan::of(&etcd.endpoint())
            .variable("ETCDCTL_CACERT", pki.ca())
            .variable("ETCDCTL_TLS_SERVER_NAME", "etcd.example")
            .works();
        Scan::of(&etcd.endpoint()).switch("--insecure-skip-tls-verify").works();
    }
}

#[test]
fn whatever_the_certificate_when_it_is_not_verified() {
    let pki = Pki::new();
    let expired = pki.issue(&Request::server(&["other.example"]).expired());
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, expired).client_cert_auth().start();
    Scan::of(&etcd.endpoint()).switch("--insecure-skip-tls-verify").pair(&pki.client("root")).works();
}

#[test]
fn with_client_keys_of_every_algorithm_and_encoding() {
    let pki = Pki::new();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().start();
        for algorithm in Algorithm::ALL {
            for encoding in [KeyEncoding::Pkcs8, KeyEncoding::Traditional] {
                let client = pki.issue(&Request::client("root").algorithm(algorithm).encoding(encoding));
                Scan::of(&etcd.endpoint()).ca(pki.ca()).pair(&client).works();
            }
        }
    }
}

#[test]
fn with_server_keys_of_every_algorithm() {
    let pki = Pki::new();
    for algorithm in Algorithm::ALL {
        let server = pki.issue(&Request::server(&["127.0.0.1"]).algorithm(algorithm));
        let etcd = Etcd::builder(Version::V3_5).tls(&pki, server).start();
        Scan::of(&etcd.endpoint()).ca(pki.ca()).works();
    }
}

#[test]
fn with_certificate_and_key_in_one_file() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).client_cert_auth().start();
    let client = pki.issue(&Request::client("root").encoding(KeyEncoding::Traditional));
    let mut both = std::fs::read(&client.cert).unwrap();
    both.extend(std::fs::read(&client.key).unwrap());
    std::fs::write(&client.key, both).unwrap();
    Scan::of(&etcd.endpoint()).ca(pki.ca()).flag("--cert", &client.key).flag("--key", &client.key).works();
}

#[test]
fn with_the_certificate_that_etcd_made_for_itself() {
    for version in Version::ALL {
        let port = super::free_port();
        let url = format!("https://127.0.0.1:{port}");
        // In place of the endpoint and of the back door.
        let etcd = Etcd::builder(version).arg("--auto-tls").arg(format!("--listen-client-urls={url}")).start();
        let made = etcd.data_dir().join("fixtures/client/cert.pem");
        Scan::of(&url).ca(&made).works();
    }
}

#[test]
fn by_ipv6() {
    let pki = Pki::new();
    for version in Version::ALL {
        let plain = Etcd::builder(version).ipv6().start();
        Scan::of(&plain.endpoint()).works();
        Scan::of(&format!("[::1]:{}", plain.port())).works();
        let tls = Etcd::builder(version).ipv6().tls(&pki, pki.server()).start();
        assert!(tls.endpoint().starts_with("https://[::1]:"));
        Scan::of(&tls.endpoint()).ca(pki.ca()).works();
    }
}

#[test]
fn by_a_unix_socket() {
    let pki = Pki::new();
    for version in Version::ALL {
        let plain = Etcd::builder(version).unix_socket().start();
        Scan::of(&plain.endpoint()).works();
        let tls = Etcd::builder(version).unix_socket().tls(&pki, pki.server()).start();
        Scan::of(&format!("unixs://{}", tls.socket().display())).ca(pki.ca()).works();
    }
}

#[test]
fn by_variables_alone() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).client_cert_auth().start();
    let client = pki.client("root");
    Scan::default()
        .variable("ETCDCTL_ENDPOINTS", etcd.endpoint())
        .variable("ETCDCTL_CACERT", pki.ca())
        .variable("ETCDCTL_CERT", &client.cert)
        .variable("ETCDCTL_KEY", &client.key)
        .works();
}

#[test]
fn by_flags_where_variables_are_empty() {
    let etcd = Etcd::start(Version::V3_5);
    let empty = [
        "ETCDCTL_CACERT",
        "ETCDCTL_CERT",
        "ETCDCTL_KEY",
        "ETCDCTL_TLS_SERVER_NAME",
        "ETCDCTL_USER",
        "ETCDCTL_PASSWORD",
    ];
    let scan = empty.into_iter().fold(Scan::of(&etcd.endpoint()), |scan, name| scan.variable(name, ""));
    scan.works();
    // A password is nothing without a user.
    Scan::of(&etcd.endpoint()).variable("ETCDCTL_PASSWORD", "hunter2").works();
}

/// etcdctl ends when it finds both (etcd-io/etcd#14640), which breaks what worked until somebody exported a variable.
#[test]
fn by_a_flag_where_the_variable_is_wrong() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).client_cert_auth().start();
    Scan::of(&etcd.endpoint())
        .ca(pki.ca())
        .pair(&pki.client("root"))
        .variable("ETCDCTL_ENDPOINTS", "https://127.0.0.1:1")
        .variable("ETCDCTL_CACERT", "/nowhere/ca.crt")
        .variable("ETCDCTL_CERT", "/nowhere/client.crt")
        .variable("ETCDCTL_KEY", "/nowhere/client.key")
        .works();
}
