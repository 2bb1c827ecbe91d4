use std::io::Write;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use crate::failure::Failure;

/// A table: rows of text under columns.
pub(crate) struct Sheet {
    pub(crate) title: &'static str,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Columns of numbers, which stand to the right.
const NUMBERS: [&str; 6] = ["VALUES", "BYTES", "WRITES", "OLDEST", "NEWEST", "REVISION"];

impl Sheet {
    pub(super) fn write_table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if !self.title.is_empty() {
            writeln!(out, "{}", self.title)?;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(&self.columns);
        for row in &self.rows {
            table.add_row(row);
        }
        for (i, name) in self.columns.iter().enumerate() {
            let Some(column) = table.column_mut(i) else { continue };
            // No border: the columns are held apart by two blanks.
            column.set_padding((0, 2));
            if NUMBERS.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        for line in table.to_string().lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    pub(super) fn write_csv(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut csv = csv::Writer::from_writer(out);
        let header = self.columns.iter().map(|column| column.to_lowercase().replace(' ', "_"));
        let broken = |error: csv::Error| Failure::from(std::io::Error::from(error));
        csv.write_record(header).map_err(broken)?;
        for row in &self.rows {
            csv.write_record(row).map_err(broken)?;
        }
        csv.flush()?;
        Ok(())
    }
}
