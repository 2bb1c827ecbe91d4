//! What the log says and no row has told: the rows know some texts, and say more of them.

use super::facts::Facts;
use crate::doctor::figure;
use crate::report::{Finding, LogText};

/// The row that stands for what the log says alone.
pub(super) const LOG_TEXT: &str = "log-text";

/// What keeps everything else from working, the gravest first; it comes before all rows.
const GRAVE: [&str; 4] = ["no-space", "disk-full", "corrupt-cluster", "wal-corrupt"];

/// How many texts are findings.
const MOST: usize = 8;

/// The texts that come before the rows, and those that come behind them.
pub(super) fn findings(facts: Facts<'_>, held: &[Finding]) -> (Vec<Finding>, Vec<Finding>) {
    let Some(log) = &facts.evidence.log else { return (Vec::new(), Vec::new()) };
    let is_told = |id: &str| {
        let mut figures = held.iter().flat_map(|finding| &finding.evidence);
        figures.any(|figure| ids_of(&figure.what).any(|told| told == id))
    };
    let is_over = |id: &str| id == super::super::explain::DISARMED || (id == GRAVE[0] && log.disarmed().is_some());
    let mut texts = log.texts();
    texts.retain(|text| !is_told(text.explanation) && !is_over(text.explanation));
    let rank = |text: &LogText| GRAVE.iter().position(|id| *id == text.explanation).unwrap_or(GRAVE.len());
    let found = |text: &LogText| log.matches.get(text.explanation);
    texts.sort_by_key(|text| (rank(text), found(text).is_some_and(crate::doctor::LogMatch::is_vague)));
    let finding = |text: &LogText| Finding {
        row: LOG_TEXT,
        axis: text.axis,
        title: text.meaning.to_owned(),
        expected: false,
        evidence: vec![figure::count(lines(text.explanation), text.count, &log.name)],
        next: found(text).map(crate::doctor::LogMatch::next).unwrap_or_default(),
    };
    let (grave, others): (Vec<_>, Vec<_>) = texts.iter().take(MOST).partition(|text| rank(text) < GRAVE.len());
    (grave.into_iter().map(finding).collect(), others.into_iter().map(finding).collect())
}

/// How a figure names the texts that it counts.
pub(super) fn lines(ids: &str) -> String {
    format!("lines of the log ({ids})")
}

fn ids_of(what: &str) -> impl Iterator<Item = &str> {
    let ids = what.strip_prefix("lines of the log (").and_then(|rest| rest.strip_suffix(')'));
    ids.unwrap_or_default().split(", ")
}
