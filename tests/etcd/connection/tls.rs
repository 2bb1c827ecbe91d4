//! Certificates that are not accepted, on either side.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::{Scan, free_port};
use crate::support::{CertificateFiles, Etcd, Pki, Request, Version};

const CA: &str = "hint: give the authority that signed it with --cacert (of kubeadm: /etc/kubernetes/pki/etcd/ca.crt)";
const IP: &str = "hint: the certificate has no IP SAN for it: use a name of the certificate in --endpoints, or give one \
                  with --tls-server-name";
const NAME: &str = "hint: use a name of the certificate in --endpoints, or give one with --tls-server-name";
const CLOCK: &str = "hint: check the clock, and renew etcd's certificate";
const CERT: &str = "hint: give --cert and --key (of kubeadm: /etc/kubernetes/pki/apiserver-etcd-client.crt and .key)";
const SIGNED: &str = "hint: --cert must be valid, and signed by the authority that etcd's --trusted-ca-file names";

fn error(endpoint: &str, why: &str) -> String {
    format!("error: cannot connect to etcd at {endpoint}: {why}")
}

/// An authority, or a server that signed itself.
fn self_signed(dir: &Path, name: &str, is_ca: IsCa) -> CertificateFiles {
    let key = KeyPair::generate().expect("a key can be made");
    self_signed_with(dir, name, &key, |params| params.is_ca = is_ca)
}

fn self_signed_with(
    dir: &Path,
    name: &str,
    key: &KeyPair,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateFiles {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("it is an IP address");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    change(&mut params);
    let files = CertificateFiles { cert: dir.join(format!("{name}.crt")), key: dir.join(format!("{name}.key")) };
    let certificate = params.self_signed(key).expect("the certificate can be made");
    std::fs::write(&files.cert, certificate.pem()).expect("the certificate can be written");
    std::fs::write(&files.key, key.serialize_pem()).expect("the key can be written");
    files
}

#[test]
fn the_authority_is_not_trusted() {
    let (pki, same_name) = (Pki::new(), Pki::new());
    let dir = tempfile::tempdir().unwrap();
    let other_name = self_signed(dir.path(), "other", IsCa::Ca(BasicConstraints::Unconstrained));
    let why = "the server's certificate is signed by an authority that is not trusted";
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).start();
        for ca in [same_name.ca(), &other_name.cert] {
            Scan::of(&etcd.endpoint()).ca(ca).fails(3, &[&error(&etcd.endpoint(), why), CA]);
        }
    }
}

#[test]
fn the_authorities_of_the_system_do_not_know_it() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.server()).start();
    // Whatever this machine trusts, a file says what the system trusts.
    let system = Pki::new();
    let why = "the server's certificate is signed by an authority that is not trusted";
    Scan::of(&etcd.endpoint()).variable("SSL_CERT_FILE", system.ca()).fails(3, &[&error(&etcd.endpoint(), why), CA]);
    Scan::of(&etcd.endpoint()).variable("SSL_CERT_FILE", pki.ca()).works();
    let nothing = tempfile::tempdir().unwrap();
    let empty = nothing.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    Scan::of(&etcd.endpoint()).variable("SSL_CERT_DIR", nothing.path()).variable("SSL_CERT_FILE", &empty).fails(
        2,
        &[
            "error: --cacert is not given, and the system has no trusted certificates",
            "hint: give the authority that signs etcd's certificates with --cacert",
        ],
    );
}

#[test]
fn a_server_that_signed_itself_is_known_by_its_certificate() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().unwrap();
    let server = self_signed(dir.path(), "server", IsCa::NoCa);
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, server.clone()).start();
    Scan::of(&etcd.endpoint()).ca(&server.cert).works();
    let server = self_signed(dir.path(), "authority", IsCa::Ca(BasicConstraints::Unconstrained));
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, server.clone()).start();
    Scan::of(&etcd.endpoint()).ca(&server.cert).fails(
        3,
        &[
            &error(&etcd.endpoint(), "the server's certificate is that of an authority, and not one of a server"),
            "hint: start etcd with a certificate that has no basicConstraints CA:TRUE; --cacert is not the cause",
        ],
    );
}

#[test]
fn the_certificate_is_for_another_name() {
    let pki = Pki::new();
    for version in Version::ALL {
        let server = pki.issue(&Request::server(&["etcd-0.example", "etcd.example"]));
        let etcd = Etcd::builder(version).tls(&pki, server).start();
        let why = "the server's certificate is not valid for 127.0.0.1, but for etcd-0.example, etcd.example";
        Scan::of(&etcd.endpoint()).ca(pki.ca()).fails(3, &[&error(&etcd.endpoint(), why), IP]);
        let endpoint = etcd.endpoint_at("localhost");
        let why = "the server's certificate is not valid for localhost, but for etcd-0.example, etcd.example";
        Scan::of(&endpoint).ca(pki.ca()).fails(3, &[&error(&endpoint, why), NAME]);
        let why = "the server's certificate is not valid for other.example, but for etcd-0.example, etcd.example";
        Scan::of(&endpoint)
            .ca(pki.ca())
            .flag("--tls-server-name", "other.example")
            .fails(3, &[&error(&endpoint, why), NAME]);
    }
}

#[test]
fn the_certificate_is_for_another_address_or_for_no_name() {
    let pki = Pki::new();
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.issue(&Request::server(&["192.0.2.1"]))).start();
    let why = "the server's certificate is not valid for 127.0.0.1, but for 192.0.2.1";
    Scan::of(&etcd.endpoint()).ca(pki.ca()).fails(3, &[&error(&etcd.endpoint(), why), IP]);
    let etcd = Etcd::builder(Version::V3_5).tls(&pki, pki.issue(&Request::server(&[]))).start();
    let why = "the server's certificate is not valid for 127.0.0.1: it has no names";
    Scan::of(&etcd.endpoint()).ca(pki.ca()).fails(3, &[&error(&etcd.endpoint(), why), IP]);
}

