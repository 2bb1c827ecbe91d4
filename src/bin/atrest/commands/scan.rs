use atrest::report::ValueRow;
use atrest::scan::{ExpectEncrypted, Options, scan};

use super::lines::Lines;
use super::source::{Context, Want};
use super::{exit_code, stdout, transformers};
use crate::args::{Output, ScanArgs, ScanExpectation};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(args: &ScanArgs, quiet: bool) -> Result<u8, Failure> {
    let transformers = match args.encryption_provider_config.as_slice() {
        [] => None,
        files => Some(transformers(files, quiet)?),
    };
    let output = args.output.output;
    let want = Want { history: args.history, in_order: matches!(output, Output::Ndjson | Output::Name), routed: false };
    let context = Context::new(&args.source, &args.selection, want, quiet).await?;
    let expect_encrypted = match (args.expect, &transformers) {
        (None, _) => ExpectEncrypted::No,
        (Some(ScanExpectation::Encrypted), Some(_)) => ExpectEncrypted::AsConfigured,
        (Some(ScanExpectation::Encrypted), None) => ExpectEncrypted::Selected,
    };
    let options = Options {
        selection: &context.selection,
        source: context.name.clone(),
        by: args.by.clone(),
        transformers: transformers.as_deref(),
        expect_encrypted,
        each_row: output == Output::Ndjson || (output == Output::Name && args.expect.is_none()),
    };
    let values = context.values().await?;
    let problems = values.problems();
    let mut lines = Lines::new(context.stop);
    let mut rows = |row: &ValueRow| match output {
        Output::Ndjson => lines.print(row),
        Output::Name if args.expect.is_none() => lines.print_text(&row.key),
        _ => {}
    };
    let mut report = scan(values, &options, &context.display, context.stop, &mut rows).await?;
    lines.finish()?;
    let condition = context.condition(&problems)?;
    report.complete &= !condition.partial;
    report.notes.extend(condition.notes);
    render::print(&report, output, &mut stdout())?;
    // What was to be found encrypted was not found at all.
    let missing = args.expect.is_some() && report.values == 0;
    Ok(exit_code(report.complete, report.unexpected > 0 || missing || condition.suspicious))
}
