//! Certificates: good ones, and every kind of bad one.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, RsaKeySize, date_time_ymd,
};

/// A certificate authority, and the folder of what it issued. Two of them do not know each other, but have the same
/// name, as the authorities of two clusters made by kubeadm have.
#[derive(Debug)]
pub(crate) struct Pki {
    dir: tempfile::TempDir,
    ca: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    issued: AtomicU32,
}

/// A certificate and its private key, both PEM.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The algorithm of a private key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Algorithm {
    P256,
    P384,
    P521,
    Rsa2048,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 4] = [Self::P256, Self::P384, Self::P521, Self::Rsa2048];

    fn generate(self) -> KeyPair {
        let key = match self {
            Self::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::P521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        };
        key.expect("a key can be made")
    }
}

/// How a private key is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyEncoding {
    /// `BEGIN PRIVATE KEY`
    Pkcs8,
    /// `BEGIN RSA PRIVATE KEY` (PKCS#1) or `BEGIN EC PRIVATE KEY` (SEC1)
    Traditional,
}

/// A certificate to be issued.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    common_name: String,
    names: Vec<String>,
    algorithm: Algorithm,
    encoding: KeyEncoding,
    expired: bool,
    usages: Vec<ExtendedKeyUsagePurpose>,
}

impl Request {
    /// A server's, for these DNS names and IP addresses, which may be none.
    pub(crate) fn server(names: &[&str]) -> Self {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        // etcd calls its own gateway with it, as a client.
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Self { names, usages, ..Self::client("etcd") }
    }

    /// A client's; etcd takes the common name for the user's name.
    pub(crate) fn client(common_name: &str) -> Self {
        Self {
            common_name: common_name.to_owned(),
            names: Vec::new(),
            algorithm: Algorithm::P256,
            encoding: KeyEncoding::Pkcs8,
            expired: false,
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
    }

    pub(crate) fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    pub(crate) fn encoding(mut self, encoding: KeyEncoding) -> Self {
        self.encoding = encoding;
        self
    }

    pub(crate) fn expired(mut self) -> Self {
        self.expired = true;
        self
    }
}

impl Pki {
    /// A new authority.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("atrest-pki-").tempdir().expect("a temporary folder can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name = named("etcd-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = Algorithm::P256.generate();
        let certificate = params.self_signed(&key).expect("the authority can be made");
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, certificate.pem()).expect("the certificate can be written");
        Self { dir, ca, issuer: Issuer::new(params, key), issued: AtomicU32::new(0) }
    }

    /// The file with the authority's certificate.
    pub(crate) fn ca(&self) -> &Path {
        &self.ca
    }

    /// A good certificate of a server on this host.
    pub(crate) fn server(&self) -> CertificateFiles {
        self.issue(&Request::server(&["127.0.0.1", "::1", "localhost"]))
    }

    /// A good certificate of a client.
    pub(crate) fn client(&self, common_name: &str) -> CertificateFiles {
        self.issue(&Request::client(common_name))
    }

    /// Any certificate.
    pub(crate) fn issue(&self, request: &Request) -> CertificateFiles {
        let mut params =
            CertificateParams::new(request.names.clone()).expect("the names are DNS names or IP addresses");
        params.distinguished_name = named(&request.common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages.clone_from(&request.usages);
        params.use_authority_key_identifier_extension = true;
        if request.expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = request.algorithm.generate();
        let certificate = params.signed_by(&key, &self.issuer).expect("the certificate can be made");

        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let file = |extension| self.dir.path().join(format!("{number}.{extension}"));
        let files = CertificateFiles { cert: file("crt"), key: file("key") };
        std::fs::write(&files.cert, certificate.pem()).expect("the certificate can be written");
        std::fs::write(&files.key, key.serialize_pem()).expect("the key can be written");
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).expect("the key is ours");
        if request.encoding == KeyEncoding::Traditional {
            in_traditional_form(&files.key);
        }
        files
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// rcgen writes PKCS#8 only.
fn in_traditional_form(key: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["pkey", "-traditional", "-in"]).arg(key).stdin(Stdio::null());
    let output = openssl.output().expect("openssl is on this machine: run `cargo xtask setup`");
    assert!(output.status.success(), "openssl pkey: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(key, output.stdout).expect("the key can be written");
}
