//! The figures that are shown whether they decide anything or not.

use super::facts::{Facts, Server, p99};
use super::signals::{COMMIT, E, FSYNC, T};
use crate::doctor::evidence::{EtcdProbe, MemberProbe, Timing};
use crate::doctor::figure;
use crate::doctor::metrics::{Labels, Target};
use crate::report::Figure;

/// A histogram and the label that it is shown by.
type Shown = (&'static str, &'static str, &'static str);

const OF_APISERVERS: [Shown; 4] = [
    ("request", "apiserver_request_sli_duration_seconds", "verb"),
    ("etcd", E, "operation"),
    ("transformation", T, "transformation_type"),
    ("KMS", "apiserver_envelope_encryption_kms_operations_latency_seconds", "method_name"),
];

const OF_ETCD: [Shown; 3] = [
    ("WAL fsync", FSYNC, ""),
    ("backend commit", COMMIT, ""),
    ("round trip to member", "etcd_network_peer_round_trip_time_seconds", "To"),
];

const COUNTS: [(&str, &str); 6] = [
    ("keys", "etcd_debugging_mvcc_keys_total"),
    ("watches", "etcd_debugging_mvcc_watcher_total"),
    ("watches behind", "etcd_debugging_mvcc_slow_watcher_total"),
    ("events pending", "etcd_debugging_mvcc_pending_events_total"),
    ("proposals pending", "etcd_server_proposals_pending"),
    ("leaders seen", "etcd_server_leader_changes_seen_total"),
];

pub(super) fn measured(facts: Facts<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    // What was measured here is what somebody has asked for just now.
    if let Some(probe) = &facts.evidence.etcd {
        etcd(probe, super::requisites::quota_by_metrics(facts).is_some(), &mut figures);
    }
    for probe in &facts.evidence.kms {
        let source = format!("{} at {}", probe.name, probe.endpoint);
        for (method, p50, p99) in &probe.latency {
            figures.push(figure::duration(format!("p50 of {method}"), *p50, &source));
            figures.push(figure::duration(format!("p99 of {method}"), *p99, &source));
        }
    }
    for speed in &facts.evidence.transformers {
        let source = format!("{}, {} bytes, measured here", speed.label, speed.bytes);
        figures.extend(speed.seal.percentile(50).map(|time| figure::duration("p50 of sealing", time, &source)));
        figures.extend(speed.open.percentile(50).map(|time| figure::duration("p50 of opening", time, &source)));
    }
    for clock in &facts.evidence.clocks {
        let what = format!("clock ahead of ours (±{} s)", clock.uncertain_seconds);
        figures.push(figure::seconds(what, clock.ahead_seconds as f64, &clock.source));
    }
    for target in facts.targets(Server::Api) {
        histograms(target, &OF_APISERVERS, &mut figures);
    }
    for target in facts.targets(Server::Etcd) {
        histograms(target, &OF_ETCD, &mut figures);
        for (what, name) in [
            ("database file", "etcd_mvcc_db_total_size_in_bytes"),
            ("of it in use", "etcd_mvcc_db_total_size_in_use_in_bytes"),
            ("quota", "etcd_server_quota_backend_bytes"),
        ] {
            figures.extend(target.last().value(name).map(|value| figure::bytes_of(what, value, &target.name)));
        }
        for (what, name) in COUNTS {
            figures.extend(target.last().value(name).map(|value| figure::counted(what, value, &target.name)));
        }
    }
    figures
}

fn histograms(target: &Target, shown: &[Shown], figures: &mut Vec<Figure>) {
    for (what, name, label) in shown {
        let group = |labels: Labels<'_>| {
            let value = labels.get(label);
            Some(format!("{what} {}", value.rsplit('/').next().unwrap_or_default()).trim_end().to_owned())
        };
        for (group, histogram) in target.histograms(name, group) {
            if let Some((_, figure)) = p99(&group, &histogram, &target.source()) {
                let p50 = histogram
                    .quantile(0.5)
                    .map(|p50| figure::quantile(format!("p50 of {group}"), p50, target.source()));
                figures.extend(p50);
                figures.push(figure);
                figures.extend(
                    histogram.mean().map(|mean| figure::seconds(format!("mean of {group}"), mean, target.source())),
                );
            }
        }
    }
}

fn etcd(probe: &EtcdProbe, has_quota: bool, figures: &mut Vec<Figure>) {
    const HERE: &str = "measured here";
    probe.members.iter().filter(|member| member.error.is_none()).for_each(|one| member(one, has_quota, figures));
    let mut timing =
        |what: &str, timing: &Timing| {
            for percent in [50, 99] {
                figures.extend(timing.percentile(percent).map(|time| {
                    figure::duration(format!("p{percent} of {what} ({} calls)", timing.calls()), time, HERE)
                }));
            }
        };
    timing("linearizable read", &probe.linearizable);
    timing("serializable read", &probe.serializable);
    if let Some(write) = &probe.write {
        timing("compare and swap", &write.times);
        figures.extend(write.error.iter().map(|error| figure::text("write", error, &write.key)));
        figures.push(figure::text("throw-away key", if write.removed { "removed" } else { "LEFT BEHIND" }, &write.key));
    }
    figures.extend(probe.read_error.iter().map(|error| figure::text("read", error, HERE)));
    if let Some(alarms) = &probe.alarms {
        figures.push(figure::count("alarms", alarms.len() as u64, "etcd"));
    }
    figures.extend(probe.leases.map(|leases| figure::count("leases", leases, "etcd")));
    if let Some(compaction) = probe.compaction {
        let kept = compaction.current.saturating_sub(compaction.revision);
        figures.push(figure::count(
            "revisions since API servers compacted last",
            kept.unsigned_abs(),
            "compact_rev_key",
        ));
    }
}

fn member(member: &MemberProbe, has_quota: bool, figures: &mut Vec<Figure>) {
    let source = &member.endpoint;
    figures.extend(member.connected_in.map(|time| figure::duration("connection", time, source)));
    if member.version.is_empty() {
        return;
    }
    let role = if member.leader == member.member_id { "leader" } else { "follower" };
    figures.push(figure::text("etcd", format!("{} ({role}, term {})", member.version, member.raft_term), source));
    figures.push(figure::bytes("database file", member.db_size, source));
    if member.db_size_in_use > 0 {
        figures.push(figure::bytes("of it in use", member.db_size_in_use, source));
    }
    if member.quota > 0 {
        figures.push(figure::bytes("quota", member.quota, source));
    } else if !has_quota && member.db_size > 0 {
        figures.push(figure::text("quota", "not known (etcd's default is 2 GiB)", source));
    }
    figures.push(figure::count(
        "entries of the log not applied",
        member.raft_index.saturating_sub(member.raft_applied_index),
        source,
    ));
    figures.extend(member.errors.iter().map(|error| figure::text("says", error, source)));
}
