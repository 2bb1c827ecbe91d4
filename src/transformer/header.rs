use super::envelope::{self, EncryptedObject, EnvelopeV1};
use super::{KeyLabel, ProviderKind};

/// What marks a stored value as ciphertext.
pub const ENCRYPTED_PREFIX: &[u8] = b"k8s:enc:";

/// What can be told of a stored value without any key.
///
/// Names are bytes, as they stand in storage. A local key name and a KMS v1 name may contain `:`, and nothing says where the
/// name ends: without a configuration the name of a local key is read up to the first `:`, and that of a KMS v1 provider up
/// to the first `:` behind which an envelope fits. [`Header::parse_with_names`] finds longer names that are known.
#[derive(Debug)]
pub enum Header<'a> {
    /// No marker: the value is stored as it is.
    Plaintext,
    /// Ciphertext under a key of the configuration.
    Local {
        /// aescbc, aesgcm or secretbox.
        provider: ProviderKind,
        /// The name of the key.
        key_name: &'a [u8],
        /// What follows the name.
        payload: &'a [u8],
    },
    /// An envelope of KMS v1.
    KmsV1 {
        /// The name of the KMS provider.
        name: &'a [u8],
        /// The envelope, when it is well-formed.
        envelope: Result<EnvelopeV1<'a>, envelope::Error>,
    },
    /// An envelope of KMS v2.
    KmsV2 {
        /// The name of the KMS provider.
        name: &'a [u8],
        /// The envelope, when it is well-formed.
        envelope: Result<EncryptedObject<'a>, envelope::Error>,
    },
    /// A known provider in a version that this program does not know: written by a newer Kubernetes.
    NewerVersion {
        /// The provider as it is stored, for example `aescbc`.
        provider: &'static str,
        /// The version as it is stored, for example `v2`; of a longer text the first 64 bytes.
        version: &'a [u8],
    },
    /// A provider that Kubernetes does not have.
    UnknownProvider {
        /// The text between the marker and the next `:`; of a longer text the first 64 bytes.
        provider: &'a [u8],
    },
    /// The provider is known, and what should be the name of its key cannot be one.
    DamagedName {
        /// The provider.
        provider: ProviderKind,
    },
    /// The value ends inside the prefix or inside the name.
    Incomplete {
        /// The provider, when that much is there.
        provider: Option<ProviderKind>,
    },
}

/// The providers as they are stored, and the version of each that is known.
const STORED: [(&str, &[(&str, ProviderKind)]); 4] = [
    ("aescbc", &[("v1", ProviderKind::AesCbc)]),
    ("aesgcm", &[("v1", ProviderKind::AesGcm)]),
    ("secretbox", &[("v1", ProviderKind::Secretbox)]),
    ("kms", &[("v1", ProviderKind::KmsV1), ("v2", ProviderKind::KmsV2)]),
];

impl<'a> Header<'a> {
    /// The providers as they are stored, without their version.
    pub const PROVIDERS: [&'static str; 4] = ["aescbc", "aesgcm", "secretbox", "kms"];

    /// Reads the header of a stored value.
    #[must_use]
    pub fn parse(data: &'a [u8]) -> Self {
        Self::parse_with_names(data, |_| std::iter::empty::<&str>())
    }

    /// Reads the header, where `names` gives the names that a provider is known to have: the longest that fits is the name.
    #[must_use]
    pub fn parse_with_names<'n, N>(data: &'a [u8], names: impl Fn(ProviderKind) -> N) -> Self
    where
        N: Iterator<Item = &'n str>,
    {
        let Some(rest) = data.strip_prefix(ENCRYPTED_PREFIX) else { return Header::Plaintext };
        let Some((provider, rest)) = split_at_colon(rest) else { return Header::Incomplete { provider: None } };
        let Some((stored, versions)) = STORED.iter().find(|(stored, _)| stored.as_bytes() == provider) else {
            return Header::UnknownProvider { provider: shortened(provider) };
        };
        let Some((version, rest)) = split_at_colon(rest) else { return Header::Incomplete { provider: None } };
        let Some((_, kind)) = versions.iter().find(|(known, _)| known.as_bytes() == version) else {
            return Header::NewerVersion { provider: stored, version: shortened(version) };
        };
        let named = names(*kind)
            .filter_map(|name| {
                let payload = rest.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
                Some((rest.get(..name.len())?, payload))
            })
            .max_by_key(|(name, _)| name.len());
        let is_known = named.is_some();
        let (name, payload) = match named.or_else(|| guess_name(*kind, rest)) {
            // A configured name is one whatever it holds; a guess must look like one.
            Some((name, payload)) if is_known || (is_name(name) && name.len() <= MAX_NAME_BYTES) => (name, payload),
            None if is_name(rest) => return Header::Incomplete { provider: Some(*kind) },
            _ => return Header::DamagedName { provider: *kind },
        };
        match kind {
            ProviderKind::KmsV1 => Header::KmsV1 { name, envelope: EnvelopeV1::parse(payload) },
            ProviderKind::KmsV2 => Header::KmsV2 { name, envelope: EncryptedObject::parse(payload) },
            provider => Header::Local { provider: *provider, key_name: name, payload },
        }
    }

