use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::report::{BucketSize, InspectReport, NeededKey, Pages, key_id_hash};
use crate::snapshot::bbolt::{Error as DbError, Item, Mode};
use crate::snapshot::schema::{Alarm, Cluster};
use crate::snapshot::wal::{self, Directory, Index, Request};
use crate::snapshot::{DataDir, Error, Problems, RecordKind, Snapshot, Trailer, View};
use crate::transformer::Header;

/// How many places of damage are named.
const SHOWN_DAMAGE: usize = 100;
/// How many entries of the log that are not in the database are named.
const SHOWN_ENTRIES: usize = 20;

/// Says what a backup is, and what it takes to use it.
///
/// # Errors
///
/// When it cannot be read; where it is read strictly, also when it is damaged.
pub fn inspect(snapshot: &Snapshot, source: String, data_dir: Option<&DataDir>) -> Result<InspectReport, Error> {
    let mut report = InspectReport::new(source);
    let (db, meta) = (snapshot.db(), snapshot.meta());
    report.file_size = db.input().len();
    // The hash of the file takes as long as everything else.
    let (trailer, read) = rayon::join(|| snapshot.trailer(), || read(snapshot, &mut report));
    read?;
    report.trailer = trailer?;
    report.compacted_revision = meta.compacted();
    report.interrupted_compaction = meta.interrupted_compaction();
    report.consistent_index = meta.consistent_index;
    report.cluster = Cluster::read(db)?;
    report.etcd_version = match (&meta.storage_version, &report.cluster.version) {
        (Some(version), _) => version.clone(),
        (None, Some(version)) => version.clone(),
        (None, None) if meta.term.is_some() => "3.5".to_owned(),
        (None, None) => "3.4 or earlier".to_owned(),
    };
    warn(snapshot, data_dir.is_some(), &mut report);
    if let Some(data_dir) = data_dir {
        look_at_log(data_dir, meta.consistent_index.unwrap_or(0), &mut report);
    }
    Ok(report)
}

fn read(snapshot: &Snapshot, report: &mut InspectReport) -> Result<(), Error> {
    let db = snapshot.db();
    let live = snapshot.live_offsets(&View::default())?;
    let mut keys: BTreeMap<(String, Option<String>), [u64; 2]> = BTreeMap::new();
    let mut problems = Problems::default();
    let mut last = None;
    snapshot.records(&mut problems, |record| {
        report.records += 1;
        last = Some(record.revision.main);
        match record.kind() {
            RecordKind::Tombstone => report.tombstones += 1,
            RecordKind::RevisionBump => {}
            RecordKind::Put => {
                let [live_values, history] = keys.entry(key_of(&Header::parse(record.kv.value))).or_default();
                let is_live = live.binary_search(&record.offset).is_ok();
                *(if is_live { live_values } else { history }) += 1;
            }
        }
        ControlFlow::Continue(())
    })?;
    report.revision = snapshot.meta().head(last);
    report.live_keys = live.len() as u64;
    report.keys = keys
        .into_iter()
        .map(|((key, kms_key_id_hash), [live, history])| NeededKey { key, kms_key_id_hash, live, history })
        .collect();
    let mut buckets: BTreeMap<Vec<u8>, (u64, u64)> =
        db.buckets().iter().map(|bucket| (bucket.name.clone(), (0, 0))).collect();
    let (mut slack, mut hazards, mut damage, mut damaged) = (0, Vec::new(), Vec::new(), 0_u64);
    let map = db.map_pages(|bucket, item| match item {
        Item::Element(element) => {
            if let Some((elements, bytes)) = buckets.get_mut(&bucket.name) {
                *elements += 1;
                *bytes += (element.key.len() + element.value.len()) as u64;
            }
        }
        Item::Slack { .. } => slack += 1,
        Item::Hazard(hazard) => {
            if hazards.len() < SHOWN_DAMAGE {
                hazards.push(hazard.to_string());
            }
        }
        Item::Damage(found) => {
            damaged += 1;
            if damage.len() < SHOWN_DAMAGE {
                damage.push(found);
            }
        }
    });
    if let (Mode::Strict, Some(found)) = (db.mode(), damage.first()) {
        return Err(DbError::Damaged(found.clone()).into());
    }
    report.buckets = buckets
        .into_iter()
        .map(|(name, (elements, bytes))| BucketSize { bucket: name.escape_ascii().to_string(), elements, bytes })
        .collect();
    let page = db.meta();
    report.pages =
        Pages { size: page.page_size, total: page.high_water, free: map.used.pages().saturating_sub(map.used.len()) };
    let status = snapshot.status(|_| {})?;
    report.status_hash = status.hash;
    report.status_revision = status.revision;
    report.total_keys = status.elements;
    report.total_size = status.size;
    report.hash_kv = snapshot.hash_kv(None)?;
    report.complete = problems.is_clean() && damaged == 0;
    report.warnings.extend(problems.lines().into_iter().take(SHOWN_DAMAGE).map(|line| format!("damaged: {line}")));
    if damaged > SHOWN_DAMAGE as u64 {
        report.warnings.push(format!("{damaged} places are damaged"));
    }
    let elsewhere = damage.iter().filter(|found| !problems.damage.contains(found));
    report.warnings.extend(elsewhere.map(|found| format!("damaged: {found}")));
    if problems.inconsistent > 0 {
        report.warnings.push(format!("{} records contradict themselves", problems.inconsistent));
    }
    if problems.recovered > 0 {
        let recovered = problems.recovered;
        report.warnings.push(format!(
            "{recovered} records of lost revisions were found in pages that nothing refers to; {} of them are from before the last \
             compaction, which may have removed them",
            problems.maybe_compacted
        ));
    }
    report.warnings.extend(hazards);
    report.warnings.extend(map.freelist.map(|problem| format!("the list of free pages: {problem}")));
    if slack > 0 {
        report.warnings.push(format!("{slack} pages have bytes behind their elements, where bbolt writes none"));
    }
    Ok(())
}

