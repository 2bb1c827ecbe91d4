use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use zeroize::Zeroizing;

/// What the TLS flags of etcdctl say.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// `--cacert`: the certificates that sign etcd's; the system's roots when not given.
    pub ca_file: Option<PathBuf>,
    /// `--cert`: the client's certificate, and those that sign it.
    pub cert_file: Option<PathBuf>,
    /// `--key`: the client's private key.
    pub key_file: Option<PathBuf>,
    /// `--tls-server-name`: the name to look for in etcd's certificate, when it is not the host of the endpoint.
    pub server_name: Option<String>,
    /// `--insecure-skip-tls-verify`: accept any certificate.
    pub danger_accept_any_certificate: bool,
}

impl TlsOptions {
    /// Whether an endpoint without a scheme means TLS.
    #[must_use]
    pub fn wants_tls(&self) -> bool {
        self.ca_file.is_some()
            || self.cert_file.is_some()
            || self.key_file.is_some()
            || self.danger_accept_any_certificate
    }
}

/// A TLS file or flag that cannot be used. The operator can fix it.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}{failure}", path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
pub struct TlsError {
    /// The flag to change.
    pub flag: &'static str,
    /// The file, where there is one.
    pub path: Option<PathBuf>,
    /// What is wrong with it.
    pub failure: TlsFailure,
}

/// What is wrong with a TLS file or flag.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(std::io::Error),
    /// No PEM block of the kind that is needed.
    #[error("no {0} in PEM form is in the file")]
    Missing(&'static str),
    /// The private key is encrypted.
    #[error("the private key is encrypted, and no passphrase can be given")]
    EncryptedKey,
    /// A PEM block that cannot be decoded.
    #[error("damaged PEM block")]
    Pem,
    /// A certificate that is not one.
    #[error("not a usable certificate: {0}")]
    Certificate(String),
    /// The private key is of a kind that is not supported.
    #[error("unusable private key: {0}")]
    Key(rustls::Error),
    /// The private key is not that of the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// One of `--cert` and `--key` without the other.
    #[error("is given without {0}")]
    Incomplete(&'static str),
    /// Not a host name or IP address.
    #[error("{0:?} is neither a host name nor an IP address")]
    ServerName(String),
    /// The system has no trusted certificates.
    #[error("is not given, and the system has no trusted certificates")]
    NoSystemRoots,
}

impl TlsError {
    fn new(flag: &'static str, path: &Path, failure: TlsFailure) -> Self {
        Self { flag, path: Some(path.to_owned()), failure }
    }

    fn flag(flag: &'static str, failure: TlsFailure) -> Self {
        Self { flag, path: None, failure }
    }
}

/// The configuration of connections, from the files that the flags name.
pub(super) fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::flag("--cacert", unusable(&error)))?;
    let builder = if options.danger_accept_any_certificate {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
    } else {
        builder.with_root_certificates(roots(options.ca_file.as_deref())?)
    };
    let mut config = match (&options.cert_file, &options.key_file) {
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(TlsError::flag("--cert", TlsFailure::Incomplete("--key"))),
        (None, Some(_)) => return Err(TlsError::flag("--key", TlsFailure::Incomplete("--cert"))),
        (Some(cert_file), Some(key_file)) => {
            let chain = certificates("--cert", cert_file)?;
            let key = private_key(key_file)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| match error {
                rustls::Error::InvalidCertificate(_) => TlsError::new("--cert", cert_file, unusable(&error)),
                rustls::Error::InconsistentKeys(_) => TlsError::new("--key", key_file, TlsFailure::KeyMismatch),
                error => TlsError::new("--key", key_file, TlsFailure::Key(error)),
            })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn unusable(error: &rustls::Error) -> TlsFailure {
    TlsFailure::Certificate(match error {
        // Its own text calls it the peer's, which it is not.
        rustls::Error::InvalidCertificate(error) => format!("{error:?}"),
        error => error.to_string(),
    })
}

/// The name to look for in etcd's certificate.
pub(super) fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| TlsError::flag("--tls-server-name", TlsFailure::ServerName(name.to_owned())))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates("--cacert", path)? {
                roots.add(certificate).map_err(|error| TlsError::new("--cacert", path, unusable(&error)))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(TlsError::flag("--cacert", TlsFailure::NoSystemRoots));
            }
        }
    }
    Ok(roots)
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = std::fs::read(path).map_err(|error| TlsError::new(flag, path, TlsFailure::Unreadable(error)))?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::new(flag, path, TlsFailure::Pem))?;
    if chain.is_empty() {
        return Err(TlsError::new(flag, path, TlsFailure::Missing("certificate")));
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let fail = |failure| TlsError::new("--key", path, failure);
    let pem = Zeroizing::new(std::fs::read(path).map_err(|error| fail(TlsFailure::Unreadable(error)))?);
    let text = String::from_utf8_lossy(&pem);
    let encrypted = text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED");
    drop(Zeroizing::new(text.into_owned()));
    if encrypted {
        return Err(fail(TlsFailure::EncryptedKey));
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => fail(TlsFailure::Missing("private key")),
        _ => fail(TlsFailure::Pem),
    })
}

/// Accepts every certificate; whoever holds the certificate's key must still prove it.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
