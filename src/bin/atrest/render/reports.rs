use std::collections::BTreeMap;

use atrest::report::{
    CheckResult, Class, KmsCheckReport, PlanGroup, RekeyPlan, RekeyReport, Removable, ScanGroup, ScanReport,
    VerifyGroup, VerifyReport, VerifyRow,
};

use super::{Form, Printable, Sheet};

/// How many findings a table shows; every other form has all.
pub(super) const SHOWN: usize = 50;

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

pub(super) fn values(count: u64) -> String {
    plural(count, "value", "values")
}

/// `sha256:` and so many digits tell keys apart.
pub(super) fn short_hash(hash: &str) -> String {
    or_dash(hash.get(..19).unwrap_or(hash))
}

/// A column of the census.
type Column = fn(&ScanGroup) -> &Option<String>;

impl Printable for ScanReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let has = |column: Column| self.groups.iter().any(|group| column(group).is_some());
        let mut columns = Vec::new();
        let dimensions: [(&str, Column); 5] = [
            ("RESOURCE", |group| &group.resource),
            ("NAMESPACE", |group| &group.namespace),
            ("PROVIDER", |group| &group.provider),
            ("KEY", |group| &group.key_name),
            ("KMS KEY ID", |group| &group.kms_key_id_hash),
        ];
        let any_key_id =
            self.groups.iter().any(|group| group.kms_key_id_hash.as_deref().is_some_and(|id| !id.is_empty()));
        let shown: Vec<_> = dimensions
            .into_iter()
            .filter(|(name, column)| has(*column) && (*name != "KMS KEY ID" || any_key_id || wide))
            .collect();
        columns.extend(shown.iter().map(|(name, _)| *name));
        columns.push("VALUES");
        if wide {
            columns.extend(["BYTES", "WRITES", "OLDEST", "NEWEST"]);
        }
        let rows = self.groups.iter().map(|group| {
            let mut row: Vec<_> = shown
                .iter()
                .map(|(name, column)| {
                    let text = column(group).as_deref().unwrap_or("");
                    if *name == "KMS KEY ID" && !wide { short_hash(text) } else { or_dash(text) }
                })
                .collect();
            row.push(group.values.to_string());
            if wide {
                row.extend([group.bytes, group.writes].map(|number| number.to_string()));
                row.extend([group.oldest_revision, group.newest_revision].map(|number| number.to_string()));
            }
            row
        });
        let unexpected = self.unexpected_keys.iter().take(SHOWN).map(|key| vec![key.to_string()]).collect();
        vec![
            Sheet { title: "", columns, rows: rows.collect(), form: Form::Table },
            Sheet {
                title: "Stored in the clear, and should not be:",
                columns: vec!["KEY"],
                rows: unexpected,
                form: Form::Table,
            },
        ]
    }

    fn summary(&self) -> Vec<String> {
        let mut line = format!("{} at revision {}: ", values(self.values), self.revision);
        line.push_str(&format!("{} encrypted, {} in the clear", self.encrypted, self.plaintext));
        if self.unrecognised > 0 {
            line.push_str(&format!(", {} not recognised", self.unrecognised));
        }
        let mut lines = vec![line];
        if self.unexpected > 0 {
            lines.push(format!("{} should be encrypted and are not", values(self.unexpected)));
        }
        if !self.complete {
            lines.push("incomplete: not everything was read".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.unexpected_keys.iter().map(ToString::to_string).collect()
    }
}

/// The findings, but of each verdict no more than so many that there is room for all verdicts.
pub(super) fn findings(rows: &[VerifyRow]) -> Sheet {
    let mut by_class: BTreeMap<Class, Vec<&VerifyRow>> = BTreeMap::new();
    for row in rows {
        by_class.entry(row.class).or_default().push(row);
    }
    let room = if rows.len() <= SHOWN { rows.len() } else { SHOWN / by_class.len().max(1) };
    let shown = by_class.into_values().flat_map(|rows| rows.into_iter().take(room.max(1)));
    let rows = shown.map(|row| {
        let revision = format!("(revision {})", row.value.mod_revision);
        vec![row.class.to_string(), row.value.key.to_string(), revision, row.message.clone()]
    });
    Sheet {
        title: "Findings:",
        columns: vec!["CLASS", "KEY", "REVISION", "WHY, AND WHAT TO DO"],
        rows: rows.collect(),
        form: Form::Blocks,
    }
}

/// What is left out of the table of findings.
pub(super) fn left_out(rows: &[VerifyRow]) -> Option<String> {
    let shown = findings(rows).rows.len();
    let left = rows.len().checked_sub(shown).filter(|left| *left > 0)?;
    Some(format!("{}: -o json has them all", plural(left as u64, "more finding", "more findings")))
}

impl Printable for VerifyReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let mut columns = vec!["RESOURCE"];
        if wide {
            columns.push("NAMESPACE");
        }
        columns.extend(["KEY", "CLASS", "VALUES"]);
        let mut counts: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for VerifyGroup { resource, namespace, key, class, values } in &self.groups {
            let mut row = vec![resource.clone()];
            if wide {
                row.push(or_dash(namespace));
            }
            row.extend([key.clone(), class.to_string()]);
            *counts.entry(row).or_default() += values;
        }
        let rows = counts.into_iter().map(|(mut row, count)| {
            row.push(count.to_string());
            row
        });
        let mut sheets =
            vec![Sheet { title: "", columns, rows: rows.collect(), form: Form::Table }, findings(&self.findings)];
        if let Some(answer) = &self.removable {
            let rows = answer.needed_by_keys.iter().take(SHOWN).map(|key| vec![key.to_string()]).collect();
            sheets.push(Sheet { title: "Needed by:", columns: vec!["KEY"], rows, form: Form::Table });
        }
        sheets
    }

    fn summary(&self) -> Vec<String> {
        let (current, stale) = (self.count(Class::Current), self.count(Class::Stale));
        let mut lines = vec![format!(
            "{} at revision {}: {current} current, {stale} stale, {} unreadable or wrong",
            values(self.values),
            self.revision,
            self.unreadable()
        )];
        let not_asked = self.count(Class::KmsUnavailable);
        if not_asked > 0 {
            lines.push(format!(
                "{} of them could not be looked at, because a KMS does not answer: nothing is known to be wrong with them",
                values(not_asked)
            ));
        }
        lines.extend(left_out(&self.findings));
        if let Some(answer) = &self.removable {
            lines.push(match answer.removable {
                Removable::Yes => format!(
                    "{} can be removed: no live value needs it (etcd's history and older snapshots may)",
                    answer.key
                ),
                Removable::No => format!("{} cannot be removed: {}", answer.key, answer.reasons.join(", ")),
                Removable::Unknown => format!("{}: not known: {}", answer.key, answer.reasons.join(", ")),
            });
        }
        if !self.complete {
            lines.push("incomplete: not everything was read".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(rehearsal(self));
        lines
    }

    fn names(&self) -> Vec<String> {
        match &self.removable {
            Some(answer) => answer.needed_by_keys.iter().map(ToString::to_string).collect(),
            None => self.findings.iter().map(|row| row.value.key.to_string()).collect(),
        }
    }
}

/// What somebody who restores a backup wants to know, in a line.
fn rehearsal(report: &VerifyReport) -> String {
    let readable = report.count(Class::Current) + report.count(Class::Stale);
    let mut line = format!("{readable} of {} readable with this configuration", values(report.values));
    if !report.missing.is_empty() {
        let keys = report.missing.iter().map(|missing| match &missing.kms_key_id_hash {
            Some(hash) => format!("{} {} ({})", missing.key, short_hash(hash), values(missing.values)),
            None => format!("{} ({})", missing.key, values(missing.values)),
        });
        line.push_str(&format!("; missing: {}", keys.collect::<Vec<_>>().join(", ")));
    }
    line
}

fn plan_rows(groups: &[PlanGroup]) -> Vec<Vec<String>> {
    groups
        .iter()
        .map(|group| {
            vec![
                group.resource.clone(),
                or_dash(&group.namespace),
                group.from.clone(),
                group.to.clone(),
                group.values.to_string(),
                group.bytes.to_string(),
            ]
        })
        .collect()
}

const PLAN_COLUMNS: [&str; 6] = ["RESOURCE", "NAMESPACE", "FROM", "TO", "VALUES", "BYTES"];

impl Printable for RekeyPlan {
    fn sheets(&self, _: bool) -> Vec<Sheet> {
        let unreadable = self
            .unreadable_groups
            .iter()
            .map(|(class, group)| {
                vec![
                    class.to_string(),
                    group.resource.clone(),
                    or_dash(&group.namespace),
                    group.from.clone(),
                    group.values.to_string(),
                ]
            })
            .collect();
        vec![
            Sheet { title: "", columns: PLAN_COLUMNS.to_vec(), rows: plan_rows(&self.rewrite), form: Form::Table },
            Sheet {
                title: "Cannot be read, by their headers, and will be left as they are:",
                columns: vec!["CLASS", "RESOURCE", "NAMESPACE", "KEY", "VALUES"],
                rows: unreadable,
                form: Form::Table,
            },
        ]
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} at revision {}: by their headers {} to rewrite, {} current, {} unreadable (`atrest verify` opens them)",
            values(self.values),
            self.revision,
            self.to_rewrite,
            self.current,
            self.unreadable
        )];
        if !self.complete {
            lines.push("incomplete: not everything was read".to_owned());
        }
        for wrong in &self.wrong_keys {
            lines.push(format!(
                "{} in the configuration opens none of the {} stored under that name: it is not the key of the API \
                 servers, and nothing will be written with it",
                wrong.key,
                values(wrong.values)
            ));
        }
        if self.to_open > 0 {
            lines.push(format!("{} more have to be opened to tell", values(self.to_open)));
        }
        if self.to_rewrite + self.to_open == 0 {
            lines.push("0 stale, nothing to do".to_owned());
        } else {
            lines.push(format!(
                "etcd's database grows by about {} KiB until it is compacted",
                self.growth_bytes.div_ceil(1024)
            ));
            lines.push(
                "nothing was written: add --yes to write. kube-apiserver's audit log does not see the writes"
                    .to_owned(),
            );
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Printable for RekeyReport {
    fn sheets(&self, _: bool) -> Vec<Sheet> {
        let left = self
            .too_large
            .iter()
            .map(|value| ("too large", value))
            .chain(self.not_objects.iter().map(|value| ("no object", value)))
            .chain(self.failed.iter().map(|value| ("failed", value)))
            .take(SHOWN)
            .map(|(what, value)| {
                let revision = format!("(revision {})", value.mod_revision);
                vec![what.to_owned(), value.key.to_string(), revision, value.message.clone()]
            })
            .collect();
        let stale = self.still_stale_keys.iter().take(SHOWN).map(|key| vec![key.to_string()]).collect();
        vec![
            Sheet { title: "", columns: PLAN_COLUMNS.to_vec(), rows: plan_rows(&self.groups), form: Form::Table },
            Sheet {
                title: "Not rewritten:",
                columns: vec!["WHY", "KEY", "REVISION", "MESSAGE"],
                rows: left,
                form: Form::Blocks,
            },
            Sheet { title: "Still stale:", columns: vec!["KEY"], rows: stale, form: Form::Table },
            findings(&self.unreadable),
        ]
    }

    fn summary(&self) -> Vec<String> {
        let rate = if self.seconds > 0.0 { self.rewritten as f64 / self.seconds } else { 0.0 };
        let mut lines = vec![format!(
            "{} rewritten in {:.1} s ({rate:.0} a second), {} skipped because they were current already, {} deleted meanwhile",
            values(self.rewritten),
            self.seconds,
            self.already_current,
            self.gone
        )];
        if self.too_large.len() + self.not_objects.len() + self.failed.len() > 0 {
            let (too_large, not_objects, failed) = (self.too_large.len(), self.not_objects.len(), self.failed.len());
            lines.push(format!("{too_large} too large, {not_objects} not of an object, {failed} failed"));
            if too_large + not_objects + failed > SHOWN {
                lines.push("not all of them are shown: -o json has them all".to_owned());
            }
        }
        let all_read = self.unreadable.is_empty() && self.read_again > 0;
        if self.verified && self.rewritten == 0 && self.still_stale == Some(0) && self.failed.is_empty() && all_read {
            lines.push("0 stale, nothing to do".to_owned());
        }
        if let Some(still_stale) = self.still_stale {
            lines.push(format!("read again: {still_stale} stale, {} unreadable or wrong", self.unreadable.len()));
        }
        lines.extend(left_out(&self.unreadable));
        if !self.complete {
            let done = self.rewritten + self.gone;
            lines.push(format!("not finished, about {} left: run it again", values(self.planned.saturating_sub(done))));
        }
        if !self.keys_in_use.is_empty() {
            lines.push(format!("keep: {}", self.keys_in_use.join(", ")));
        }
        if !self.keys_unused.is_empty() {
            lines.push(format!("no live value needs: {}", self.keys_unused.join(", ")));
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        let unreadable = self.unreadable.iter().map(|row| row.value.key.to_string());
        let left =
            self.too_large.iter().chain(&self.not_objects).chain(&self.failed).map(|value| value.key.to_string());
        unreadable.chain(left).collect()
    }
}

fn micros(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10)
}

impl Printable for KmsCheckReport {
    fn sheets(&self, _: bool) -> Vec<Sheet> {
        let checks = self.checks.iter().map(|check| {
            vec![check.result.name().to_owned(), check.api.to_owned(), check.name.to_owned(), check.detail.clone()]
        });
        let latency = self.latency.iter().map(|latency| {
            let times = [latency.p50_us, latency.p95_us, latency.p99_us, latency.max_us].map(micros);
            [vec![latency.api.to_owned(), latency.method.to_owned(), latency.calls.to_string()], times.to_vec()]
                .concat()
        });
        vec![
            Sheet {
                title: "",
                columns: vec!["RESULT", "API", "CHECK", "DETAIL"],
                rows: checks.collect(),
                form: Form::Table,
            },
            Sheet {
                title: "Latency:",
                columns: vec!["API", "METHOD", "CALLS", "P50", "P95", "P99", "MAX"],
                rows: latency.collect(),
                form: Form::Table,
            },
        ]
    }

    fn summary(&self) -> Vec<String> {
        let (failed, warnings) = (self.count(CheckResult::Fail), self.count(CheckResult::Warn));
        let verdict = if self.ok { "kube-apiserver can use it" } else { "kube-apiserver cannot use it as it is" };
        let mut lines = vec![format!(
            "{}: {} passed, {}, {failed} failed: {verdict}",
            self.endpoint,
            self.count(CheckResult::Pass),
            plural(warnings as u64, "warning", "warnings"),
        )];
        if !self.ok {
            lines.push(format!("failed: {}", self.names().join(", ")));
        }
        if let Some(timeout) = self.recommended_timeout_ms {
            lines.push(format!("timeout {} ms; by these latencies {timeout} ms would do", self.timeout_ms));
        }
        lines
    }

    fn names(&self) -> Vec<String> {
        self.checks
            .iter()
            .filter(|check| check.result == CheckResult::Fail)
            .map(|check| format!("{}/{}", check.api, check.name))
            .collect()
    }
}
