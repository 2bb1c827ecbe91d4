//! The decision table: each row has a symptom, a confirmation and an axis. From top to bottom, the first row whose two columns
//! both hold is the answer.
//!
//! What a column asks for may not be there. Such a row is not decided: it is told with what is missing, and with what points to
//! it all the same.

mod apiserver;
mod cache;
mod column;
mod etcd;
mod facts;
mod measured;
mod requisites;
mod signals;
mod store;
#[cfg(test)]
mod tests;
mod texts;
mod thresholds;
mod transformer;

use column::{Column, State};
use facts::Facts;

use super::evidence::Evidence;
use crate::report::{Axis, DoctorReport, Figure, Finding, NotKnown};

/// A row of the table.
struct Row {
    /// Its name, which is API.
    id: &'static str,
    axis: Axis,
    /// What is the matter, when it holds.
    title: &'static str,
    /// Whether it is as it should be, and good to know only.
    expected: bool,
    symptom: fn(Facts<'_>) -> Column,
    confirm: fn(Facts<'_>) -> Column,
    next: fn(Facts<'_>) -> Vec<String>,
}

/// The rows, in their order: what keeps everything else from working; those of the specification; what is worth knowing besides.
fn table() -> impl Iterator<Item = &'static Row> {
    let first = requisites::ROWS.iter().chain(apiserver::ROWS).chain(cache::ROWS).chain(transformer::ROWS);
    first.chain(etcd::ROWS).chain(store::ROWS).chain(requisites::LAST)
}

/// The names and axes of the rows, in their order.
pub fn rows() -> impl Iterator<Item = (&'static str, Axis)> {
    table().map(|row| (row.id, row.axis))
}

/// Answers with the decision table.
#[must_use]
pub fn diagnose(evidence: Evidence) -> DoctorReport {
    let facts = Facts { evidence: &evidence };
    let mut report = DoctorReport::new();
    let mut held = Vec::new();
    for row in table() {
        let (symptom, confirm) = ((row.symptom)(facts), (row.confirm)(facts));
        // What is not known may have figures that point there all the same.
        let hints = if confirm.state == State::No { Vec::new() } else { confirm.evidence.clone() };
        let both = symptom.and(confirm);
        match both.state {
            State::No => {}
            State::Holds => held.push(Finding {
                row: row.id,
                axis: row.axis,
                title: row.title.to_owned(),
                expected: row.expected,
                evidence: distinct(both.evidence),
                next: (row.next)(facts),
            }),
            State::Unknown => report.not_known.push(NotKnown {
                row: row.id,
                axis: row.axis,
                title: row.title.to_owned(),
                missing: both.missing,
                hints,
            }),
        }
    }
    let (grave, others) = texts::findings(facts, &held);
    let last = held.iter().rposition(|finding| !finding.expected).map_or(0, |at| at + 1);
    held.splice(last..last, others);
    held.splice(0..0, grave);
    let mut held = held.into_iter();
    report.answer = held.next();
    report.findings = held.collect();
    report.measured = measured::measured(facts);
    report.log = evidence.log.as_ref().map(super::log::LogSummary::texts).unwrap_or_default();
    report.sources = evidence.sources;
    report
}

/// Two columns may show the same figure.
fn distinct(figures: Vec<Figure>) -> Vec<Figure> {
    let mut kept: Vec<Figure> = Vec::new();
    for figure in figures {
        if !kept.contains(&figure) {
            kept.push(figure);
        }
    }
    kept
}

fn steps(steps: &[&str]) -> Vec<String> {
    steps.iter().map(|step| (*step).to_owned()).collect()
}

/// What needs no symptom, because it is seen directly.
fn seen(_: Facts<'_>) -> Column {
    Column::of(true, Vec::new())
}
