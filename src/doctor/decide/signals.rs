//! The figures that several rows ask for: E, T and S of the table, and etcd's state.

use super::cache::resource_of;
use super::column::Column;
use super::facts::{Facts, Server};
use super::thresholds::{
    BACKEND_COMMIT_SECONDS, CLUSTER_REQUEST_SECONDS, ETCD_CALL_SECONDS, ETCD_RANGE_SECONDS, LEADERS, MUCH,
    NAMESPACE_REQUEST_SECONDS, OBJECT_REQUEST_SECONDS, Often, TRANSFORMATION_SECONDS, WAL_FSYNC_SECONDS,
};
use crate::doctor::evidence::{EtcdProbe, Timing};
use crate::doctor::figure;
use crate::doctor::metrics::Labels;
use crate::report::Unit;

pub(super) const READ_VERBS: &[&str] = &["GET", "LIST"];
pub(super) const WRITE_VERBS: &[&str] = &["POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION"];
pub(super) const WRITES: &[&str] = &["create", "update", "delete"];
pub(super) const RANGES: &[&str] = &["list", "listWithCount", "listOnlyKeys", "listStream"];

/// etcd's calls, as etcd's own client in the API server names them.
pub(super) const E: &str = "etcd_request_duration_seconds";
pub(super) const T: &str = "apiserver_storage_transformation_duration_seconds";
pub(super) const FSYNC: &str = "etcd_disk_wal_fsync_duration_seconds";
pub(super) const COMMIT: &str = "etcd_disk_backend_commit_duration_seconds";

/// S: since 1.26 without the time in webhooks and queues, before it with another name, and the whole duration.
const S: [&str; 3] = [
    "apiserver_request_sli_duration_seconds",
    "apiserver_request_slo_duration_seconds",
    "apiserver_request_duration_seconds",
];

/// The objective for the group `LIST cluster`.
fn objective(group: &str) -> f64 {
    match group.rsplit_once(' ') {
        Some(("LIST" | "DELETECOLLECTION", "cluster")) => CLUSTER_REQUEST_SECONDS,
        Some(("LIST" | "DELETECOLLECTION", "namespace")) => NAMESPACE_REQUEST_SECONDS,
        _ => OBJECT_REQUEST_SECONDS,
    }
}