    /// The provider that wrote the value, where it is one that this program knows.
    #[must_use]
    pub fn provider(&self) -> Option<ProviderKind> {
        match self {
            Header::Plaintext => Some(ProviderKind::Identity),
            Header::Local { provider, .. } => Some(*provider),
            Header::KmsV1 { .. } => Some(ProviderKind::KmsV1),
            Header::KmsV2 { .. } => Some(ProviderKind::KmsV2),
            Header::DamagedName { provider } => Some(*provider),
            Header::Incomplete { provider } => *provider,
            Header::NewerVersion { .. } | Header::UnknownProvider { .. } => None,
        }
    }

    /// The name of the key, or of the KMS provider.
    #[must_use]
    pub fn name(&self) -> Option<&'a [u8]> {
        match self {
            Header::Local { key_name: name, .. } | Header::KmsV1 { name, .. } | Header::KmsV2 { name, .. } => {
                Some(name)
            }
            _ => None,
        }
    }

    /// The key that the header names; [`KeyLabel::identity`] where there is no marker.
    #[must_use]
    pub fn label(&self) -> Option<KeyLabel> {
        match self {
            Header::Plaintext => Some(KeyLabel::identity()),
            header => Some(KeyLabel::new(header.provider()?, String::from_utf8_lossy(header.name()?))),
        }
    }

    /// That key as people read it; `(unrecognised)` where the header tells none.
    #[must_use]
    pub fn label_in_words(&self) -> String {
        self.label().map_or_else(|| "(unrecognised)".to_owned(), |label| label.to_string())
    }

    /// The ID of the key-encryption key: only KMS v2 stores it.
    #[must_use]
    pub fn kms_key_id(&self) -> Option<&'a str> {
        match self {
            Header::KmsV2 { envelope: Ok(object), .. } => Some(object.key_id),
            _ => None,
        }
    }
}

/// The longest name that is believed without a configuration that has it. Kubernetes has no limit; damaged and hostile values
/// are not to be repeated to their end in every report.
const MAX_NAME_BYTES: usize = 1024;

fn shortened(text: &[u8]) -> &[u8] {
    text.get(..64).unwrap_or(text)
}

/// Names come from YAML or JSON, so they are text; the payload behind them is not.
fn is_name(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control))
}

fn split_at_colon(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = data.iter().position(|byte| *byte == b':')?;
    Some((data.get(..at)?, data.get(at + 1..)?))
}

