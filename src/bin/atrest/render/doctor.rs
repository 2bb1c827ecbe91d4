//! For somebody at three in the morning: the answer first, then what shows it, then what to do.

use std::fmt::Write as _;

use atrest::report::{DoctorReport, ExplainReport, Figure, FigureValue, Finding, NotKnown, Unit};

use super::sheet::printable;
use super::{Form, Printable, Sheet};

/// How many rows a line names.
const NAMED: usize = 8;

/// How many figures are shown when nothing is found.
const MEASURED: usize = 16;

impl Printable for DoctorReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        if !wide {
            return Vec::new();
        }
        let rows = self.measured.iter().map(|figure| vec![figure.what.clone(), value(figure), figure.source.clone()]);
        vec![Sheet { title: "", columns: vec!["WHAT", "VALUE", "SOURCE"], rows: rows.collect(), form: Form::Table }]
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.answer {
            Some(answer) if self.perhaps().next().is_none() => finding(answer, &mut lines),
            None if self.sources.iter().all(|source| !source.read) => {
                lines.push("no answer: nothing of what was named could be read".to_owned());
            }
            _ => {
                lines.push(self.perhaps().next().map_or_else(
                    || "nothing found: no row of the decision table holds by what was looked at".to_owned(),
                    headline,
                ));
                self.answer.iter().for_each(|answer| finding(answer, &mut lines));
                // All of them are in the other forms.
                lines.extend(self.measured.iter().take(MEASURED).map(|figure| format!("  {}", shown(figure))));
            }
        }
        if !self.findings.is_empty() {
            lines.push("also:".to_owned());
            for further in &self.findings {
                let first = further.evidence.first().map(|figure| format!(" ({})", shown(figure))).unwrap_or_default();
                let next = further.next.first().map(|step| format!("; next: {step}")).unwrap_or_default();
                lines.push(format!("  {}: {}{first}{next}", further.axis.words(), further.title));
            }
        }
        let told = self.perhaps().next();
        let others = self.not_known.iter().filter(|row| told.is_none_or(|told| told.row != row.row));
        perhaps(others, &mut lines);
        if !self.log.is_empty() {
            lines.push("in the log:".to_owned());
            for text in self.log.iter().take(NAMED) {
                let when = match (&text.first, &text.last) {
                    (Some(first), Some(last)) if first != last => format!(", {first} to {last}"),
                    (Some(first), _) => format!(", {first}"),
                    _ => String::new(),
                };
                let key = text.keys.first().map(|key| format!(", {key}")).unwrap_or_default();
                lines.push(format!("  {} × {}: {}{when}{key}", text.count, text.explanation, text.axis.words()));
            }
        }
        missing(&self.not_known, &mut lines);
        for source in self.sources.iter().filter(|source| source.read && source.kind == "log") {
            lines.push(format!("read: log {}: {}", source.name, source.detail));
        }
        // What a finding has told already is not told once more.
        let is_told = |detail: &str| {
            let mut figures = self.answer.iter().chain(&self.findings).flat_map(|finding| &finding.evidence);
            figures.any(|figure| matches!(&figure.value, FigureValue::Text(text) if text == detail))
        };
        let unread: Vec<_> = self.sources.iter().filter(|source| !source.read && !is_told(&source.detail)).collect();
        if !unread.is_empty() {
            lines.push("could not be read:".to_owned());
            lines.extend(unread.iter().map(|source| format!("  {} {}: {}", source.kind, source.name, source.detail)));
        }
        printed(&lines)
    }

    fn names(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.answer.iter().chain(&self.findings).map(|finding| finding.row.to_owned()).collect();
        rows.dedup();
        rows
    }
}

fn finding(finding: &Finding, lines: &mut Vec<String>) {
    let normal = if finding.expected { " (no fault)" } else { "" };
    lines.push(format!("{}: {}{normal}", finding.axis.words(), finding.title));
    lines.extend(finding.evidence.iter().map(|figure| format!("  {}", shown(figure))));
    lines.push("next:".to_owned());
    lines.extend(finding.next.iter().enumerate().map(|(i, step)| format!("  {}. {step}", i + 1)));
}

/// The first line when nothing is certain.
fn headline(row: &NotKnown) -> String {
    let hints: Vec<_> = row.hints.iter().take(2).map(shown).collect();
    let missing = row.missing.join(", or ");
    format!("perhaps {}: {}: {}; what is missing to be sure: {missing}", row.axis.words(), row.title, hints.join("; "))
}