#[test]
fn the_certificate_has_expired() {
    let pki = Pki::new();
    for version in Version::ALL {
        let server = pki.issue(&Request::server(&["127.0.0.1"]).expired());
        let etcd = Etcd::builder(version).tls(&pki, server).start();
        let why = "the server's certificate has expired";
        Scan::of(&etcd.endpoint()).ca(pki.ca()).fails(3, &[&error(&etcd.endpoint(), why), CLOCK]);
    }
}

#[test]
fn the_certificate_is_not_valid_yet() {
    let dir = tempfile::tempdir().unwrap();
    let server = self_signed_with(dir.path(), "server", &KeyPair::generate().unwrap(), |params| {
        params.not_before = rcgen::date_time_ymd(2200, 1, 1);
        params.not_after = rcgen::date_time_ymd(2300, 1, 1);
    });
    let etcd = Etcd::builder(Version::V3_5).tls(&Pki::new(), server.clone()).start();
    let why = "the server's certificate is not valid yet";
    Scan::of(&etcd.endpoint()).ca(&server.cert).fails(3, &[&error(&etcd.endpoint(), why), CLOCK]);
}

/// A client for etcd said no more than `transport error` of such authorities (tzfun/etcd-workbench#108).
#[test]
fn authorities_have_keys_of_every_algorithm() {
    let dir = tempfile::tempdir().unwrap();
    let keys = [
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(),
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap(),
        KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA256).unwrap(),
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA512, rcgen::RsaKeySize::_4096).unwrap(),
    ];
    for (number, key) in keys.iter().enumerate() {
        let server = self_signed_with(dir.path(), &number.to_string(), key, |_| {});
        let etcd = Etcd::builder(Version::V3_5).tls(&Pki::new(), server.clone()).start();
        Scan::of(&etcd.endpoint()).ca(&server.cert).works();
    }
}

#[test]
fn the_server_s_certificate_is_a_client_s() {
    let pki = Pki::new();
    let server = openssl_server(&pki, &pki.client("root"), &[]);
    let outcome = Scan::of(&server.endpoint).ca(pki.ca()).run();
    let expected = error(&server.endpoint, "the server's certificate is not accepted: ");
    assert!(outcome.stderr.starts_with(&format!("atrest: {expected}")), "{}", outcome.stderr);
    assert!(outcome.stderr.ends_with("\natrest: hint: check --cacert and the certificate of etcd\n"));
}

#[test]
fn a_client_certificate_is_missing() {
    let pki = Pki::new();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().start();
        // The refusal races with the first request.
        for _ in 0..10 {
            Scan::of(&etcd.endpoint())
                .ca(pki.ca())
                .fails(3, &[&error(&etcd.endpoint(), "the server requires a client certificate"), CERT]);
        }
    }
}

#[test]
fn a_client_certificate_is_missing_and_the_server_is_another_s() {
    let pki = Pki::new();
    // In TLS 1.3 there is an alert of its own for it; before, OpenSSL gives no reason.
    let server = openssl_server(&pki, &pki.server(), &["-Verify", "1", "-verify_return_error", "-alpn", "h2"]);
    Scan::of(&server.endpoint)
        .ca(pki.ca())
        .fails(3, &[&error(&server.endpoint, "the server requires a client certificate"), CERT]);
    let options = ["-Verify", "1", "-verify_return_error", "-alpn", "h2", "-tls1_2"];
    let server = openssl_server(&pki, &pki.server(), &options);
    Scan::of(&server.endpoint).ca(pki.ca()).fails(
        3,
        &[
            &error(&server.endpoint, "the server refuses the TLS handshake"),
            "hint: the server may want a client certificate: give --cert and --key",
        ],
    );
}

#[test]
fn the_server_offers_no_http2() {
    let pki = Pki::new();
    let server = openssl_server(&pki, &pki.server(), &["-alpn", "http/1.1"]);
    Scan::of(&server.endpoint).ca(pki.ca()).fails(
        3,
        &[
            &error(&server.endpoint, "what answers is not etcd: it does not offer HTTP/2"),
            "hint: check the port in --endpoints: etcd's clients use 2379",
        ],
    );
}

#[test]
fn the_client_certificate_is_not_accepted() {
    let (pki, other) = (Pki::new(), Pki::new());
    let pairs = [other.client("root"), pki.issue(&Request::client("root").expired())];
    for version in Version::ALL {
        let etcd = Etcd::builder(version).tls(&pki, pki.server()).client_cert_auth().start();
        for pair in pairs.iter().cycle().take(6) {
            Scan::of(&etcd.endpoint())
                .ca(pki.ca())
                .pair(pair)
                .fails(3, &[&error(&etcd.endpoint(), "the server does not accept the client certificate"), SIGNED]);
        }
    }
}

/// Other servers than etcd say other things.
struct OpensslServer {
    process: Child,
    endpoint: String,
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn openssl_server(pki: &Pki, pair: &CertificateFiles, options: &[&str]) -> OpensslServer {
    let port = free_port();
    let mut openssl = Command::new("openssl");
    openssl.args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}")]);
    openssl.arg("-cert").arg(&pair.cert).arg("-key").arg(&pair.key).arg("-CAfile").arg(pki.ca()).args(options);
    // It ends with its standard input.
    openssl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = openssl.spawn().expect("openssl is on this machine: run `cargo xtask setup`");
    let server = OpensslServer { process, endpoint: format!("https://127.0.0.1:{port}") };
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server
}
