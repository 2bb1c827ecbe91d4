//! From where on something is slow, or many. Each says whose opinion it is.

/// etcd's community guidance for the disk of the log: 99 of 100 syncs within 10 ms. Not a constant of its code.
pub(super) const WAL_FSYNC_SECONDS: f64 = 0.010;

/// etcd's community guidance for the database file: 99 of 100 commits within 25 ms. Not a constant of its code.
pub(super) const BACKEND_COMMIT_SECONDS: f64 = 0.025;

/// A call of etcd for one key: etcd itself logs what takes longer to apply as slow (`--warning-apply-duration`, 100 ms).
pub(super) const ETCD_CALL_SECONDS: f64 = 0.1;

/// A call of etcd for a range: ours. API servers read at most 10000 keys at once.
pub(super) const ETCD_RANGE_SECONDS: f64 = 1.0;

/// Kubernetes' objective for requests about one object: 99 of 100 within 1 s.
pub(super) const OBJECT_REQUEST_SECONDS: f64 = 1.0;

/// Kubernetes' objective for lists of a namespace, of old 5 s.
pub(super) const NAMESPACE_REQUEST_SECONDS: f64 = 5.0;

/// Kubernetes' objective for lists of the whole cluster: 30 s.
pub(super) const CLUSTER_REQUEST_SECONDS: f64 = 30.0;

/// Opening or sealing a value: ours. Without a call of a KMS it takes microseconds.
pub(super) const TRANSFORMATION_SECONDS: f64 = 0.010;

/// A call of a KMS plugin: ours. The default timeout is 3 s, and a list of KMS v1 makes one for each object.
pub(super) const KMS_CALL_SECONDS: f64 = 0.1;

/// Waiting for a seat of priority and fairness: ours, half of the objective for a request.
pub(super) const FLOWCONTROL_WAIT_SECONDS: f64 = 0.5;

/// A webhook or an admission controller: ours, half of the objective for a request.
pub(super) const ADMISSION_SECONDS: f64 = 0.5;

/// Waiting for the watch cache: API servers give up after 3 s (`blockTimeout`).
pub(super) const CACHE_WAIT_SECONDS: f64 = 2.0;

/// Round trips between members: etcd's own alert `etcdMemberCommunicationSlow`.
pub(super) const PEER_ROUND_TRIP_SECONDS: f64 = 0.15;

/// A new connection to etcd with TLS, from the same network: ours.
pub(super) const CONNECT_SECONDS: f64 = 0.25;

/// Pauses of a compaction, in milliseconds: ours, as [`ETCD_CALL_SECONDS`].
pub(super) const COMPACTION_PAUSE_MILLIS: f64 = 100.0;

/// etcd refuses requests when 5000 entries are committed and not applied; a fiftieth of that is behind already: ours.
pub(super) const APPLY_GAP: f64 = 100.0;

/// Proposals that wait: ours, as [`APPLY_GAP`].
pub(super) const PENDING_PROPOSALS: f64 = 100.0;

/// Keys in etcd: ours.
pub(super) const MANY_KEYS: f64 = 1_000_000.0;

/// Bytes in use: etcd's default quota, 2 GiB.
pub(super) const MUCH_DATA_BYTES: f64 = 2.0 * 1024.0 * 1024.0 * 1024.0;

/// etcd's default for `--quota-backend-bytes`.
pub(super) const DEFAULT_QUOTA_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// A part of the quota at which a put is refused: one of a large object is before the last pages are full.
pub(super) const QUOTA_FULL: f64 = 0.9;

/// A part of the quota at which a rotation pauses, and somebody should act: ours.
pub(super) const QUOTA_NEAR: f64 = 0.8;

/// A part of the quota below which the file is small, whatever alarm is set: ours.
pub(super) const SMALL_AGAIN: f64 = 0.5;

/// Operations that fail, of a hundred, from where it is no longer a rotation's second key: ours.
pub(super) const FAILED_SHARE: f64 = 0.01;

/// A part of the file that is in use, below which the rest is fragmentation: ours.
pub(super) const FRAGMENTED: f64 = 0.5;

/// Objects that are fetched for each that is returned, from where filtering is most of the work: ours.
pub(super) const FETCHED_FOR_ONE: f64 = 10.0;

/// Objects that must be fetched for that to matter: ours.
pub(super) const FETCHED: f64 = 10_000.0;

/// Deletes within a window that are a burst: ours.
pub(super) const DELETE_BURST: f64 = 1000.0;

/// Leases within a window that are many: ours. An API server takes one every 10 s for its own entry.
pub(super) const GRANT_BURST: f64 = 100.0;

/// Bytes of a request's body that come near etcd's 1.5 MiB.
pub(super) const LARGE_OBJECT_BYTES: f64 = 1_000_000.0;

/// Seconds between two clocks: ours. Less is hidden in the whole seconds of an HTTP date.
pub(super) const CLOCK_SECONDS: u64 = 5;

/// The fewest observations that a quantile of 99 of 100 is taken of: ours.
pub(super) const FEWEST: f64 = 20.0;

/// How often something must have been counted to be told.
#[derive(Clone, Copy)]
pub(super) struct Often {
    /// Between two readings.
    pub(super) in_window: f64,
    /// Since the server started: some of it is normal over weeks.
    pub(super) since_start: f64,
}

/// What should never be.
pub(super) const EVER: Often = Often { in_window: 1.0, since_start: 1.0 };

/// What happens now and then.
pub(super) const OFTEN: Often = Often { in_window: 1.0, since_start: 20.0 };

/// What every cluster has, and only much of it means something.
pub(super) const MUCH: Often = Often { in_window: 10.0, since_start: 1000.0 };

/// Leaders: each member has seen one at its start, and etcd's own alert is for four.
pub(super) const LEADERS: Often = Often { in_window: 1.0, since_start: 4.0 };

/// Caches fill once when the server starts, or when a resource is new.
pub(super) const FILLED_AGAIN: Often = Often { in_window: 2.0, since_start: 3.0 };

/// Watches that are cut, of one resource: a slow client now and then is nobody's fault.
pub(super) const CUT: Often = Often { in_window: 1.0, since_start: 100.0 };
