use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::doctor::evidence::{Compaction, EtcdProbe, MemberProbe, Timing, WriteProbe};
use crate::storage::{Alarm, Client, ConnectOptions, Error, Written};

/// Where the throw-away key is: outside of everything that API servers store.
pub const THROW_AWAY: &[u8] = b"/atrest.doctor/";

/// What API servers note their compactions in; it is there in every cluster, and small.
const COMPACT_REV: &[u8] = b"compact_rev_key";

/// How many calls of each kind are timed.
const CALLS: usize = 100;

/// How long one kind is timed: a slow etcd is known to be slow after some calls.
const LONGEST: Duration = Duration::from_secs(5);

/// How often the throw-away key is looked for when a write failed.
const CLEANING: usize = 5;

/// Measures etcd: each member by options that have its endpoint alone. Nothing is written unless `write` names a throw-away key
/// below [`THROW_AWAY`], which is removed again.
pub async fn etcd(members: Vec<ConnectOptions>, write: Option<Vec<u8>>) -> EtcdProbe {
    let mut probe = EtcdProbe::default();
    let mut answering = None;
    for (member, client) in join_all(members.into_iter().map(member)).await {
        probe.members.push(member);
        answering = answering.or(client);
    }
    let Some(client) = answering else { return probe };
    let read = timed(|| client.timed_get(COMPACT_REV, true)).await;
    (probe.serializable, probe.read_error) = (read.0, read.1.map(|error| error.to_string()));
    let read = timed(|| client.timed_get(COMPACT_REV, false)).await;
    probe.linearizable = read.0;
    probe.read_error = probe.read_error.or(read.1.map(|error| error.to_string()));
    if let Some(key) = write {
        probe.write = Some(write_probe(&client, &key).await);
    }
    let alarms = client.alarms().await.ok();
    let named = |(member, alarm): (u64, Alarm)| (format!("{member:x}"), alarm.name());
    probe.alarms = alarms.map(|alarms| alarms.into_iter().map(named).collect());
    probe.leases = client.leases().await.ok();
    let current = probe.members.iter().map(|member| member.revision).max().unwrap_or_default();
    if probe.read_error.is_none()
        && let Ok(Some(compact)) = client.get(COMPACT_REV).await
        && let Some(revision) = std::str::from_utf8(&compact.value).ok().and_then(|text| text.parse().ok())
    {
        probe.compaction = Some(Compaction { revision, current });
    }
    probe
}

async fn member(options: ConnectOptions) -> (MemberProbe, Option<Client>) {
    let endpoint = options.endpoints.first().map(ToString::to_string).unwrap_or_default();
    let failed = |error: &Error| match error {
        // The endpoint stands before it.
        Error::Unreachable { endpoints } => {
            endpoints.first().map_or_else(|| error.to_string(), |one| one.failure.to_string())
        }
        error => error.to_string(),
    };
    let begun = Instant::now();
    let client = match Client::connect(options).await {
        Ok(client) => client,
        Err(error) => return (MemberProbe { endpoint, error: Some(failed(&error)), ..MemberProbe::default() }, None),
    };
    let connected_in = Some(begun.elapsed());
    let known = match client.member_status().await {
        Ok(status) => MemberProbe {
            version: status.version,
            member_id: status.member_id,
            cluster_id: status.cluster_id,
            leader: status.leader,
            raft_term: status.raft_term,
            raft_index: status.raft_index,
            raft_applied_index: status.raft_applied_index,
            db_size: status.db_size,
            db_size_in_use: status.db_size_in_use,
            quota: status.quota,
            revision: status.revision,
            errors: status.errors,
            ..MemberProbe::default()
        },
        // It answers, and does not tell: kine does not in all versions.
        Err(Error::Etcd { .. } | Error::PermissionDenied) => MemberProbe::default(),
        Err(error) => MemberProbe { error: Some(failed(&error)), ..MemberProbe::default() },
    };
    (MemberProbe { endpoint, connected_in, ..known }, Some(client))
}

/// Times calls one after the other, until one fails.
async fn timed<F: Future<Output = Result<Duration, Error>>>(call: impl Fn() -> F) -> (Timing, Option<Error>) {
    let mut times = Vec::new();
    let begun = Instant::now();
    let mut failed = None;
    while times.len() < CALLS && (begun.elapsed() < LONGEST || times.is_empty()) {
        match call().await {
            Ok(time) => times.push(time),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    (Timing::new(times), failed)
}

/// Creates a key, changes it and deletes it, each by compare and swap. Whatever happens, the key is gone afterwards, or said not to be.
async fn write_probe(client: &Client, key: &[u8]) -> WriteProbe {
    let mut times = Vec::new();
    let (mut error, mut no_space) = (None, false);
    let mut revision = 0;
    let begun = Instant::now();
    while times.len() < CALLS && (begun.elapsed() < LONGEST || times.is_empty()) {
        let at = Instant::now();
        match client.optimistic_put(key, b"atrest doctor: may be deleted".to_vec(), revision, 0).await {
            Ok(Written::Done { revision: written }) => {
                times.push(at.elapsed());
                revision = written;
            }
            Ok(Written::Conflict { .. }) => {
                error = Some("somebody else has written the throw-away key".to_owned());
                break;
            }
            Err(failed) => {
                no_space = matches!(failed, Error::NoSpace);
                error = Some(failed.to_string());
                break;
            }
        }
    }
    let removed = remove(client, key, revision).await;
    WriteProbe { key: String::from_utf8_lossy(key).into_owned(), times: Timing::new(times), error, no_space, removed }
}

/// Deletes the key. After a write that failed it may or may not be there, at a revision that is not known.
async fn remove(client: &Client, key: &[u8], mut revision: i64) -> bool {
    for _ in 0..CLEANING {
        match client.optimistic_delete(key, revision).await {
            Ok(Written::Done { .. } | Written::Conflict { current: None }) => return true,
            Ok(Written::Conflict { current: Some(current) }) => revision = current.mod_revision,
            // The key is a random one of ours.
            Err(Error::NoSpace) => return client.delete_own(key).await.is_ok(),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    false
}
