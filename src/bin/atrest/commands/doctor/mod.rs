//! Gathers what is named, and lets the library judge it. What cannot be read is noted and ends nothing.

mod fetch;
mod gather;

use std::path::Path;

use atrest::doctor;

use super::stdout;
use crate::args::{DoctorArgs, ExplainArgs};
use crate::failure::{FINDINGS, Failure, PARTIAL, SOURCE};
use crate::render;

pub(super) async fn run(args: &DoctorArgs, quiet: bool) -> Result<u8, Failure> {
    let evidence = gather::gather(args, quiet).await?;
    let report = doctor::diagnose(evidence);
    render::print(&report, args.output.output, &mut stdout())?;
    let unread = report.sources.iter().filter(|source| !source.read).count();
    Ok(match (report.has_findings() || report.perhaps().next().is_some(), unread) {
        (true, _) => FINDINGS,
        (false, 0) => 0,
        (false, unread) if unread == report.sources.len() => SOURCE,
        (false, _) => PARTIAL,
    })
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    let path = Path::new("-");
    fetch::bounded(path).map_err(|source| Failure::File { path: path.to_owned(), source })
}

pub(super) fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    let text = match args.text.as_str() {
        "-" => String::from_utf8_lossy(&standard_input()?).into_owned(),
        text => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Failure::Usage("there is no text to explain".to_owned()));
    }
    let report = doctor::explain(&text);
    render::print(&report, args.output.output, &mut stdout())?;
    Ok(if report.known { 0 } else { FINDINGS })
}
