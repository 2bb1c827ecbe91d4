use serde::Serialize;

use super::{Class, EtcdKey, SCHEMA_VERSION, VerifyRow};
use crate::transformer::ProviderKind;

/// Values that a rotation treats alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanGroup {
    /// `resource.group`.
    pub resource: String,
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The key that the header names.
    pub from: String,
    /// The key that writes now.
    pub to: String,
    /// How many values.
    pub values: u64,
    /// The length of the stored values, in bytes.
    pub bytes: u64,
}

/// What `rekey` would do, judged by headers alone.
#[derive(Clone, Debug, Serialize)]
pub struct RekeyPlan {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// The revision at which it was read.
    pub revision: i64,
    /// Whether it was read to the end.
    pub complete: bool,
    /// How many values of configured resources were looked at.
    pub values: u64,
    /// What is to be rewritten.
    pub rewrite: Vec<PlanGroup>,
    /// How many values that is.
    pub to_rewrite: u64,
    /// How many values have to be opened to tell whether they are to be rewritten.
    pub to_open: u64,
    /// How many bytes the rewriting adds to etcd's history until it is compacted, about.
    pub growth_bytes: u64,
    /// How many values are written by the right key already, by their header.
    pub current: u64,
    /// How many values cannot be read, by their header.
    pub unreadable: u64,
    /// By cause.
    pub unreadable_groups: Vec<(Class, PlanGroup)>,
    /// Keys that would write and open none of the values that name them: they are not the cluster's.
    pub wrong_keys: Vec<WrongKey>,
    /// What should be known before `--yes`.
    pub warnings: Vec<String>,
}

impl RekeyPlan {
    /// What is to be said when values leave encryption.
    #[must_use]
    pub fn decryption_warning(&self) -> Option<String> {
        let to_identity = self.rewrite.iter().filter(|group| group.to == ProviderKind::IDENTITY_NAME);
        let values: u64 = to_identity.map(|group| group.values).sum();
        (values > 0).then(|| format!("identity is the first provider: {values} values are to be stored in the clear"))
    }
}

/// A key of the configuration that has the name, and not the bytes, of the key that wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongKey {
    /// The key, as PROVIDER/NAME.
    pub key: String,
    /// How many values name it and do not open.
    pub values: u64,
}

impl RekeyPlan {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            revision: 0,
            complete: true,
            values: 0,
            rewrite: Vec::new(),
            to_rewrite: 0,
            to_open: 0,
            growth_bytes: 0,
            current: 0,
            unreadable: 0,
            unreadable_groups: Vec::new(),
            wrong_keys: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl RekeyPlan {
    /// Takes in the plan for another etcd of the same API servers. The revision stays that of the first.
    pub fn absorb(&mut self, other: Self) {
        self.source = format!("{}; {}", self.source, other.source);
        self.complete &= other.complete;
        self.values += other.values;
        self.to_rewrite += other.to_rewrite;
        self.to_open += other.to_open;
        self.growth_bytes += other.growth_bytes;
        self.current += other.current;
        self.unreadable += other.unreadable;
        for group in other.rewrite {
            absorb_group(&mut self.rewrite, group);
        }
        self.unreadable_groups.extend(other.unreadable_groups);
        for wrong in other.wrong_keys {
            match self.wrong_keys.iter_mut().find(|known| known.key == wrong.key) {
                Some(known) => known.values += wrong.values,
                None => self.wrong_keys.push(wrong),
            }
        }
        self.warnings.extend(other.warnings);
        self.warnings.dedup();
    }
}

/// Groups that are alike become one.
fn absorb_group(groups: &mut Vec<PlanGroup>, group: PlanGroup) {
    let is_alike = |known: &&mut PlanGroup| {
        (&known.resource, &known.namespace, &known.from, &known.to)
            == (&group.resource, &group.namespace, &group.from, &group.to)
    };
    match groups.iter_mut().find(is_alike) {
        Some(known) => {
            known.values += group.values;
            known.bytes += group.bytes;
        }
        None => groups.push(group),
    }
}

/// One write, as the journal keeps it.
#[derive(Clone, Debug, Serialize)]
pub struct JournalEntry {
    /// When, in RFC 3339 and UTC.
    pub time: String,
    /// The cluster, in hexadecimal digits; kine has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The key.
    #[serde(flatten)]
    pub key: EtcdKey,
    /// The revision of the value that was replaced.
    pub old_revision: i64,
    /// The revision of the new value.
    pub new_revision: i64,
    /// What the replaced value began with; `identity` for plaintext.
    pub old_header: String,
    /// What the new value begins with.
    pub new_header: String,
    /// The hash of the KMS key ID of the replaced value, of KMS v2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_kms_key_id_hash: Option<String>,
    /// The hash of the KMS key ID of the new value, of KMS v2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_kms_key_id_hash: Option<String>,
}

/// A value that was due and is not rewritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRewritten {
    /// The key.
    #[serde(flatten)]
    pub key: EtcdKey,
    /// Its revision.
    pub mod_revision: i64,
    /// Why, and what to do.
    pub message: String,
}

