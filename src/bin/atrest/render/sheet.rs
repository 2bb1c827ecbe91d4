use std::borrow::Cow;
use std::io::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::failure::Failure;

/// A table: rows of text under columns.
pub(crate) struct Sheet {
    pub(crate) title: &'static str,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) form: Form,
}

/// How rows are shown to people.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Under each other.
    Table,
    /// The last column is prose: it stands below the others, which so can be copied.
    Blocks,
}

/// Columns of numbers, which stand to the right.
const NUMBERS: [&str; 6] = ["VALUES", "BYTES", "WRITES", "OLDEST", "NEWEST", "REVISION"];

/// Names and headers come from whoever wrote to etcd: nothing of them may move the cursor or colour the terminal.
pub(super) fn printable(cell: &str) -> Cow<'_, str> {
    match cell.chars().any(char::is_control) {
        true => {
            cell.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
        }
        false => Cow::Borrowed(cell),
    }
}

impl Sheet {
    pub(super) fn write_table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if !self.title.is_empty() {
            writeln!(out, "{}", self.title)?;
        }
        match self.form {
            Form::Table => self.write_rows(out),
            Form::Blocks => self.write_blocks(out),
        }
    }

    fn write_rows(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut table = Table::new();
        // Never wrapped: what is broken in the middle cannot be copied.
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| printable(cell)));
        }
        for (i, name) in self.columns.iter().enumerate() {
            let Some(column) = table.column_mut(i) else { continue };
            // No border: the columns are held apart by two blanks.
            column.set_padding((0, 2));
            if NUMBERS.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.to_string().lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn write_blocks(&self, out: &mut dyn Write) -> Result<(), Failure> {
        for row in &self.rows {
            let Some((prose, head)) = row.split_last() else { continue };
            let head: Vec<_> = head.iter().map(|cell| printable(cell)).collect();
            writeln!(out, "{}", head.join("  "))?;
            for line in prose.lines() {
                writeln!(out, "    {}", printable(line))?;
            }
        }
        Ok(())
    }

    pub(super) fn write_csv(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut csv = csv::Writer::from_writer(out);
        let header = self.columns.iter().map(|column| column.to_lowercase().replace(' ', "_"));
        let broken = |error: csv::Error| match error.into_kind() {
            csv::ErrorKind::Io(error) => Failure::from(error),
            kind => Failure::from(std::io::Error::other(format!("{kind:?}"))),
        };
        csv.write_record(header).map_err(broken)?;
        for row in &self.rows {
            csv.write_record(row).map_err(broken)?;
        }
        csv.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_command_the_terminal() {
        let sheet = Sheet {
            title: "",
            columns: vec!["NAME"],
            rows: vec![vec!["\u{1b}]0;x\u{7}\r\u{9b}2J".to_owned()], vec!["grün".to_owned()]],
            form: Form::Table,
        };
        let mut out = Vec::new();
        sheet.write_table(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME\n\\u{1b}]0;x\\u{7}\\r\\u{9b}2J\ngrün\n");
    }
}
