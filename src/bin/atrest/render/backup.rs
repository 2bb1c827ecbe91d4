use atrest::report::{InspectReport, ResiduePlace, ResidueReport, RewriteReport};

use super::reports::{SHOWN, findings, left_out, or_dash, plural, short_hash, values};
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
            if self.complete && self.unreadable_values > 0 {
                lines.push(format!(
                    "nothing was written: {} cannot be read (--keep-unreadable leaves them as they are)",
                    values(self.unreadable_values)
                ));
            } else {
                let why = if self.complete { "there is nothing to do" } else { "interrupted" };
                lines.push(format!("nothing was written: {why}"));
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
            lines.push("it was read again: it holds these records, and nothing else".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.unreadable.iter().map(|row| row.value.key.to_string()).collect()
    }
}

impl Printable for InspectReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let revision = match (self.compacted_revision, self.interrupted_compaction) {
            (_, Some(begun)) => format!("{} (a compaction at {begun} was begun)", self.revision),
            (Some(compacted), None) => format!("{} (compacted at {compacted})", self.revision),
            (None, None) if self.buckets.iter().any(|bucket| bucket.bucket == "meta") => {
                format!("{} (never compacted)", self.revision)
            }
            (None, None) => format!("{} (whether it was compacted is lost)", self.revision),
        };
        let left = if self.complete { "" } else { ", of what is left" };
        let members: Vec<_> =
            self.cluster.members.iter().map(|member| format!("{} ({})", member.name, member.id)).collect();
        let facts = [
            ("etcd", self.etcd_version.clone()),
            ("size", format!("{} bytes, {} of them up to the last page", self.file_size, self.total_size)),
            ("hash", self.trailer.to_string()),
            ("revision", revision),
            (
                "status hash",
                format!("{:08x} (revision {}, {} keys){left}", self.status_hash, self.status_revision, self.total_keys),
            ),
            ("hashkv", format!("{}{left}", self.hash_kv)),
            ("keys", format!("{} live", self.live_keys)),
            ("records", format!("{}, {} of them deletions", self.records, self.tombstones)),
            ("pages", format!("{} of {} bytes, {} free", self.pages.total, self.pages.size, self.pages.free)),
            ("members", if members.is_empty() { "none".to_owned() } else { members.join(", ") }),
            ("leases", self.cluster.leases.to_string()),
        ];
        let facts = facts.into_iter().map(|(name, fact)| vec![name.to_owned(), fact]).collect();
        let buckets = self.buckets.iter().filter(|bucket| wide || bucket.elements > 0);
        let buckets =
            buckets.map(|size| vec![size.bucket.clone(), size.elements.to_string(), size.bytes.to_string()]).collect();
        let keys = self.keys.iter().map(|needed| {
            let hash = needed.kms_key_id_hash.as_deref().unwrap_or_default();
            let hash = if wide { or_dash(hash) } else { short_hash(hash) };
            vec![needed.key.clone(), hash, needed.live.to_string(), needed.history.to_string()]
        });
        let sheet = |title, columns, rows| Sheet { title, columns, rows, form: Form::Table };
        vec![
            sheet("", vec!["WHAT", "IS"], facts),
            sheet("Buckets:", vec!["BUCKET", "ELEMENTS", "BYTES"], buckets),
            sheet(
                "What its values are under; keep the keys as long as the backup:",
                vec!["KEY", "KMS KEY ID", "LIVE", "HISTORY"],
                keys.collect(),
            ),
            sheet(
                "In the write-ahead log, and not in the database yet:",
                vec!["ENTRY"],
                self.not_yet_in_db.iter().map(|entry| vec![entry.clone()]).collect(),
            ),
        ]
    }

    fn summary(&self) -> Vec<String> {
        self.warnings.iter().map(|warning| format!("warning: {warning}")).collect()
    }

    fn names(&self) -> Vec<String> {
        self.keys.iter().map(|needed| needed.key.clone()).collect()
    }
}

impl Printable for ResidueReport {
    fn sheets(&self, wide: bool) -> Vec<Sheet> {
        let shown = self.groups.iter().filter(|group| wide || group.unwanted || group.place != ResiduePlace::Live);
        let groups = shown.map(|group| {
            let hash = group.kms_key_id_hash.as_deref().unwrap_or_default();
            vec![
                if group.unwanted { "!" } else { "" }.to_owned(),
                group.place.to_string(),
                group.resource.clone(),
                group.key.clone(),
                if wide { or_dash(hash) } else { short_hash(hash) },
                group.values.to_string(),
                group.bytes.to_string(),
                group.copies.to_string(),
            ]
        });
        let examples = self.examples.iter().map(|example| {
            let key = example.key.clone().unwrap_or_else(|| "(no key)".to_owned());
            let place = format!("{} at offset {}", example.place, example.offset);
            let hash = example.sha256.get(..16).unwrap_or_default();
            vec![key, place, format!("{}: {}, {} bytes, sha256:{hash}…", example.file, example.under, example.bytes)]
        });
        vec![
            Sheet {
                title: "",
                columns: vec!["", "PLACE", "RESOURCE", "KEY", "KMS KEY ID", "VALUES", "BYTES", "COPIES"],
                rows: groups.collect(),
                form: Form::Table,
            },
            Sheet {
                title: "Should not be there, for example:",
                columns: vec!["KEY", "PLACE", "WHAT"],
                rows: examples.take(SHOWN).collect(),
                form: Form::Blocks,
            },
        ]
    }

    fn summary(&self) -> Vec<String> {
        let mut lines = vec![match self.unwanted {
            0 => format!(
                "nothing that should not be there, in {} looked through",
                plural(self.files.len() as u64, "file", "files")
            ),
            unwanted => format!(
                "{} that should not be there (marked !), in {} looked through",
                values(unwanted),
                plural(self.files.len() as u64, "file", "files")
            ),
        }];
        for user in &self.plaintext_passwords {
            lines.push(format!("the password of etcd's user {user} is in the write-ahead log in the clear: change it"));
        }
        if !self.clean_up.is_empty() {
            lines.push("to clean up, in this order:".to_owned());
            lines.extend((1..).zip(&self.clean_up).map(|(number, step)| format!("  {number}. {step}")));
        }
        if !self.complete {
            lines.push("incomplete: not everything was read".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn names(&self) -> Vec<String> {
        self.examples.iter().filter_map(|example| example.key.clone()).collect()
    }
}