fn guess_name(kind: ProviderKind, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = split_at_colon(rest)?;
    if kind != ProviderKind::KmsV1 {
        return Some(first);
    }
    let candidates = rest.iter().enumerate().take(MAX_NAME_BYTES + 1).filter(|(_, byte)| **byte == b':');
    candidates
        .filter_map(|(at, _)| Some((rest.get(..at)?, rest.get(at + 1..)?)))
        .find(|(name, payload)| std::str::from_utf8(name).is_ok() && EnvelopeV1::parse(payload).is_ok())
        .or(Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(data: &[u8]) -> (ProviderKind, &[u8], &[u8]) {
        match Header::parse(data) {
            Header::Local { provider, key_name, payload } => (provider, key_name, payload),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_local_header_is_provider_name_and_payload() {
        assert_eq!(local(b"k8s:enc:aescbc:v1:key1:\0\x01:"), (ProviderKind::AesCbc, &b"key1"[..], &b"\0\x01:"[..]));
        assert_eq!(local(b"k8s:enc:secretbox:v1::"), (ProviderKind::Secretbox, &b""[..], &b""[..]));
    }

    #[test]
    fn a_known_name_with_a_colon_is_found() {
        let data = b"k8s:enc:aesgcm:v1:a:b:payload";
        let header = Header::parse_with_names(data, |_| ["a", "a:b", "a:b:c"].into_iter());
        assert_eq!(header.name(), Some(&b"a:b"[..]));
        assert_eq!(Header::parse(data).name(), Some(&b"a"[..]));
    }

    #[test]
    fn a_kms_v1_name_ends_where_an_envelope_fits() {
        let mut data = b"k8s:enc:kms:v1:a:b:".to_vec();
        data.extend_from_slice(&[0, 3, b'd', b'e', b'k']);
        data.extend_from_slice(&[7; 40]);
        assert_eq!(Header::parse(&data).name(), Some(&b"a:b"[..]));
    }

    /// A value of 1 MB without a second colon was repeated whole in the reports about it.
    #[test]
    fn names_without_end_are_not_believed() {
        let long = "n".repeat(1025);
        let data = format!("k8s:enc:aesgcm:v1:{long}:payload").into_bytes();
        assert!(matches!(Header::parse(&data), Header::DamagedName { provider: ProviderKind::AesGcm }));
        assert_eq!(Header::parse_with_names(&data, |_| [long.as_str()].into_iter()).name(), Some(long.as_bytes()));
        let data = format!("k8s:enc:aesgcm:v1:{}:payload", &long[1..]).into_bytes();
        assert_eq!(Header::parse(&data).name(), Some(&long.as_bytes()[1..]));
        let data = format!("k8s:enc:{long}:v1:k:x").into_bytes();
        assert!(matches!(Header::parse(&data), Header::UnknownProvider { provider } if *provider == [b'n'; 64]));
        let data = format!("k8s:enc:kms:{long}:k:x").into_bytes();
        assert!(
            matches!(Header::parse(&data), Header::NewerVersion { provider: "kms", version } if version.len() == 64)
        );
    }

    #[test]
    fn what_is_no_known_header_is_told_apart() {
        assert!(matches!(Header::parse(b"k8s\0"), Header::Plaintext));
        assert!(matches!(Header::parse(b""), Header::Plaintext));
        assert!(matches!(Header::parse(b"k8s:enc:"), Header::Incomplete { provider: None }));
        assert!(matches!(Header::parse(b"k8s:enc:aescbc"), Header::Incomplete { provider: None }));
        assert!(matches!(
            Header::parse(b"k8s:enc:aescbc:v1:key1"),
            Header::Incomplete { provider: Some(ProviderKind::AesCbc) }
        ));
        assert!(matches!(
            Header::parse(b"k8s:enc:aescbc:v2:key1:x"),
            Header::NewerVersion { provider: "aescbc", version: b"v2" }
        ));
        assert!(matches!(
            Header::parse(b"k8s:enc:kms:v2:cloud-k\xff\xff:\x0a"),
            Header::DamagedName { provider: ProviderKind::KmsV2 }
        ));
        assert!(matches!(
            Header::parse(b"k8s:enc:aescbc:v1:\0\x01"),
            Header::DamagedName { provider: ProviderKind::AesCbc }
        ));
        assert!(matches!(Header::parse(b"k8s:enc:rot13:v1:k:x"), Header::UnknownProvider { provider: b"rot13" }));
    }
}
