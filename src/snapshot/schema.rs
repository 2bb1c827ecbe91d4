//! etcd's own records beside the users' keys (etcd `server/storage/schema`).

use std::ops::ControlFlow;

use serde::Serialize;

use super::bbolt::{Db, Error};
use super::revision::Revision;
use crate::protobuf::{Field, Reader};

/// The bucket of the users' keys.
pub const KEY: &[u8] = b"key";
/// The bucket of what etcd must know to go on.
pub const META: &[u8] = b"meta";

/// The bucket `meta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreMeta {
    /// The index of the last entry of the log that was applied.
    pub consistent_index: Option<u64>,
    /// The term of that entry; since etcd 3.5.
    pub term: Option<u64>,
    /// The version of the layout; since etcd 3.6.
    pub storage_version: Option<String>,
    /// The revision up to which the store was to be compacted.
    pub scheduled_compact_revision: Option<i64>,
    /// The revision up to which it was compacted.
    pub finished_compact_revision: Option<i64>,
    /// Records that are not of the length that they have.
    pub malformed: Vec<String>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The ID, in hexadecimal.
    pub id: String,
    /// The name.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
}

/// What an alarm is about (etcd `AlarmType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Alarm {
    /// The database is full: the restored cluster refuses writes too.
    NoSpace,
    /// The members differ.
    Corrupt,
    /// Another.
    Other,
}

/// What a snapshot tells of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cluster {
    /// The version that all members had.
    pub version: Option<String>,
    /// The members.
    pub members: Vec<Member>,
    /// Alarms: they are restored too.
    pub alarms: Vec<Alarm>,
    /// Whether etcd asks for a user: the restored cluster will too.
    pub auth_enabled: bool,
    /// The names of etcd's users.
    pub users: Vec<String>,
    /// The names of etcd's roles.
    pub roles: Vec<String>,
    /// How many leases there are.
    pub leases: u64,
}

fn number(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

impl StoreMeta {
    /// Reads the bucket. What it lacks stays empty.
    ///
    /// # Errors
    ///
    /// When it is damaged, and the database is read strictly.
    pub fn read(db: &Db) -> Result<Self, Error> {
        let mut meta = Self::default();
        for_each(db, META, |key, value| {
            let compacted = || Revision::parse(value).ok().map(|(revision, _)| revision.main);
            let known = match key {
                b"consistent_index" => set(&mut meta.consistent_index, number(value)),
                b"term" => set(&mut meta.term, number(value)),
                b"storageVersion" => set(&mut meta.storage_version, Some(text(value))),
                b"scheduledCompactRev" => set(&mut meta.scheduled_compact_revision, compacted()),
                b"finishedCompactRev" => set(&mut meta.finished_compact_revision, compacted()),
                _ => true,
            };
            if !known {
                meta.malformed.push(text(key));
            }
        })?;
        Ok(meta)
    }

    /// Up to which revision records are gone; those of the last state before it are not.
    #[must_use]
    pub fn compacted(&self) -> Option<i64> {
        self.finished_compact_revision
    }

    /// The revision of a compaction that was begun and not ended: some records up to it are gone.
    #[must_use]
    pub fn interrupted_compaction(&self) -> Option<i64> {
        let finished = self.finished_compact_revision.unwrap_or(-1);
        self.scheduled_compact_revision.filter(|scheduled| *scheduled > finished)
    }

    /// Up to which revision records may be gone: what a compaction that was interrupted has not removed yet, it may have begun to.
    #[must_use]
    pub fn maybe_compacted(&self) -> Option<i64> {
        self.scheduled_compact_revision.max(self.finished_compact_revision)
    }

    /// The revision of the store, of whose records the last is of this one.
    #[must_use]
    pub fn head(&self, last_record: Option<i64>) -> i64 {
        self.maybe_compacted().max(last_record).unwrap_or(1).max(1)
    }
}

fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

impl Cluster {
    /// Reads the buckets that are about the cluster.
    ///
    /// # Errors
    ///
    /// When one is damaged, and the database is read strictly.
    pub fn read(db: &Db) -> Result<Self, Error> {
        let mut cluster = Self::default();
        for_each(db, b"cluster", |key, value| {
            if key == b"clusterVersion" {
                cluster.version = Some(text(value));
            }
        })?;
        for_each(db, b"members", |key, value| cluster.members.push(member(key, value)))?;
        for_each(db, b"alarm", |key, _| cluster.alarms.push(alarm(key)))?;
        for_each(db, b"auth", |key, value| {
            if key == b"authEnabled" {
                cluster.auth_enabled = value == [1];
            }
        })?;
        for_each(db, b"authUsers", |key, _| cluster.users.push(text(key)))?;
        for_each(db, b"authRoles", |key, _| cluster.roles.push(text(key)))?;
        for_each(db, b"lease", |_, _| cluster.leases += 1)?;
        Ok(cluster)
    }
}

fn for_each(db: &Db, bucket: &[u8], mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Error> {
    let Some(bucket) = db.bucket(bucket) else { return Ok(()) };
    let element = |element: super::bbolt::Element<'_>| {
        visit(element.key, element.value);
        ControlFlow::Continue(())
    };
    db.elements(bucket, element, |_| {})
}

/// IDs exceed what a float holds, so that they are taken from the key and not from the JSON.
fn member(key: &[u8], value: &[u8]) -> Member {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Fields {
        name: String,
        #[serde(rename = "peerURLs")]
        peer_urls: Vec<String>,
    }
    let fields: Fields = serde_json::from_slice(value).unwrap_or_default();
    Member { id: text(key), name: fields.name, peer_urls: fields.peer_urls }
}

/// An `AlarmMember` is the key: field 2 is what the alarm is about.
fn alarm(key: &[u8]) -> Alarm {
    let mut reader = Reader::new(key);
    let mut alarm = Alarm::Other;
    while let Ok(Some((number, field))) = reader.next_field() {
        match (number, field) {
            (2, Field::Varint(1)) => alarm = Alarm::NoSpace,
            (2, Field::Varint(2)) => alarm = Alarm::Corrupt,
            _ => {}
        }
    }
    alarm
}
