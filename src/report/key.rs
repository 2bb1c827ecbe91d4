use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::resource::{Location, NonObject, NonRest};
use crate::source::StoredValue;
use crate::transformer::{Header, KeyLabel};

/// The complete key of a value in etcd. Keys are bytes.
///
/// In JSON it is a field `key`, or `key_b64` when the bytes are not UTF-8; for people, what cannot be printed is escaped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtcdKey(pub Vec<u8>);

impl EtcdKey {
    /// A copy of a key.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(key.to_vec())
    }
}

impl Serialize for EtcdKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(&self.0) {
            Ok(text) => map.serialize_entry("key", text)?,
            Err(_) => map.serialize_entry("key_b64", &STANDARD.encode(&self.0))?,
        }
        map.end()
    }
}

impl fmt::Display for EtcdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.pad(text),
            _ => f.pad(&self.0.escape_ascii().to_string()),
        }
    }
}

impl fmt::Debug for EtcdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a value is and by what it is stored, without looking into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueRow {
    /// The etcd key.
    #[serde(flatten)]
    pub key: EtcdKey,
    /// `resource.group`; nothing when the key is not that of an object.
    pub resource: Option<String>,
    /// The namespace, where the object has one.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: Option<String>,
    /// The revision of the value.
    pub mod_revision: i64,
    /// `identity` for what is stored in the clear; nothing when the header cannot be read.
    pub provider: Option<String>,
    /// The name of the key, or of the KMS provider.
    pub key_name: Option<String>,
    /// `sha256:` and the hash of the KMS key ID, as kube-apiserver logs it.
    pub kms_key_id_hash: Option<String>,
}

impl ValueRow {
    /// The key that the header names, as PROVIDER/NAME.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.provider, &self.key_name) {
            (Some(provider), Some(name)) => format!("{provider}/{name}"),
            (Some(provider), None) => provider.clone(),
            (None, _) => "-".to_owned(),
        }
    }

    /// Whether the header names this key.
    #[must_use]
    pub fn names(&self, label: &KeyLabel) -> bool {
        self.provider.as_deref() == Some(label.provider.name()) && self.key_name.as_deref().unwrap_or("") == label.name
    }

    /// What can be told of a value without any key.
    #[must_use]
    pub fn of(value: &StoredValue, location: &Location<'_>, header: &Header<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (resource, namespace, name) = match location {
            Location::Object { resource, namespace, name, .. } => {
                (Some(resource.to_string()), namespace.map(text), Some(text(name)))
            }
            Location::Unknown { resource: Some(resource), .. } => (Some(resource.to_string()), None, None),
            _ => (None, None, None),
        };
        let provider = match header {
            Header::UnknownProvider { provider } => Some(text(provider)),
            Header::NewerVersion { provider, version } => Some(format!("{provider}:{}", text(version))),
            header => header.provider().map(|provider| provider.to_string()),
        };
        Self {
            key: EtcdKey::new(&value.key),
            resource,
            namespace,
            name,
            mod_revision: value.mod_revision,
            provider,
            key_name: header.name().map(text),
            kms_key_id_hash: header.kms_key_id().map(key_id_hash),
        }
    }
}

/// What values are counted under: their resource, or what else is kept under the prefix.
#[must_use]
pub fn place_of(location: &Location<'_>) -> String {
    let fixed = match location {
        Location::Object { resource, .. } => return resource.to_string(),
        Location::Unknown { resource: Some(resource), .. } => return format!("{resource} (no object key)"),
        Location::NonRest { kind: NonRest::MasterLease, .. } => "masterleases (never encrypted)",
        Location::NonRest { kind: NonRest::PeerServerLease, .. } => "peerserverleases (never encrypted)",
        Location::NonRest { kind: NonRest::Range, .. } => "ranges (never encrypted)",
        Location::NonObject(NonObject::Health) => "health (no object)",
        Location::NonObject(NonObject::CompactRevision) => "compact_rev_key (no object)",
        Location::Unknown { resource: None, .. } => "(unknown)",
        Location::Foreign => "(not Kubernetes)",
    };
    fixed.to_owned()
}

/// How key IDs are shown: they may tell an account or a project. Upstream: `envelope.GetHashIfNotEmpty`.
#[must_use]
pub fn key_id_hash(key_id: &str) -> String {
    if key_id.is_empty() { String::new() } else { format!("sha256:{}", hex::encode(Sha256::digest(key_id))) }
}

/// The beginning of [`key_id_hash`], enough to tell the keys of a cluster apart.
#[must_use]
pub fn short_key_id_hash(key_id: &str) -> String {
    let mut hash = key_id_hash(key_id);
    hash.truncate("sha256:".len() + 8);
    hash
}

/// A key as people tell it from others: of a KMS v2 with the beginning of the hash of its key ID.
#[must_use]
pub fn key_in_words(label: &KeyLabel, key_id: Option<&str>) -> String {
    match key_id {
        Some(key_id) => format!("{label} {}", short_key_id_hash(key_id)),
        None => label.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_text_where_it_can_be_and_base64_where_it_cannot() {
        let json = |key: &[u8]| serde_json::to_string(&EtcdKey::new(key)).unwrap();
        assert_eq!(json(b"/registry/secrets/a/b"), r#"{"key":"/registry/secrets/a/b"}"#);
        assert_eq!(json(b"/registry/\xff"), r#"{"key_b64":"L3JlZ2lzdHJ5L/8="}"#);
        assert_eq!(EtcdKey::new(b"/registry/\xff\n").to_string(), "/registry/\\xff\\n");
        assert_eq!(EtcdKey::new("/registry/é".as_bytes()).to_string(), "/registry/é");
    }

    #[test]
    fn key_ids_are_hashed_as_kube_apiserver_does() {
        assert_eq!(key_id_hash("1"), "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b");
        assert_eq!(key_id_hash(""), "");
    }
}
