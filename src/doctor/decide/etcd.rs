//! The way to etcd, its consensus and its disk.

use super::column::Column;
use super::facts::{Facts, Server};
use super::thresholds::{
    APPLY_GAP, COMPACTION_PAUSE_MILLIS, CONNECT_SECONDS, EVER, MUCH, OFTEN, PEER_ROUND_TRIP_SECONDS, PENDING_PROPOSALS,
};
use super::{Row, steps};
use crate::doctor::figure;
use crate::doctor::metrics::Labels;
use crate::report::{Axis, Unit};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "network-to-etcd",
        axis: Axis::Network,
        title: "etcd itself is fast, and every call of it from the API server is slow",
        expected: false,
        symptom: |facts| facts.reads_slow().and(facts.writes_slow()).and(facts.etcd_normal()),
        confirm: |facts| {
            let unavailable = facts.counted(Server::Api, "grpc_client_handled_total", EVER, |labels| {
                labels
                    .is("grpc_code", "Unavailable")
                    .then(|| format!("{} of etcd Unavailable", labels.get("grpc_method")))
            });
            unavailable.or(slow_connections(facts))
        },
        next: |_| {
            steps(&[
                "`atrest doctor --endpoints …` on the API server's machine: round trips without the API server",
                "what is between them: a load balancer, a firewall that forgets connections, loss (`ss -ti`)",
            ])
        },
    },
    Row {
        id: "raft-leader",
        axis: Axis::Raft,
        title: "etcd loses its leader",
        expected: false,
        symptom: |facts| {
            let failing =
                facts.etcd_slow().or(facts.counted(Server::Etcd, "etcd_server_proposals_failed_total", OFTEN, |_| {
                    Some("proposals failed".to_owned())
                }));
            facts.no_leader().or(failing.and(facts.leader_changes()))
        },
        confirm: |facts| {
            let heartbeats = facts.counted(Server::Etcd, "etcd_server_heartbeat_send_failures_total", OFTEN, |_| {
                Some("heartbeats sent late".to_owned())
            });
            let round_trips = facts.slow(
                Server::Etcd,
                "etcd_network_peer_round_trip_time_seconds",
                |labels| Some(format!("round trip to member {}", labels.get("To"))),
                |_| PEER_ROUND_TRIP_SECONDS,
            );
            facts.no_leader().or(heartbeats).or(round_trips)
        },
        next: |_| {
            steps(&[
                "`etcdctl endpoint status --cluster`: who leads, and whether a majority runs",
                "the network between the members, and CPU and disk of the leader: late heartbeats have one of them as their cause",
                "members far from each other: --heartbeat-interval about the round trip, --election-timeout ten times that",
            ])
        },
    },
    Row {
        id: "wal-fsync",
        axis: Axis::Wal,
        title: "writes are slow because the disk is slow to sync etcd's log",
        expected: false,
        symptom: |facts| facts.writes_slow().and(facts.reads_slow().not()),
        confirm: |facts| facts.fsync_slow(),
        next: |_| {
            steps(&[
                "what else writes to that disk (`iostat -x 1`): give etcd one of its own",
                "the disk itself: `fio --rw=write --ioengine=sync --fdatasync=1 --bs=2300 --size=22m` in the data directory",
            ])
        },
    },
    Row {
        id: "backend-commit",
        axis: Axis::Backend,
        title: "writes are slow in waves: etcd's database file is committed, compacted or defragmented",
        expected: false,
        symptom: |facts| facts.writes_slow().and(facts.fsync_slow().not()),
        confirm: |facts| {
            let defrag =
                facts.gauge(Server::Etcd, "defragmentation runs", "etcd_disk_defrag_inflight", Unit::Count, |value| {
                    value > 0.0
                });
            let pauses = facts.compaction_pauses();
            facts.commit_slow().or(defrag).or(pauses)
        },
        next: |_| {
            steps(&[
                "when is it defragmented, and by whom? It stops a member: one after the other, and seldom",
                "how much is compacted at once: `atrest rekey --rate N` spreads a rotation",
            ])
        },
    },
    Row {
        id: "apply-behind",
        axis: Axis::Mvcc,
        title: "etcd does not keep up with applying what is agreed",
        expected: false,
        symptom: |facts| pending_grows(facts).or(facts.logged(&["too-many-requests"])),
        confirm: |facts| {
            let slow =
                facts.counted(Server::Etcd, "etcd_server_slow_apply_total", MUCH, |_| Some("slow applies".to_owned()));
            apply_gap(facts).or(slow)
        },
        next: |_| {
            steps(&[
                "who reads large ranges: `apply request took too long` in etcd's log names them (`atrest doctor --log FILE`)",
                "CPU of the member; and `atrest rekey --rate N` while a rotation runs",
            ])
        },
    },
    Row {
        id: "read-index",
        axis: Axis::Raft,
        title: "only reads that the whole cluster agrees to are slow",
        expected: false,
        symptom: |facts| {
            let measured = facts
                .probed("linearizable read", |probe| Some(&probe.linearizable))
                .and(facts.probed("serializable read", |probe| Some(&probe.serializable)).not());
            facts.reads_slow().and(facts.writes_slow().not()).or(measured)
        },
        confirm: |facts| {
            let slow = facts.counted(Server::Etcd, "etcd_server_slow_read_indexes_total", OFTEN, |_| {
                Some("slow read indexes".to_owned())
            });
            slow.or(facts.counted(Server::Etcd, "etcd_server_read_indexes_failed_total", OFTEN, |_| {
                Some("failed read indexes".to_owned())
            }))
        },
        next: |_| {
            steps(&[
                "the leader: every such read asks it, and it asks a majority; its CPU and its network",
                "`etcdctl move-leader` to a member that has less to do",
            ])
        },
    },
];

