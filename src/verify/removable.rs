use std::collections::BTreeMap;
use std::fmt;

use crate::report::{EtcdKey, Removable, RemovableAnswer, VerifyReport, VerifyRow, key_id_hash};
use crate::transformer::{KeyLabel, ProviderKind, ResourceTransformers};

/// A key as one asks whether it can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovableKey {
    /// A key of the configuration.
    Label(KeyLabel),
    /// The beginning of the hash of a KMS key ID, `sha256:` and hexadecimal digits.
    KmsKeyId(String),
}

/// So many digits of a hash tell key IDs apart; fewer are taken for a key ID.
const MIN_HASH_DIGITS: usize = 8;

impl RemovableKey {
    /// Takes `PROVIDER/NAME` for a key of the configuration, and anything else for a KMS key ID or its hash, which may be cut.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_hash = digits.len() >= MIN_HASH_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.parse() {
            Ok(label) => Self::Label(label),
            Err(_) if is_hash && (digits.len() == 64 || digits.len() < text.len()) => {
                Self::KmsKeyId(format!("sha256:{}", digits.to_ascii_lowercase()))
            }
            Err(_) => Self::KmsKeyId(key_id_hash(text)),
        }
    }

    pub(super) fn is_needed_by(&self, row: &VerifyRow, needs: Option<&KeyLabel>) -> bool {
        match self {
            Self::Label(label) => needs == Some(label) || (!row.class.is_readable() && row.value.names(label)),
            Self::KmsKeyId(hash) => row.value.kms_key_id_hash.as_ref().is_some_and(|stored| stored.starts_with(hash)),
        }
    }
}

impl fmt::Display for RemovableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => label.fmt(f),
            Self::KmsKeyId(hash) => write!(f, "KMS key ID {hash}"),
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
    let Needs { keys: needed_by_keys, unreadable, unattributed, of_kms_v1 } = needs;
    let key = asked.to_string();
    let needed_by = needed_by_keys.len() as u64;
    let mut reasons = Vec::new();
    let writes = report.keys.iter().find(|used| used.key == key).map(|used| used.writes.join(", ")).unwrap_or_default();
    if !writes.is_empty() {
        reasons.push(format!("it is the key that writes {writes}"));
    }
    if let RemovableKey::KmsKeyId(hash) = asked {
        let writes = transformers
            .kms_providers()
            .iter()
            .filter(|provider| provider.is_v2())
            .filter(|provider| provider.key_id().is_ok_and(|key_id| key_id_hash(&key_id).starts_with(hash)));
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
        (true, true, RemovableKey::KmsKeyId(_)) => match kms_unknown(transformers, of_kms_v1) {
            None => Removable::Yes,
            Some(reason) => {
                reasons.push(reason);
                Removable::Unknown
            }
        },
        (true, false, _) => {
            reasons.push("not all values were read".to_owned());
            Removable::Unknown
        }
    };
    RemovableAnswer { key, removable, reasons, needed_by, needed_by_keys }
}

/// Why it is not known whether a key of a KMS is needed, when no value names it.
fn kms_unknown(transformers: &ResourceTransformers, of_kms_v1: u64) -> Option<String> {
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
    providers.find_map(|provider| {
        let failure = provider.key_id().err()?;
        Some(format!("no value names it, but {} does not say by which key it writes: {failure}", provider.label()))
    })
}