/// What `rekey` did.
#[derive(Clone, Debug, Serialize)]
pub struct RekeyReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read and written.
    pub source: String,
    /// Whether it ran to the end.
    pub complete: bool,
    /// How many values the plan had for rewriting.
    pub planned: u64,
    /// Values rewritten and read back.
    pub rewritten: u64,
    /// Values that needed nothing: written by the right key from the beginning, or by somebody else meanwhile.
    pub already_current: u64,
    /// Keys that were deleted meanwhile; they stay deleted.
    pub gone: u64,
    /// Values that would be larger than etcd takes; not attempted.
    pub too_large: Vec<NotRewritten>,
    /// Writes that failed.
    pub failed: Vec<NotRewritten>,
    /// Values that cannot be read or are wrong, and are left as they are.
    pub unreadable: Vec<VerifyRow>,
    /// Values below the directory of a resource whose key is not that of an object; never rewritten.
    pub not_objects: Vec<NotRewritten>,
    /// Values that the final pass found to be stale; nothing when it was not made, or not to its end.
    pub still_stale: Option<u64>,
    /// The first keys of them.
    pub still_stale_keys: Vec<EtcdKey>,
    /// Whether the final pass was made.
    pub verified: bool,
    /// How many values it found.
    pub read_again: u64,
    /// By resource and namespace: what was rewritten.
    pub groups: Vec<PlanGroup>,
    /// Keys of the configuration that live values still need, as PROVIDER/NAME.
    pub keys_in_use: Vec<String>,
    /// Keys of the configuration that no live value needs.
    pub keys_unused: Vec<String>,
    /// How long the writing took, in seconds.
    pub seconds: f64,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl RekeyReport {
    pub(crate) fn new(source: String) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            source,
            complete: true,
            planned: 0,
            rewritten: 0,
            already_current: 0,
            gone: 0,
            too_large: Vec::new(),
            failed: Vec::new(),
            unreadable: Vec::new(),
            not_objects: Vec::new(),
            still_stale: None,
            still_stale_keys: Vec::new(),
            verified: false,
            read_again: 0,
            groups: Vec::new(),
            keys_in_use: Vec::new(),
            keys_unused: Vec::new(),
            seconds: 0.0,
            notes: Vec::new(),
        }
    }
}

impl RekeyReport {
    /// Takes in what was done in another etcd of the same API servers.
    pub fn absorb(&mut self, other: Self) {
        self.source = format!("{}; {}", self.source, other.source);
        self.complete &= other.complete;
        self.planned += other.planned;
        self.rewritten += other.rewritten;
        self.already_current += other.already_current;
        self.gone += other.gone;
        self.too_large.extend(other.too_large);
        self.failed.extend(other.failed);
        self.unreadable.extend(other.unreadable);
        self.not_objects.extend(other.not_objects);
        self.still_stale = self.still_stale.zip(other.still_stale).map(|(a, b)| a + b);
        self.still_stale_keys.extend(other.still_stale_keys);
        self.verified &= other.verified;
        self.read_again += other.read_again;
        for group in other.groups {
            absorb_group(&mut self.groups, group);
        }
        for key in other.keys_in_use {
            if !self.keys_in_use.contains(&key) {
                self.keys_in_use.push(key);
            }
        }
        // A key that one of them needs is needed.
        let unused = std::mem::take(&mut self.keys_unused).into_iter();
        self.keys_unused = unused.filter(|key| other.keys_unused.contains(key)).collect();
        self.seconds += other.seconds;
        self.notes.extend(other.notes);
        self.notes.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(resource: &str, values: u64) -> PlanGroup {
        let text = str::to_owned;
        PlanGroup { resource: text(resource), namespace: text(""), from: text("a"), to: text("b"), values, bytes: 10 }
    }

    #[test]
    fn a_key_that_one_etcd_needs_is_needed() {
        let text = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let mut one =
            RekeyReport { keys_in_use: text(&["x"]), keys_unused: text(&["y", "z"]), ..RekeyReport::new("1".into()) };
        let other =
            RekeyReport { keys_in_use: text(&["x", "y"]), keys_unused: text(&["z"]), ..RekeyReport::new("2".into()) };
        one.still_stale = Some(1);
        one.verified = true;
        one.groups = vec![group("events", 1)];
        let other = RekeyReport { still_stale: Some(2), groups: vec![group("events", 2), group("pods", 3)], ..other };
        one.absorb(other);
        assert_eq!((&one.keys_in_use, &one.keys_unused), (&text(&["x", "y"]), &text(&["z"])));
        assert_eq!((one.still_stale, one.verified, one.source.as_str()), (Some(3), false, "1; 2"));
        assert_eq!(one.groups, [PlanGroup { bytes: 20, ..group("events", 3) }, group("pods", 3)]);
        one.absorb(RekeyReport::new("3".into()));
        assert_eq!(one.still_stale, None);
    }
}