fn slow_connections(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown("a running etcd (--endpoints)");
    for member in facts.evidence.etcd.iter().flat_map(|probe| &probe.members) {
        if let Some(time) = member.connected_in {
            let figures = vec![figure::duration("connection", time, &member.endpoint)];
            all = all.or(Column::of(time.as_secs_f64() > CONNECT_SECONDS, figures));
        }
    }
    all
}

/// Proposals that wait: more than at the first reading, where there are two.
fn pending_grows(facts: Facts<'_>) -> Column {
    const PENDING: &str = "etcd_server_proposals_pending";
    let many = facts.gauge(Server::Etcd, "proposals pending", PENDING, Unit::Count, |value| value >= PENDING_PROPOSALS);
    let falls = facts.targets(Server::Etcd).iter().any(|target| {
        let before = target.first().and_then(|first| first.value(PENDING));
        before.is_some_and(|before| target.last().value(PENDING).is_some_and(|now| now < before))
    });
    if falls { many.and(Column::of(false, Vec::new())) } else { many }
}

/// What is committed and not yet applied.
fn apply_gap(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown("etcd_server_proposals_committed_total");
    for target in facts.targets(Server::Etcd) {
        let last = target.last();
        let committed = last.value("etcd_server_proposals_committed_total");
        if let (Some(committed), Some(applied)) = (committed, last.value("etcd_server_proposals_applied_total")) {
            let gap = committed - applied;
            let figures = vec![figure::counted("entries committed and not applied", gap, &target.name)];
            all = all.or(Column::of(gap > APPLY_GAP, figures));
        }
    }
    for member in facts.evidence.etcd.iter().flat_map(|probe| &probe.members).filter(|member| member.raft_index > 0) {
        let gap = member.raft_index.saturating_sub(member.raft_applied_index) as f64;
        let figures = vec![figure::counted("entries of the log not applied", gap, &member.endpoint)];
        all = all.or(Column::of(gap > APPLY_GAP, figures));
    }
    all
}

impl Facts<'_> {
    /// Compactions that hold writes up. The histogram is in milliseconds.
    fn compaction_pauses(self) -> Column {
        const PAUSES: &str = "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds";
        if self.targets(Server::Etcd).is_empty() {
            return Column::unknown(Server::Etcd.metrics());
        }
        let mut all = Column::unknown(PAUSES);
        for target in self.targets(Server::Etcd) {
            let histogram = target.histogram(PAUSES, |_: Labels<'_>| true);
            let Some(p99) = histogram.quantile(0.99) else { continue };
            let what = format!("p99 of compaction pauses ({:.0})", histogram.count());
            let seconds = crate::doctor::metrics::Quantile { value: p99.value / 1000.0, ..p99 };
            let figures = vec![figure::quantile(what, seconds, target.source())];
            all = all.or(Column::of(p99.value > COMPACTION_PAUSE_MILLIS, figures));
        }
        all
    }
}
