use std::io::Write;

use atrest::object::Value;
use atrest::report::{Class, DiffReport, Difference, FieldChange, HistoryReport, WatchRow};

use super::reports::{SHOWN, or_dash, plural, short_hash};
use super::sheet::printable;
use super::{Form, Printable, Sheet};
use crate::args::WatchForm;
use crate::failure::Failure;

/// How much of a value a table shows.
const SHOWN_TEXT: usize = 60;
/// How many changes of an object a table shows.
const SHOWN_CHANGES: usize = 8;

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(nothing)".to_owned() };
    let text = match value.as_str() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string(value).unwrap_or_default(),
    };
    match text.char_indices().nth(SHOWN_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn in_words(changes: &[FieldChange]) -> String {
    let mut lines: Vec<_> = changes
        .iter()
        .take(SHOWN_CHANGES)
        .map(|change| format!("{}: {} -> {}", change.path, shown(change.from.as_ref()), shown(change.to.as_ref())))
        .collect();
    if changes.len() > SHOWN_CHANGES {
        lines.push(format!("and {} more", changes.len() - SHOWN_CHANGES));
    }
    lines.join("\n")
}

impl Printable for DiffReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let rows = self.rows.iter().take(if wide { usize::MAX } else { SHOWN }).map(|row| {
            let revision =
                |revision: Option<i64>| revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string());
            let revisions = format!("{} -> {}", revision(row.from_revision), revision(row.to_revision));
            vec![row.difference.name().to_owned(), row.value.key.to_string(), revisions, in_words(&row.changes)]
        });
        let columns = vec!["WHAT", "KEY", "REVISIONS", "CHANGES"];
        vec![Sheet { title: "", columns, rows: rows.collect(), form: Form::Blocks }]
    }

    fn summary(&self) -> Vec<String> {
        let mut counts: Vec<_> = [
            Difference::Added,
            Difference::Removed,
            Difference::Recreated,
            Difference::Changed,
            Difference::Resealed,
            Difference::Unreadable,
        ]
        .into_iter()
        .map(|difference| (difference, self.rows.iter().filter(|row| row.difference == difference).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(difference, count)| format!("{count} {}", difference.name()))
        .collect();
        if counts.is_empty() {
            counts.push("no difference".to_owned());
        }
        let mut lines = Vec::new();
        if self.rows.len() > SHOWN {
            lines.push(format!("{} more: -o json has them all", self.rows.len() - SHOWN));
        }
        lines.push(format!(
            "{} at revision {} -> {} at revision {}: {}, {} the same",
            self.from,
            self.from_revision,
            self.to,
            self.to_revision,
            counts.join(", "),
            self.same
        ));
        if !self.complete {
            lines.push("incomplete: not everything was read".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.value.key.to_string()).collect()
    }
}

impl Printable for HistoryReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let rows = self.revisions.iter().map(|row| {
            let hash = row.kms_key_id_hash.as_deref().unwrap_or_default();
            let key = match (hash.is_empty(), wide) {
                (true, _) => or_dash(&row.key),
                (false, true) => format!("{} {hash}", row.key),
                (false, false) => format!("{} {}", row.key, short_hash(hash)),
            };
            let class = row.class.map_or("-", atrest::report::Class::name);
            let who = row.manager.as_deref().map_or_else(String::new, |manager| format!("by {manager}"));
            let what = in_words(&row.changes);
            let about =
                if who.is_empty() || what.is_empty() { format!("{who}{what}") } else { format!("{who}\n{what}") };
            vec![
                format!("{}.{}", row.revision, row.sub_revision),
                row.event.to_owned(),
                row.time.clone().unwrap_or_else(|| "-".to_owned()),
                // A deletion has no value.
                match row.class {
                    None if row.bytes == 0 => "-".to_owned(),
                    _ => format!("{key} ({class}, {} bytes)", row.bytes),
                },
                about,
            ]
        });
        let columns = vec!["REVISION", "EVENT", "TIME", "KEY", "CHANGES"];
        vec![Sheet { title: "", columns, rows: rows.collect(), form: Form::Blocks }]
    }

    fn summary(&self) -> Vec<String> {
        let count = self.revisions.len() as u64;
        let mut lines = vec![match count {
            0 => format!("{}: no revision of it is in this file", self.key),
            count => format!("{}: {} in {}", self.key, plural(count, "revision", "revisions"), self.source),
        }];
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.revisions.iter().map(|row| row.revision.to_string()).collect()
    }
}

/// Prints changes as they come.
pub(crate) struct Changes {
    form: WatchForm,
    /// Whether all are of one namespace, so that it need not be named.
    one_namespace: bool,
    begun: bool,
}

impl Changes {
    pub(crate) const fn new(form: WatchForm, one_namespace: bool) -> Self {
        Self { form, one_namespace, begun: false }
    }

    pub(crate) fn print(&mut self, row: &WatchRow, out: &mut dyn Write) -> Result<(), Failure> {
        match self.form {
            WatchForm::Ndjson => return super::print_line(row, out),
            WatchForm::Yaml => {
                let yaml = serde_saphyr::to_string(row).map_err(|error| std::io::Error::other(error.to_string()))?;
                write!(out, "---\n{yaml}")?;
            }
            WatchForm::Name => {
                if let Some(value) = &row.value {
                    writeln!(out, "{}", value.key)?;
                }
            }
            WatchForm::Table => self.line(row, out)?,
        }
        Ok(())
    }

    fn line(&mut self, row: &WatchRow, out: &mut dyn Write) -> Result<(), Failure> {
        if !self.begun {
            self.begun = true;
            writeln!(out, "{:>10}  {:<8}  {:<32}  {:<32}  KEY", "REVISION", "EVENT", "RESOURCE", "NAME")?;
        }
        let text = |text: Option<&str>| printable(text.unwrap_or("-")).into_owned();
        let (resource, name, key) = match &row.value {
            Some(value) => {
                let namespace = value.namespace.as_deref().filter(|_| !self.one_namespace);
                let name = match (namespace, &value.name) {
                    (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
                    (_, Some(name)) => name.clone(),
                    _ => value.key.to_string(),
                };
                let key = match &row.previous_key {
                    Some(previous) => format!("{previous} -> {}", value.label()),
                    None => value.label(),
                };
                (text(value.resource.as_deref()), text(Some(&name)), text(Some(&key)))
            }
            None => (String::new(), String::new(), String::new()),
        };
        let class = row.class.filter(|class| *class != Class::Current).map(|class| format!("  {}", class.name()));
        let changed = match &row.changed {
            Some(paths) if paths.is_empty() => "  (same object)".to_owned(),
            Some(paths) => format!("  {}", printable(&paths.join(" "))),
            None => String::new(),
        };
        let message = if row.message.is_empty() { String::new() } else { format!("  {}", printable(&row.message)) };
        let line = format!(
            "{:>10}  {:<8}  {resource:<32}  {name:<32}  {key}{}{changed}{message}",
            row.revision,
            row.change.name(),
            class.unwrap_or_default()
        );
        writeln!(out, "{}", line.trim_end())?;
        Ok(())
    }
}