fn key_of(header: &Header<'_>) -> (String, Option<String>) {
    (header.label_in_words(), header.kms_key_id().map(key_id_hash))
}

/// What somebody who restores it should know.
fn warn(snapshot: &Snapshot, is_data_dir: bool, report: &mut InspectReport) {
    let mut warnings: Vec<_> = snapshot.db().warnings().iter().map(ToString::to_string).collect();
    // etcd's own database never has a hash.
    let is_as_expected = match report.trailer {
        Trailer::Ok => true,
        Trailer::Missing { .. } => is_data_dir,
        _ => false,
    };
    if !is_as_expected {
        warnings.push(report.trailer.to_string());
    }
    warnings.extend(
        snapshot.meta().malformed.iter().map(|name| format!("the record {name} of the bucket meta is malformed")),
    );
    if snapshot.db().bucket(crate::snapshot::schema::META).is_none() {
        warnings.push("there is no bucket `meta`: etcd restores nothing without it".to_owned());
    }
    if let Some(revision) = report.interrupted_compaction {
        warnings.push(format!(
            "a compaction at revision {revision} was not finished: etcd goes on with it, and some records up to there may be gone"
        ));
    }
    for alarm in &report.cluster.alarms {
        warnings.push(match alarm {
            Alarm::NoSpace => {
                "the alarm NOSPACE is on: a cluster that is restored refuses writes until `etcdctl alarm disarm`"
                    .to_owned()
            }
            Alarm::Corrupt => "the alarm CORRUPT is on: the members of this cluster differed".to_owned(),
            Alarm::Other => "an unknown alarm is on".to_owned(),
        });
    }
    if report.cluster.auth_enabled {
        warnings.push(
            "auth is on: a cluster that is restored asks for a user, which kube-apiserver has not by default"
                .to_owned(),
        );
    }
    if report.pages.free > 0 {
        warnings.push(format!(
            "{} of {} pages are free and may hold what was deleted or overwritten: `atrest snapshot residue` looks",
            report.pages.free, report.pages.total
        ));
    }
    report.warnings.extend(warnings);
}

/// What a crash, or the last tenth of a second, has left in the write-ahead log and not in the database: each entry in a line.
///
/// # Errors
///
/// When the log cannot be read.
pub fn not_yet_in_db(data_dir: &DataDir, consistent_index: u64) -> Result<Vec<String>, wal::Error> {
    let log = Directory::list(&data_dir.wal())?.open()?;
    let index = Index::build(&log, wal::Mode::Salvage)?;
    let wanted: Vec<_> = index.not_yet_in_db(consistent_index).map(|entry| entry.index).collect();
    let mut entries = Vec::new();
    index.visit(&log, |indexed, entry| {
        if wanted.binary_search(&indexed.index).is_ok() && indexed.fate == wal::Fate::Effective {
            entries.push(format!("{}: {}", indexed.index, Request::parse(&entry)));
        }
    })?;
    Ok(entries)
}

fn look_at_log(data_dir: &DataDir, consistent_index: u64, report: &mut InspectReport) {
    match not_yet_in_db(data_dir, consistent_index) {
        Ok(entries) => {
            if !entries.is_empty() {
                report.warnings.push(match entries.len() {
                    1 => "an entry of the write-ahead log is not in the database yet: etcd applies it when it starts".to_owned(),
                    count => format!(
                        "{count} entries of the write-ahead log are not in the database yet: etcd applies them when it starts"
                    ),
                });
            }
            report.not_yet_in_db = entries.into_iter().take(SHOWN_ENTRIES).collect();
        }
        Err(error) => report.warnings.push(format!("the write-ahead log: {}", crate::causes::Chain(&error))),
    }
}
