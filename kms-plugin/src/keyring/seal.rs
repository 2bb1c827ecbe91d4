//! What keeps the keyring's file closed: nothing but its mode, a passphrase, or a TPM.

use std::fmt;

use atrest::secret::Key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Error;
use super::passphrase::{Derivation, Source};
#[cfg(feature = "tpm")]
use super::tpm;

/// How a file is sealed, in its header. None of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Seal {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "passphrase")]
    Passphrase(Derivation),
    #[serde(rename = "tpm2")]
    Tpm2(TpmSealed),
}

/// The sealed object of a TPM: `TPM2B_PUBLIC` and `TPM2B_PRIVATE` without their lengths, and the PCRs (of SHA-256) of its
/// policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TpmSealed {
    pub(super) public: Bytes,
    pub(super) private: Bytes,
    pub(super) pcrs: Vec<u8>,
}

impl Seal {
    /// Refuses what no keyring needs before anything is done with it.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::None => Ok(()),
            Self::Passphrase(derivation) => derivation.check(),
            Self::Tpm2(TpmSealed { public, private, pcrs }) => {
                let is_blob = |blob: &Bytes| (1..=1024).contains(&blob.0.len());
                if is_blob(public) && is_blob(private) && pcrs.len() <= 24 && pcrs.iter().all(|pcr| *pcr < 24) {
                    Ok(())
                } else {
                    Err(Error::Invalid("what the TPM sealed is of a wrong form"))
                }
            }
        }
    }

    pub(super) fn method(&self) -> Method {
        match self {
            Self::None => Method::None,
            Self::Passphrase(_) => Method::Passphrase,
            Self::Tpm2(_) => Method::Tpm,
        }
    }
}

/// The kinds of seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The mode of the file alone.
    None,
    /// A key from a passphrase.
    Passphrase,
    /// A key that one TPM gives out.
    Tpm,
}

impl Method {
    /// As it is in the file's header.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Passphrase => "passphrase",
            Self::Tpm => "tpm2",
        }
    }
}

/// As a noun in a sentence.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "nothing",
            Self::Passphrase => "a passphrase",
            Self::Tpm => "a TPM",
        })
    }
}

/// How the operator says that a file is, or is to be, sealed.
///
/// The file must agree: otherwise whoever can write to it could put one there that is not sealed, with keys of his own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opener {
    /// Not at all.
    Plain,
    /// By a passphrase.
    Passphrase(Source),
    /// By this machine's TPM.
    Tpm(TpmOptions),
}

/// How the TPM is reached, and what it is to ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TpmOptions {
    /// The TCTI, like `device:/dev/tpmrm0`.
    pub tcti: Option<String>,
    /// Sealed to the present values of these PCRs.
    pub pcrs: Vec<u8>,
}

impl Opener {
    fn method(&self) -> Method {
        match self {
            Self::Plain => Method::None,
            Self::Passphrase(_) => Method::Passphrase,
            Self::Tpm(_) => Method::Tpm,
        }
    }

    /// The key that opens a file with this seal.
    pub(super) fn unlock(&self, seal: &Seal) -> Result<Option<Key>, Error> {
        match (self, seal) {
            (Self::Plain, Seal::None) => Ok(None),
            (Self::Passphrase(source), Seal::Passphrase(derivation)) => derivation.derive(&source.read()?).map(Some),
            (Self::Tpm(options), Seal::Tpm2(sealed)) => unseal(options, sealed).map(Some),
            _ => Err(Error::SealMismatch { actual: seal.method(), given: self.method() }),
        }
    }

    /// A new seal, and the key under it.
    pub(super) fn seal(&self) -> Result<(Seal, Option<Key>), Error> {
        match self {
            Self::Plain => Ok((Seal::None, None)),
            Self::Passphrase(source) => {
                let passphrase = source.read()?;
                passphrase.warn_when_short();
                let derivation = Derivation::generate()?;
                let key = derivation.derive(&passphrase)?;
                Ok((Seal::Passphrase(derivation), Some(key)))
            }
            Self::Tpm(options) => new_tpm_seal(options).map(|(sealed, key)| (Seal::Tpm2(sealed), Some(key))),
        }
    }
}

#[cfg(feature = "tpm")]
fn unseal(options: &TpmOptions, sealed: &TpmSealed) -> Result<Key, Error> {
    tpm::unseal(options, sealed).map_err(Error::Tpm)
}

#[cfg(feature = "tpm")]
fn new_tpm_seal(options: &TpmOptions) -> Result<(TpmSealed, Key), Error> {
    let mut random = zeroize::Zeroizing::new(vec![0; super::aead::KEY_LEN]);
    getrandom::fill(&mut random).map_err(|_| Error::Random)?;
    let key = Key::new(random);
    Ok((tpm::seal(options, &key).map_err(Error::Tpm)?, key))
}

#[cfg(not(feature = "tpm"))]
fn unseal(_options: &TpmOptions, _sealed: &TpmSealed) -> Result<Key, Error> {
    Err(Error::NoTpmSupport)
}

#[cfg(not(feature = "tpm"))]
fn new_tpm_seal(_options: &TpmOptions) -> Result<(TpmSealed, Key), Error> {
    Err(Error::NoTpmSupport)
}

/// Bytes that are no secret, in base64 with padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(|_| serde::de::Error::custom("not base64"))
    }
}
