use std::collections::BTreeMap;
use std::fmt;

use crate::report::{EtcdKey, Removable, RemovableAnswer, VerifyReport, VerifyRow, key_id_hash};
use crate::transformer::{KeyLabel, ProviderKind, ResourceTransformers};

/// A key as one asks whether it can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovableKey {
    /// A key of the configuration.
    Label(KeyLabel),
    /// A KMS key ID, by the hash of the text; and by the beginning of a hash, when the text looks like one.
    KmsKeyId {
        /// `sha256:` and the hash of the text.
        hash: String,
        /// `sha256:` and hexadecimal digits, as the text has them.
        prefix: Option<String>,
    },
}

/// So many digits of a hash tell key IDs apart; fewer are taken for a key ID.
const MIN_HASH_DIGITS: usize = 8;
const FULL_HASH_DIGITS: usize = 64;

impl RemovableKey {
    /// Takes `PROVIDER/NAME` for a key of the configuration, and anything else for a KMS key ID or its hash, which may be cut.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_hash = digits.len() >= MIN_HASH_DIGITS
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && (digits.len() == FULL_HASH_DIGITS || digits.len() < text.len());
        match text.parse() {
            Ok(label) => Self::Label(label),
            Err(_) => Self::KmsKeyId {
                hash: key_id_hash(text),
                prefix: is_hash.then(|| format!("sha256:{}", digits.to_ascii_lowercase())),
            },
        }
    }

    /// Whether the hash of a key ID is that of the one that is asked about. A key ID may look like a hash itself.
    fn is_hash(&self, stored: &str) -> bool {
        match self {
            Self::Label(_) => false,
            Self::KmsKeyId { hash, prefix } => {
                stored == hash || prefix.as_ref().is_some_and(|prefix| stored.starts_with(prefix))
            }
        }
    }

    /// Whether it is a whole hash, as reports and kube-apiserver's metrics show it: then it was copied, and not misspelled.
    fn is_full_hash(&self) -> bool {
        let length = "sha256:".len() + FULL_HASH_DIGITS;
        matches!(self, Self::KmsKeyId { prefix: Some(prefix), .. } if prefix.len() == length)
    }

    pub(super) fn is_needed_by(&self, row: &VerifyRow, needs: Option<&KeyLabel>) -> bool {
        match self {
            Self::Label(label) => needs == Some(label) || (!row.class.is_readable() && row.value.names(label)),
            Self::KmsKeyId { .. } => row.value.kms_key_id_hash.as_ref().is_some_and(|stored| self.is_hash(stored)),
        }
    }
}

impl fmt::Display for RemovableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => label.fmt(f),
            Self::KmsKeyId { prefix: Some(prefix), .. } => write!(f, "KMS key ID {prefix}"),
            Self::KmsKeyId { hash, prefix: None } => write!(f, "KMS key ID {hash}"),
        }
    }
}

/// How many values may have been written by a key of the provider, and do not tell by which.
pub(super) fn unattributed_to(provider: ProviderKind, unattributed: &BTreeMap<Option<String>, u64>) -> u64 {
    // A newer version stands as `aescbc:v2`, and both versions of the KMS API as `kms`.
    let stored = provider.name().split('-').next().unwrap_or_default();
    let may_be = |stored_provider: &Option<String>| match stored_provider.as_deref() {
        Some(ProviderKind::IDENTITY_NAME) => false,
        Some(name) => name.starts_with(stored),
        None => true,
    };
    unattributed.iter().filter(|(provider, _)| may_be(provider)).map(|(_, count)| count).sum()
}

/// What the values say of the key that is asked about.
pub(super) struct Needs<'a> {
    pub(super) keys: Vec<EtcdKey>,
    pub(super) unreadable: u64,
    pub(super) unattributed: &'a BTreeMap<Option<String>, u64>,
    /// Values that may be of some key of a KMS v2, and do not say of which.
    pub(super) without_key_id: u64,
    /// Values of KMS v1, which do not tell the key of the KMS.
    pub(super) of_kms_v1: u64,
}

