//! etcd's store: size and quota, watches, leases, and what a request may be.

use super::column::Column;
use super::facts::{Facts, Server};
use super::requisites::{after_quota, alarm, quota_used};
use super::thresholds::{
    DELETE_BURST, ETCD_CALL_SECONDS, EVER, GRANT_BURST, LARGE_OBJECT_BYTES, MANY_KEYS, MUCH_DATA_BYTES, QUOTA_FULL,
};
use super::{Row, steps};
use crate::doctor::figure;
use crate::doctor::metrics::Target;
use crate::report::{Axis, Unit};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "large-store",
        axis: Axis::Mvcc,
        title: "ranges are slow because there is very much in etcd",
        expected: false,
        symptom: |facts| {
            let ranges = facts.slow(
                Server::Etcd,
                "etcd_server_range_duration_seconds",
                |_| Some("range".to_owned()),
                |_| ETCD_CALL_SECONDS,
            );
            facts.ranges_slow().or(ranges)
        },
        confirm: |facts| {
            let keys = facts
                .gauge(Server::Etcd, "keys", "etcd_debugging_mvcc_keys_total", Unit::Count, |keys| keys >= MANY_KEYS);
            facts.etcd_bytes("in use", "etcd_mvcc_db_total_size_in_use_in_bytes", MUCH_DATA_BYTES).or(keys)
        },
        next: |_| {
            steps(&[
                "what it is: `atrest scan --by resource,namespace -o wide` counts values and bytes",
                "delete what nobody needs (Events, finished Jobs, old ReplicaSets), then defragment",
                "lists in pages; Events on an etcd of their own (--etcd-servers-overrides=/events#…)",
            ])
        },
    },
    Row {
        id: "quota",
        axis: Axis::Mvcc,
        title: "etcd has reached its quota: nothing can be put in the whole cluster",
        expected: false,
        symptom: puts_refused,
        confirm: quota_full,
        next: after_quota,
    },
    Row {
        id: "slow-watchers",
        axis: Axis::Watch,
        title: "etcd's watches do not keep up with what is written",
        expected: false,
        symptom: |facts| {
            facts.gauge(
                Server::Etcd,
                "watches behind",
                "etcd_debugging_mvcc_slow_watcher_total",
                Unit::Count,
                |value| value > 0.0,
            )
        },
        confirm: |facts| {
            let pending = facts.gauge(
                Server::Etcd,
                "events pending",
                "etcd_debugging_mvcc_pending_events_total",
                Unit::Count,
                |value| value > 0.0,
            );
            let watchers =
                facts.gauge(Server::Etcd, "watches", "etcd_debugging_mvcc_watcher_total", Unit::Count, |_| true);
            if pending.holds() { pending.with(watchers) } else { pending }
        },
        next: |_| {
            steps(&[
                "how much is written: `atrest rekey --rate N` slows a rotation down",
                "who watches: each API server watches each resource once; hundreds of watches are other clients",
                "memory of the API servers: events wait there too",
            ])
        },
    },
    Row {
        id: "lease-expiry",
        axis: Axis::Lease,
        title: "leases end, and take many keys with them at once: Events grow old",
        expected: true,
        symptom: |facts| delete_burst(facts).and(facts.window(Server::Etcd)),
        confirm: |facts| {
            let expired = counted_in_window(facts, "etcd_debugging_server_lease_expired_total", "leases expired", 1.0);
            expired.or(counted_in_window(facts, "etcd_debugging_lease_revoked_total", "leases revoked", 1.0))
        },
        next: |_| steps(&["nothing: it is how Events are removed; --event-ttl and fewer Events make less of it"]),
    },
    Row {
        id: "lease-grants",
        axis: Axis::Lease,
        title: "many leases are taken and little is written: entries of API servers",
        expected: true,
        symptom: |facts| counted_in_window(facts, "etcd_debugging_lease_granted_total", "leases granted", GRANT_BURST),
        confirm: few_events,
        next: |_| steps(&["nothing: masterleases and peerserverleases are renewed every 10 s by each API server"]),
    },
    Row {
        id: "request-too-large",
        axis: Axis::RequestLimit,
        title: "an object is larger than etcd takes; of others metadata.managedFields may have vanished to make them fit",
        expected: false,
        symptom: |facts| facts.logged(&["request-too-large"]).or(too_large(facts)),
        confirm: |facts| {
            let text = facts.logged(&["request-too-large"]);
            let bodies = large_bodies(facts);
            if text.holds() && bodies.holds() { text.with(bodies) } else { text.or(bodies) }
        },
        next: |_| {
            steps(&[
                "which: `atrest scan --by resource,namespace -o wide` has the bytes; near 1.5 MiB it is one object",
                "split it; a rotation adds some bytes to each value, so look before one",
            ])
        },
    },
];