impl Facts<'_> {
    /// Whether requests with these verbs take longer than Kubernetes' objectives.
    pub(super) fn requests_slow(self, verbs: &[&str]) -> Column {
        let group = |labels: Labels<'_>| {
            let verb = labels.get("verb");
            let waits = ["log", "exec", "attach", "portforward", "proxy"].contains(&labels.get("subresource").as_ref());
            (verbs.contains(&verb.as_ref()) && !waits)
                .then(|| format!("{verb} {}", labels.get("scope")).trim_end().to_owned())
        };
        let all = S.map(|name| self.slow(Server::Api, name, group, objective));
        let known = all.into_iter().reduce(Column::or);
        let mut known = known.unwrap_or_else(|| Column::unknown(S[0]));
        if known.missing.len() > 1 {
            known.missing.truncate(1);
        }
        known
    }

    /// Whether some request does.
    pub(super) fn any_request_slow(self) -> Column {
        self.requests_slow(&[READ_VERBS, WRITE_VERBS].concat())
    }

    fn etcd_calls(self, operations: &[&str]) -> Column {
        let group = |labels: Labels<'_>| {
            let operation = labels.get("operation");
            operations.contains(&operation.as_ref()).then(|| format!("etcd {operation}"))
        };
        let limit = |group: &str| {
            let is_range = group.strip_prefix("etcd ").is_some_and(|operation| RANGES.contains(&operation));
            if is_range { ETCD_RANGE_SECONDS } else { ETCD_CALL_SECONDS }
        };
        self.slow(Server::Api, E, group, limit)
    }

    /// E of reads of one key; what was measured here, where no API server tells: here may be far away from etcd.
    pub(super) fn reads_slow(self) -> Column {
        self.etcd_calls(&["get"]).otherwise(self.probed("linearizable read", |probe| Some(&probe.linearizable)))
    }

    /// E of writes.
    pub(super) fn writes_slow(self) -> Column {
        self.etcd_calls(WRITES).otherwise(self.probed("compare and swap", |probe| Some(&probe.write.as_ref()?.times)))
    }

    /// E of ranges.
    pub(super) fn ranges_slow(self) -> Column {
        self.etcd_calls(RANGES)
    }

    /// E of anything.
    pub(super) fn etcd_slow(self) -> Column {
        self.etcd_calls(&[&["get"], WRITES, RANGES].concat())
            .otherwise(self.probed("linearizable read", |probe| Some(&probe.linearizable)))
    }

    /// What was measured here: slow when 99 of 100 calls are.
    pub(super) fn probed(self, what: &str, of: impl Fn(&EtcdProbe) -> Option<&Timing>) -> Column {
        let timing = self.evidence.etcd.as_ref().and_then(of);
        let Some((timing, p99)) = timing.and_then(|timing| Some((timing, timing.percentile(99)?))) else {
            return Column::unknown("a running etcd (--endpoints)");
        };
        let what = format!("p99 of {what} ({} calls)", timing.calls());
        Column::of(p99.as_secs_f64() > ETCD_CALL_SECONDS, vec![figure::duration(what, p99, "measured here")])
    }

    /// T. An API server without the metric has no encryption configured, and nothing that could be slow.
    pub(super) fn transformations_slow(self) -> Column {
        if !self.targets(Server::Api).is_empty()
            && !self.targets(Server::Api).iter().any(|target| target.has_histogram(T))
        {
            return Column::of(false, Vec::new());
        }
        let group = |labels: Labels<'_>| Some(labels.get("transformation_type").into_owned());
        let slow = self.slow(Server::Api, T, group, |_| TRANSFORMATION_SECONDS);
        // Too few to tell are not slow either.
        match slow.missing.iter().any(|missing| missing.ends_with(T)) {
            true => Column::of(false, Vec::new()),
            false => slow,
        }
    }

    pub(super) fn fsync_slow(self) -> Column {
        self.slow(Server::Etcd, FSYNC, |_| Some("WAL fsync".to_owned()), |_| WAL_FSYNC_SECONDS)
    }

    pub(super) fn commit_slow(self) -> Column {
        self.slow(Server::Etcd, COMMIT, |_| Some("backend commit".to_owned()), |_| BACKEND_COMMIT_SECONDS)
    }

    pub(super) fn leader_changes(self) -> Column {
        let what = |_: Labels<'_>| Some("leaders seen".to_owned());
        self.counted(Server::Etcd, "etcd_server_leader_changes_seen_total", LEADERS, what)
    }

    /// Whether a member has no leader, by its metrics or by its own word.
    pub(super) fn no_leader(self) -> Column {
        let by_metrics = self.lowest_has_leader();
        let Some(probe) = &self.evidence.etcd else { return by_metrics };
        let answering: Vec<_> =
            probe.members.iter().filter(|member| member.error.is_none() && !member.version.is_empty()).collect();
        if answering.is_empty() {
            return by_metrics;
        }
        let without: Vec<_> = answering.iter().filter(|member| member.leader == 0).collect();
        let figures = without.iter().map(|member| figure::text("leader", "none", &member.endpoint)).collect();
        by_metrics.or(Column::of(!without.is_empty(), figures))
    }

    fn lowest_has_leader(self) -> Column {
        if self.targets(Server::Etcd).is_empty() {
            return Column::unknown(Server::Etcd.metrics());
        }
        let mut all = Column::unknown("etcd_server_has_leader");
        for target in self.targets(Server::Etcd) {
            if let Some(value) = target.last().value("etcd_server_has_leader") {
                all = all.or(Column::of(value < 1.0, vec![figure::counted("has a leader", value, &target.name)]));
            }
        }
        all
    }

    /// Whether nothing of etcd's own figures is out of order.
    pub(super) fn etcd_normal(self) -> Column {
        let applied =
            self.counted(Server::Etcd, "etcd_server_slow_apply_total", MUCH, |_| Some("slow applies".to_owned()));
        self.fsync_slow()
            .not()
            .and(self.commit_slow().not())
            .and(self.no_leader().not())
            .and(self.leader_changes().not())
            .and(applied.not())
    }

    /// Requests that were answered with this status.
    pub(super) fn answered(self, code: &str, verbs: &[&str], often: Often) -> Column {
        self.counted(Server::Api, "apiserver_request_total", often, |labels| {
            let verb = labels.get("verb");
            let wanted = labels.is("code", code) && (verbs.is_empty() || verbs.contains(&verb.as_ref()));
            wanted.then(|| format!("{code} to {verb} {}", resource_of(labels)))
        })
    }

    /// A gauge of etcd in bytes.
    pub(super) fn etcd_bytes(self, what: &str, name: &str, at_least: f64) -> Column {
        self.gauge(Server::Etcd, what, name, Unit::Bytes, |value| value >= at_least)
    }
}
