//! How results are shown. Everything here writes to a `Write`; nothing decides.

mod backup;
mod changes;
mod doctor;
mod objects;
mod reports;
mod sheet;

use std::io::Write;

use serde::Serialize;

use crate::args::Output;
use crate::failure::Failure;

pub(crate) use changes::Changes;
pub(crate) use objects::{Objects, object_line, object_text};
pub(crate) use reports::plural;
pub(crate) use sheet::{Form, Sheet};

/// A result that can be shown in every form.
pub(crate) trait Printable: Serialize {
    /// The tables, the main one first.
    fn sheets(&self, wide: bool) -> Vec<Sheet>;

    /// What stands below the tables, a line each.
    fn summary(&self) -> Vec<String>;

    /// The etcd keys of the result, for `-o name`.
    fn names(&self) -> Vec<String>;
}

/// Writes a result in the form that was asked for.
pub(crate) fn print(report: &impl Printable, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    match output {
        Output::Table | Output::Wide => {
            let sheets = report.sheets(output == Output::Wide);
            let mut first = true;
            for sheet in sheets.iter().filter(|sheet| !sheet.rows.is_empty()) {
                if !first {
                    writeln!(out)?;
                }
                first = false;
                sheet.write_table(out)?;
            }
            let summary = report.summary();
            if !first && !summary.is_empty() {
                writeln!(out)?;
            }
            for line in summary {
                writeln!(out, "{line}")?;
            }
        }
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Output::Ndjson => {
            serde_json::to_writer(&mut *out, report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Output::Yaml => {
            let yaml = serde_saphyr::to_string(report).map_err(|error| std::io::Error::other(error.to_string()))?;
            out.write_all(yaml.as_bytes())?;
            if !yaml.ends_with('\n') {
                writeln!(out)?;
            }
        }
        Output::Csv => {
            if let Some(sheet) = report.sheets(true).first() {
                sheet.write_csv(out)?;
            }
        }
        Output::Name => {
            for name in report.names() {
                writeln!(out, "{name}")?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// With `-o ndjson`, prints the rows of a report, a line each: the report that follows does without them.
pub(crate) fn rows_first<R: Serialize>(rows: &mut Vec<R>, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    if output == Output::Ndjson {
        rows.drain(..).try_for_each(|row| print_line(&row, out))?;
    }
    Ok(())
}

/// A line of JSON.
pub(crate) fn print_line(row: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer(&mut *out, row).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}
