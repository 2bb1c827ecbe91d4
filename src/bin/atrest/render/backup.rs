use atrest::report::RewriteReport;

use super::reports::{findings, left_out, values};
use super::{Form, Printable, Sheet};

impl Printable for RewriteReport {
    fn sheets(&self, _: bool) -> Vec<Sheet> {
        let rows = self
            .groups
            .iter()
            .map(|group| vec![group.resource.clone(), group.from.clone(), group.to.clone(), group.values.to_string()]);
        let columns = vec!["RESOURCE", "FROM", "TO", "VALUES"];
        vec![Sheet { title: "", columns, rows: rows.collect(), form: Form::Table }, findings(&self.unreadable)]
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(left_out(&self.unreadable));
        if self.target.is_empty() {
            if self.unreadable_values > 0 {
                lines.push(format!(
                    "nothing was written: {} cannot be read (--keep-unreadable leaves them as they are)",
                    values(self.unreadable_values)
                ));
            } else {
                lines.push("nothing was written: interrupted".to_owned());
            }
        } else {
            let rate = if self.seconds > 0.0 { self.size as f64 / 1e6 / self.seconds } else { 0.0 };
            lines.push(format!(
                "{}: {} of {} records at revision {}, {} of them with a new value, {} left out by their keys; {} bytes in {:.1} s \
                 ({rate:.0} MB/s)",
                self.target,
                self.records,
                self.records_before,
                self.revision,
                self.replaced,
                self.dropped,
                self.size,
                self.seconds
            ));
            lines.push(format!("status hash {:08x}, SHA-256 {}", self.status_hash, self.sha256));
            if self.unreadable_values > 0 {
                lines.push(format!("{} cannot be read, and are in it as they were", values(self.unreadable_values)));
            }
            lines.push(
                "it was read again: every record is there, and nothing else. Restore it on every member into a new data \
                 directory: `etcdutl snapshot restore`"
                    .to_owned(),
            );
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.unreadable.iter().map(|row| row.value.key.to_string()).collect()
    }
}