/// Rows whose confirmation is there, and whose symptom is not known.
fn perhaps<'a>(not_known: impl Iterator<Item = &'a NotKnown>, lines: &mut Vec<String>) {
    let mut hinted = not_known.filter(|row| !row.hints.is_empty()).peekable();
    if hinted.peek().is_some() {
        lines.push("perhaps, and not certain by what was looked at:".to_owned());
    }
    for row in hinted {
        let hints: Vec<_> = row.hints.iter().take(2).map(shown).collect();
        lines.push(format!(
            "  {}: {} ({}); to know: {}",
            row.axis.words(),
            row.title,
            hints.join("; "),
            row.missing.join(", ")
        ));
    }
}

/// What was not looked at, by what would have to be there.
fn missing(not_known: &[NotKnown], lines: &mut Vec<String>) {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for row in not_known {
        // Each of several would do, and the first tells most.
        let missing = row.missing.first().cloned().unwrap_or_default();
        match groups.iter_mut().find(|(other, _)| *other == missing) {
            Some((_, rows)) => rows.push(row.row),
            None => groups.push((missing, vec![row.row])),
        }
    }
    if !groups.is_empty() {
        lines.push("not looked at, for want of:".to_owned());
    }
    for (missing, rows) in groups {
        let more = rows.len().saturating_sub(NAMED);
        let named = rows.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        lines.push(format!("  {missing}: {named}{more}"));
    }
}

/// A figure in a line.
fn shown(figure: &Figure) -> String {
    format!("{}: {} ({})", figure.what, value(figure), figure.source)
}

fn value(figure: &Figure) -> String {
    let text = match (&figure.value, figure.unit) {
        (FigureValue::Number(seconds), Unit::Seconds) => time(*seconds),
        (FigureValue::Count(count), Unit::Seconds) => time(*count as f64),
        (FigureValue::Count(count), Unit::Bytes) => bytes(*count as f64),
        (FigureValue::Number(count), Unit::Bytes) => bytes(*count),
        (FigureValue::Count(count), _) => count.to_string(),
        (FigureValue::Number(number), _) => format!("{number:.1}"),
        (FigureValue::Text(text), _) => text.clone(),
    };
    if figure.at_least { format!("over {text}") } else { text }
}

fn time(seconds: f64) -> String {
    match seconds.abs() {
        // Differences of clocks have no parts of a second.
        whole if whole >= 1.0 => format!("{seconds:.2} s"),
        millis if millis >= 0.001 => format!("{:.1} ms", seconds * 1e3),
        0.0 => "0 s".to_owned(),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{size:.0} {name}") } else { format!("{size:.1} {name}") }
}

/// Labels and keys come from whoever wrote them.
fn printed(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| printable(line).into_owned()).collect()
}

impl Printable for ExplainReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        if !wide {
            return Vec::new();
        }
        let rows = self.explanations.iter().map(|explanation| {
            vec![explanation.id.to_owned(), explanation.axis.words().to_owned(), explanation.recognised.clone()]
        });
        vec![Sheet {
            title: "",
            columns: vec!["EXPLANATION", "AXIS", "RECOGNISED"],
            rows: rows.collect(),
            form: Form::Table,
        }]
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.known {
            lines.push("this text is not known. To find out, collect:".to_owned());
            lines.extend(self.collect.iter().map(|what| format!("  {what}")));
        }
        for (i, explanation) in self.explanations.iter().enumerate() {
            if i > 0 {
                lines.push(String::new());
            }
            lines.push(format!("{}: {}", explanation.axis.words(), explanation.meaning));
            lines.push("because of:".to_owned());
            lines.extend(explanation.causes.iter().map(|cause| format!("  - {cause}")));
            lines.push("next:".to_owned());
            lines.extend(explanation.next.iter().enumerate().map(|(i, step)| format!("  {}. {step}", i + 1)));
        }
        if !self.keys.is_empty() || !self.figures.is_empty() {
            let mut line = "in the text: ".to_owned();
            let figures = self.figures.iter().map(|figure| format!("{} {}", figure.what, value(figure)));
            _ = write!(line, "{}", self.keys.iter().cloned().chain(figures).collect::<Vec<_>>().join(", "));
            lines.push(line);
        }
        printed(&lines)
    }

    fn names(&self) -> Vec<String> {
        self.explanations.iter().map(|explanation| explanation.id.to_owned()).collect()
    }
}