/// Whether the row of the quota holds.
pub(super) fn quota_reached(facts: Facts<'_>) -> Column {
    puts_refused(facts).and(quota_full(facts))
}

fn puts_refused(facts: Facts<'_>) -> Column {
    let refused = facts.counted(Server::Etcd, "grpc_server_handled_total", EVER, |labels| {
        let method = labels.get("grpc_method");
        let is_write = ["Txn", "Put", "LeaseGrant"].contains(&method.as_ref());
        (is_write && labels.is("grpc_code", "ResourceExhausted")).then(|| format!("{method} ResourceExhausted"))
    });
    // What was disarmed later is over.
    let is_over = facts.evidence.log.as_ref().is_some_and(|log| log.disarmed().is_some());
    let logged = if is_over { Column::of(false, Vec::new()) } else { facts.logged(&["no-space"]) };
    logged.or(alarm(facts, "NOSPACE")).or(refused).or(write_refused(facts))
}

/// The size is shown with an alarm too: it says whether to defragment.
fn quota_full(facts: Facts<'_>) -> Column {
    let (full, raised) = (quota_used(facts, QUOTA_FULL), alarm(facts, "NOSPACE"));
    if raised.holds() { raised.with(full) } else { full }
}

/// The throw-away key was refused.
fn write_refused(facts: Facts<'_>) -> Column {
    match facts.evidence.etcd.as_ref().and_then(|probe| probe.write.as_ref()) {
        Some(write) => {
            let figures = write.error.iter().map(|error| figure::text("write", error, &write.key)).collect();
            Column::of(write.no_space, figures)
        }
        None => Column::unknown("a write to a running etcd (--write-probe)"),
    }
}

fn windows(facts: Facts<'_>) -> impl Iterator<Item = &Target> {
    facts.targets(Server::Etcd).iter().filter(|target| target.is_window())
}

/// What was counted between two readings; of one reading it is not known, because all of it is normal over weeks.
fn counted_in_window(facts: Facts<'_>, name: &str, what: &str, at_least: f64) -> Column {
    let window = facts.window(Server::Etcd);
    if !window.holds() {
        return window;
    }
    let mut all = Column::unknown(name);
    for target in windows(facts).filter(|target| target.last().has(name)) {
        let value: f64 = target.counters(name).map(|(_, value)| value).sum();
        all = all.or(Column::of(value >= at_least, vec![figure::counted(what, value, target.source())]));
    }
    all
}

fn delete_burst(facts: Facts<'_>) -> Column {
    counted_in_window(facts, "etcd_mvcc_delete_total", "deletes", DELETE_BURST)
}

/// Fewer events than ten for each lease.
fn few_events(facts: Facts<'_>) -> Column {
    let window = facts.window(Server::Etcd);
    if !window.holds() {
        return window;
    }
    let mut all = Column::unknown("etcd_debugging_mvcc_events_total");
    for target in windows(facts) {
        let sum = |name: &str| target.counters(name).map(|(_, value)| value).sum::<f64>();
        let (events, granted) = (sum("etcd_debugging_mvcc_events_total"), sum("etcd_debugging_lease_granted_total"));
        if target.last().has("etcd_debugging_mvcc_events_total") {
            let figures = vec![figure::counted("events", events, target.source())];
            all = all.or(Column::of(events < granted * 10.0, figures));
        }
    }
    all
}

/// Writes that etcd's client has refused, or etcd.
fn too_large(facts: Facts<'_>) -> Column {
    facts.answered("413", &[], EVER).or(Column::unknown("a log (--log)"))
}

fn large_bodies(facts: Facts<'_>) -> Column {
    let name = "apiserver_request_body_size_bytes";
    if facts.targets(Server::Api).is_empty() {
        return Column::unknown(Server::Api.metrics());
    }
    let mut all = Column::unknown(name);
    for target in facts.targets(Server::Api) {
        for (resource, histogram) in target.histograms(name, |labels| Some(labels.get("resource").into_owned())) {
            let Some(largest) = histogram.quantile(1.0) else { continue };
            let figures =
                vec![figure::bytes_of(format!("largest bodies of {resource}"), largest.value, target.source())];
            all = all.or(Column::of(largest.value >= LARGE_OBJECT_BYTES, figures));
        }
    }
    all
}