/// Whether the key can go.
pub(super) fn removable(
    asked: &RemovableKey,
    report: &VerifyReport,
    needs: Needs<'_>,
    transformers: &ResourceTransformers,
) -> RemovableAnswer {
    let Needs { keys: needed_by_keys, unreadable, unattributed, without_key_id, of_kms_v1 } = needs;
    let key = asked.to_string();
    let needed_by = needed_by_keys.len() as u64;
    let mut reasons = Vec::new();
    let writes = report.keys.iter().find(|used| used.key == key).map(|used| used.writes.join(", ")).unwrap_or_default();
    if !writes.is_empty() {
        reasons.push(format!("it is the key that writes {writes}"));
    }
    if matches!(asked, RemovableKey::KmsKeyId { .. }) {
        let writes = transformers
            .kms_providers()
            .iter()
            .filter(|kms| kms.is_v2() && kms.key_id().is_ok_and(|key_id| asked.is_hash(&key_id_hash(&key_id))));
        reasons.extend(writes.map(|provider| format!("the KMS of {} writes by it", provider.label())));
    }
    if needed_by > 0 {
        let values = if needed_by == 1 { "1 live value needs it" } else { &format!("{needed_by} live values need it") };
        reasons.push(match unreadable {
            0 => values.to_owned(),
            _ if unreadable == needed_by => format!("{values}, unreadable as they are: restore or delete them first"),
            _ => format!("{values}, {unreadable} of them unreadable as they are"),
        });
    }
    if report.complete && report.values == 0 {
        reasons.push("no value was found at all: is it the etcd of the API server, and its --etcd-prefix?".to_owned());
        return RemovableAnswer { key, removable: Removable::Unknown, reasons, needed_by, needed_by_keys };
    }
    let unknown = match asked {
        RemovableKey::Label(label) if label.provider != ProviderKind::Identity => {
            unattributed_to(label.provider, unattributed)
        }
        _ => 0,
    };
    let removable = match (reasons.is_empty(), report.complete, asked) {
        (false, _, _) => Removable::No,
        (true, true, _) if unknown > 0 => {
            reasons.push(format!("{unknown} unreadable values may be of it: their headers do not tell the key"));
            Removable::Unknown
        }
        (true, true, _) if !report.single_revision => {
            reasons.push("the values were not read at a single revision: run it again".to_owned());
            Removable::Unknown
        }
        (true, true, RemovableKey::Label(_)) => Removable::Yes,
        (true, true, RemovableKey::KmsKeyId { .. }) => {
            match kms_unknown(asked, transformers, without_key_id, of_kms_v1) {
                None => Removable::Yes,
                Some(reason) => {
                    reasons.push(reason);
                    Removable::Unknown
                }
            }
        }
        (true, false, _) => {
            reasons.push("not all values were read".to_owned());
            Removable::Unknown
        }
    };
    RemovableAnswer { key, removable, reasons, needed_by, needed_by_keys }
}

/// Why it is not known whether a key of a KMS is needed, when no value names it.
fn kms_unknown(
    asked: &RemovableKey,
    transformers: &ResourceTransformers,
    without_key_id: u64,
    of_kms_v1: u64,
) -> Option<String> {
    if without_key_id > 0 {
        return Some(format!("no value names it, but {without_key_id} unreadable values may be of it and do not tell"));
    }
    if of_kms_v1 > 0 {
        return Some(format!("no value names it, but {of_kms_v1} values of KMS v1 do not tell by which key they are"));
    }
    let v2 = transformers.kms_providers().iter().filter(|provider| provider.is_v2());
    let mut providers = v2.peekable();
    if providers.peek().is_none() {
        return Some(
            "no value names it, but no KMS v2 is configured that could say whether it still writes by it".to_owned(),
        );
    }
    let unknown = providers.find_map(|provider| {
        let failure = provider.key_id().err()?;
        Some(format!("no value names it, but {} does not say by which key it writes: {failure}", provider.label()))
    });
    unknown.or_else(|| {
        (!asked.is_full_hash()).then(|| {
            "no value names it, and no KMS writes by it here; but whether it is spelled right, and whole, cannot be told. Ask by all 64 \
             digits of its hash, as they stand in `atrest-kms-plugin list`, in rekey's journal or in kube-apiserver's metrics"
                .to_owned()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key ID of 64 hexadecimal digits was taken for a hash alone, and said to be needed by nothing.
    #[test]
    fn a_key_id_that_looks_like_a_hash_is_both() {
        let raw = "ab".repeat(32);
        let asked = RemovableKey::parse(&raw);
        assert!(asked.is_hash(&key_id_hash(&raw)) && asked.is_hash(&format!("sha256:{raw}")));
        let cut = RemovableKey::parse("sha256:0123abcd");
        assert!(
            cut.is_hash(&format!("sha256:0123abcd{}", "0".repeat(56))) && cut.is_hash(&key_id_hash("sha256:0123abcd"))
        );
        assert!(!cut.is_full_hash() && asked.is_full_hash());
        let word = RemovableKey::parse("kek-1");
        assert!(word.is_hash(&key_id_hash("kek-1")) && !word.is_full_hash());
    }
}
