use std::collections::BTreeMap;

use super::column::{Column, State};
use super::thresholds::{FEWEST, Often};
use crate::doctor::evidence::Evidence;
use crate::doctor::figure;
use crate::doctor::metrics::{Histogram, Labels, Target};
use crate::report::{Figure, Unit};

/// How many groups of a metric are shown.
const SHOWN: usize = 3;

/// Whose metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Api,
    Etcd,
}

impl Server {
    /// What to give to have them.
    pub(super) const fn metrics(self) -> &'static str {
        match self {
            Self::Api => "API server metrics (--apiserver-metrics)",
            Self::Etcd => "etcd metrics (--etcd-metrics)",
        }
    }

    const fn again(self) -> &'static str {
        match self {
            Self::Api => "a second reading of an API server (--apiserver-metrics twice)",
            Self::Etcd => "a second reading of etcd (--etcd-metrics twice)",
        }
    }
}

/// What is asked of the evidence.
///
/// A counter with labels has no line before it has counted, so one that is not there has counted nothing, as long as there are
/// metrics of that server at all. A histogram or a gauge that is not there is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) evidence: &'a Evidence,
}

impl<'a> Facts<'a> {
    pub(super) fn targets(self, server: Server) -> &'a [Target] {
        match server {
            Server::Api => &self.evidence.apiservers,
            Server::Etcd => &self.evidence.etcd_metrics,
        }
    }

    /// Whether so much was counted of one group, in one server. The closure says which group a series belongs to.
    pub(super) fn counted(
        self,
        server: Server,
        name: &str,
        often: Often,
        group: impl Fn(Labels<'_>) -> Option<String>,
    ) -> Column {
        let mut all = Column::unknown(server.metrics());
        for target in self.targets(server) {
            let mut groups: BTreeMap<String, f64> = BTreeMap::new();
            for (labels, value) in target.counters(name) {
                if let Some(group) = group(labels).filter(|_| value.is_finite() && value > 0.0) {
                    *groups.entry(group).or_default() += value;
                }
            }
            let often = if target.is_window() { often.in_window } else { often.since_start };
            let holds = groups.values().any(|value| *value >= often);
            let mut groups: Vec<_> = groups.into_iter().collect();
            groups.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            let source = target.source();
            let figures = groups.into_iter().take(SHOWN).map(|(what, value)| figure::counted(what, value, &source));
            all = all.or(Column::of(holds, figures.collect()));
        }
        all
    }

    /// The sum of a counter in each server, with what it is of.
    pub(super) fn total(
        self,
        server: Server,
        name: &str,
        wanted: impl Fn(Labels<'_>) -> bool,
    ) -> Vec<(f64, &'a Target)> {
        let sum = |target: &'a Target| {
            let wanted = target.counters(name).filter(|(labels, value)| value.is_finite() && wanted(*labels));
            (wanted.map(|(_, value)| value).sum(), target)
        };
        self.targets(server).iter().map(sum).collect()
    }

    /// Whether the largest series of a gauge passes, in one server.
    pub(super) fn gauge(
        self,
        server: Server,
        what: &str,
        name: &str,
        unit: Unit,
        passes: impl Fn(f64) -> bool,
    ) -> Column {
        if self.targets(server).is_empty() {
            return Column::unknown(server.metrics());
        }
        let mut all = Column::unknown(name);
        for target in self.targets(server) {
            let values = target.last().samples(name).map(|(_, value)| value).filter(|value| value.is_finite());
            let Some(value) = values.max_by(f64::total_cmp) else { continue };
            let figure = match unit {
                Unit::Bytes => figure::bytes_of(what, value, &target.name),
                Unit::Seconds => figure::seconds(what, value, &target.name),
                _ => figure::counted(what, value, &target.name),
            };
            all = all.or(Column::of(passes(value), vec![figure]));
        }
        all
    }

    /// Whether 99 of 100 observations of some group take longer than the group may; the slowest are shown.
    pub(super) fn slow(
        self,
        server: Server,
        name: &str,
        group: impl Fn(Labels<'_>) -> Option<String> + Copy,
        limit: impl Fn(&str) -> f64,
    ) -> Column {
        if self.targets(server).is_empty() {
            return Column::unknown(server.metrics());
        }
        let mut few = false;
        let mut all = Column::unknown(name);
        for target in self.targets(server) {
            let mut seen: Vec<(f64, Figure)> = Vec::new();
            for (group, histogram) in target.histograms(name, group) {
                let Some((p99, figure)) = p99(&group, &histogram, &target.source()) else {
                    few = true;
                    continue;
                };
                seen.push((p99 / limit(&group), figure));
            }
            seen.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            let Some((worst, _)) = seen.first() else { continue };
            let holds = *worst > 1.0;
            let shown = seen.into_iter().filter(|(part, _)| !holds || *part > 1.0).take(if holds { SHOWN } else { 1 });
            all = all.or(Column::of(holds, shown.map(|(_, figure)| figure).collect()));
        }
        // It is there, and has counted next to nothing.
        if few && all.state == State::Unknown { Column::unknown(format!("more of {name}")) } else { all }
    }

    /// Whether there are two readings of such a server.
    pub(super) fn window(self, server: Server) -> Column {
        match self.targets(server).iter().any(Target::is_window) {
            true => Column::of(true, Vec::new()),
            false => Column::unknown(server.again()),
        }
    }

    /// Whether a log has one of these texts.
    pub(super) fn logged(self, ids: &[&str]) -> Column {
        let Some(log) = &self.evidence.log else { return Column::unknown("a log (--log)") };
        let count = log.count(ids);
        let named = |id: &&&str| log.matches.contains_key(**id);
        let what = ids.iter().filter(named).copied().collect::<Vec<_>>().join(", ");
        let what = super::texts::lines(&what);
        Column::of(count > 0, if count > 0 { vec![figure::count(what, count, &log.name)] } else { Vec::new() })
    }
}

/// The 99th percentile of enough observations, and its figure.
pub(super) fn p99(what: &str, histogram: &Histogram, source: &str) -> Option<(f64, Figure)> {
    if histogram.count() < FEWEST {
        return None;
    }
    let quantile = histogram.quantile(0.99)?;
    let what = format!("p99 of {what} ({:.0} calls)", histogram.count());
    Some((quantile.value, figure::quantile(what, quantile, source)))
}
