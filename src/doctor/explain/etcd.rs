//! What etcd says, and its client.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const PROBE: &str = "`atrest doctor --endpoints …`: every member, its leader, its size and how fast it reads";
const METRICS: &str = "`atrest doctor --etcd-metrics A --etcd-metrics B`, two readings of each member a minute apart";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "no-space",
        axis: Axis::Mvcc,
        patterns: &[Pattern::Text("database space exceeded"), Pattern::Text("alarm:nospace"), Pattern::Text("nospace")],
        in_logs: true,
        vague: false,
        meaning: "The database file has reached --quota-backend-bytes (2 GiB by default): nothing can be put in the whole cluster, Events and leases \
                  neither. Reads, deletes, compaction and defragmentation work.",
        causes: &[
            "history that was not compacted, or a file that was never defragmented after it",
            "a rotation or an import wrote much within one compaction interval",
            "as many objects as that",
        ],
        next: &[
            "stop a rotation that is running",
            "compact: `etcdctl compact REV`, with the revision of `etcdctl endpoint status -w json`",
            "`etcdctl defrag` on one member after the other, the leader last: it blocks the member",
            "`etcdctl alarm disarm`: the alarm stays until somebody does that",
        ],
    },
    Entry {
        id: "request-too-large",
        axis: Axis::RequestLimit,
        patterns: &[
            Pattern::Text("request is too large"),
            Pattern::Text("trying to send message larger than max"),
            Pattern::Text("too many operations in txn request"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A write is larger than etcd takes: 1.5 MiB for the whole request (--max-request-bytes), 2 MiB in the client. An encrypted value is a \
                  little larger than the object. On create, update and most patches the API server drops metadata.managedFields and tries once more \
                  without saying so; server-side apply is refused.",
        causes: &[
            "an object near 1.5 MiB: often a Secret or ConfigMap with files in it, or a long status",
            "encryption was switched on for such an object",
        ],
        next: &[
            "find the large objects: `atrest scan --by resource,namespace -o wide` has the bytes",
            "split the object; raising --max-request-bytes makes every list of it larger",
        ],
    },
    Entry {
        id: "compacted",
        axis: Axis::ApiserverCache,
        patterns: &[
            Pattern::Text("required revision has been compacted"),
            Pattern::Text("the revision has been compacted"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A revision was asked for that etcd no longer keeps: API servers let it compact what is 5 to 10 minutes old \
                  (--etcd-compaction-interval). Clients see 410 Expired, and list anew.",
        causes: &[
            "a list in pages, or a watch, that went on for longer than that",
            "a client that was away",
            "etcd compacts by itself too, and more often",
        ],
        next: &[
            "nothing, when it is seldom: clients list again",
            "smaller pages, or a longer --etcd-compaction-interval, when a client never gets to the end",
        ],
    },
    Entry {
        id: "future-revision",
        axis: Axis::Raft,
        patterns: &[Pattern::Text("required revision is a future revision")],
        in_logs: true,
        vague: false,
        meaning: "A revision was asked for that this etcd has not reached.",
        causes: &[
            "etcd was restored from a snapshot, and its clients remember later revisions",
            "the endpoints belong to two clusters",
            "a member that lags behind was read without the leader",
        ],
        next: &[
            "restart the API servers and controllers after a restore; restore with `--bump-revision` (etcd 3.6)",
            PROBE,
        ],
    },
    Entry {
        id: "lost-leader",
        axis: Axis::Raft,
        patterns: &[
            Pattern::Text("etcdserver: leader changed"),
            Pattern::Text("etcdserver: no leader"),
            Pattern::Text("etcdserver: not leader"),
            Pattern::Text("lost leader"),
            Pattern::Text("elected leader"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The cluster had no leader, or another one, while the request was under way. Whether a write was done is not known.",
        causes: &[
            "heartbeats that come late: network between the members, or a disk or CPU that stalls the leader",
            "a member was stopped",
            "no majority of the members runs",
        ],
        next: &[PROBE, METRICS],
    },
    Entry {
        id: "too-many-requests",
        axis: Axis::Mvcc,
        patterns: &[Pattern::Text("etcdserver: too many requests")],
        in_logs: true,
        vague: false,
        meaning: "More than 5000 entries of the log are committed and not yet applied: the member does not keep up with applying.",
        causes: &[
            "large ranges that hold the CPU or the lock",
            "a slow disk behind the database file",
            "a burst of writes",
        ],
        next: &[METRICS, "slow a rotation down: `atrest rekey --rate N`"],
    },
    Entry {
        id: "server-timeout",
        axis: Axis::Raft,
        patterns: &[
            Pattern::Text("etcdserver: request timed out"),
            Pattern::Text("possibly due to previous leader failure"),
            Pattern::Text("possibly due to connection lost"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A proposal was not committed and applied within 7 s (5 s and two elections). Whether a write was done is not known.",
        causes: &[
            "a disk that is slow to sync the log",
            "no leader, or no majority",
            "a member that does not keep up with applying",
        ],
        next: &[METRICS, PROBE],
    },
    Entry {
        id: "auth-token",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("invalid auth token"),
            Pattern::Text("revision of auth store is old"),
            Pattern::Text("user name is empty"),
        ],
        in_logs: true,
        vague: false,
        meaning: "etcd has authentication turned on and does not take the token: simple tokens live 300 s, and are void when users or roles change.",
        causes: &[
            "a client that does not authenticate anew",
            "a member that was restarted",
            "no user at all: API servers have none, and need a client certificate whose name is one",
        ],
        next: &["`atrest doctor --endpoints … --cert … --key …`, with the API server's certificate"],
    },
    Entry {
        id: "permission-denied",
        axis: Axis::Configuration,
        patterns: &[Pattern::Text("etcdserver: permission denied"), Pattern::All(&["permissiondenied", "etcdserver"])],
        in_logs: true,
        vague: false,
        meaning: "The etcd user, or the name in the client certificate, has no role for this key. To delete or overwrite by a lease, its other keys are looked at too.",
        causes: &[
            "a role that covers /registry/ only, and not compact_rev_key or another --etcd-prefix",
            "another client certificate",
        ],
        next: &["`etcdctl user get NAME --detail`, and `etcdctl role get ROLE`"],
    },
    Entry {
        id: "lease-not-found",
        axis: Axis::Lease,
        patterns: &[Pattern::Text("requested lease not found")],
        in_logs: true,
        vague: false,
        meaning: "A value was put under a lease that has ended meanwhile: leases of Events live about an hour, those of masterleases 15 s.",
        causes: &["etcd was slow for longer than the lease lives", "the object was about to expire: it is gone by now"],
        next: &["nothing, when it is seldom: the API server takes a new lease", PROBE],
    },
    Entry {
        id: "slow-apply",
        axis: Axis::Mvcc,
        patterns: &[Pattern::Text("apply request took too long"), Pattern::Text("took too long to execute")],
        in_logs: true,
        vague: false,
        meaning: "etcd took more than 100 ms to apply a request. Reads wait for the index first, so a slow disk shows here too.",
        causes: &["a range over very many keys", "a slow disk", "CPU that others take"],
        next: &[METRICS],
    },
    Entry {
        id: "slow-disk",
        axis: Axis::Wal,
        patterns: &[
            Pattern::Text("slow fdatasync"),
            Pattern::Text("leader failed to send out heartbeat on time"),
            Pattern::Text("sync duration of"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The write-ahead log took more than 1 s to sync, or the leader was late with its heartbeat, which most often has the same cause.",
        causes: &["a disk that others write to, or of a cloud with too few IOPS", "CPU that others take"],
        next: &[METRICS, "give etcd a disk of its own"],
    },
    Entry {
        id: "clock-difference",
        axis: Axis::Clock,
        patterns: &[Pattern::Text("clock drift"), Pattern::Text("the clock difference against peer")],
        in_logs: true,
        vague: false,
        meaning: "The clocks of two members differ by more than a second. etcd does not depend on them; certificates, tokens and leases' ends do.",
        causes: &["no NTP on a machine, or a suspended virtual machine"],
        next: &["`timedatectl` on each machine"],
    },
    Entry {
        id: "deadline",
        axis: Axis::Network,
        patterns: &[
            Pattern::Text("context deadline exceeded"),
            Pattern::Text("deadlineexceeded"),
            Pattern::Text("client.timeout exceeded"),
        ],
        in_logs: true,
        vague: true,
        meaning: "Something was not answered in time. The text does not say what, nor by whom.",
        causes: &[
            "etcd, when an operation of the store is named",
            "a KMS plugin, when `kms` or a provider is",
            "a webhook, when `failed calling webhook` stands before it",
        ],
        next: &[PROBE, "`atrest doctor --apiserver-metrics A --apiserver-metrics B`: which of them is slow"],
    },
    Entry {
        id: "transport",
        axis: Axis::Network,
        patterns: &[
            Pattern::Text("connection refused"),
            Pattern::Text("transport is closing"),
            Pattern::Text("all subconns are in transientfailure"),
            Pattern::Text("error reading server preface"),
            Pattern::Text("tls: bad certificate"),
            Pattern::Text("certificate has expired"),
            Pattern::Text("certificate signed by unknown authority"),
        ],
        in_logs: true,
        vague: true,
        meaning: "A connection was refused, cut, or failed in TLS.",
        causes: &[
            "etcd does not run there",
            "an expired certificate, or one of another authority",
            "a firewall between them",
        ],
        next: &[
            "`atrest doctor --endpoints … --cacert … --cert … --key …` with the API server's files: it says what is wrong with each endpoint",
        ],
    },
];
