use atrest::report::ValueRow;
use atrest::scan::{ExpectEncrypted, Options, scan};

use super::lines::Lines;
use super::{Context, exit_code, stdout, transformers};
use crate::args::{Output, ScanArgs, ScanExpectation};
use crate::failure::Failure;
use crate::render;

pub(super) async fn run(args: &ScanArgs, quiet: bool) -> Result<u8, Failure> {
    let transformers = match args.encryption_provider_config.as_slice() {
        [] => None,
        files => Some(transformers(files, quiet)?),
    };
    let context = Context::new(&args.source, &args.selection, quiet).await?;
    let expect_encrypted = match (args.expect, &transformers) {
        (None, _) => ExpectEncrypted::No,
        (Some(ScanExpectation::Encrypted), Some(_)) => ExpectEncrypted::AsConfigured,
        (Some(ScanExpectation::Encrypted), None) => ExpectEncrypted::Selected,
    };
    let options = Options {
        selection: &context.selection,
        source: context.source.clone(),
        by: args.by.clone(),
        transformers: transformers.as_deref(),
        expect_encrypted,
    };
    let values = context.values().await?;
    let output = args.output.output;
    let mut lines = Lines::new(context.stop);
    let mut rows = |row: &ValueRow| match output {
        Output::Ndjson => lines.print(row),
        Output::Name if args.expect.is_none() => lines.print_text(&row.key),
        _ => {}
    };
    let report = scan(values, &options, &context.display, context.stop, &mut rows).await?;
    lines.finish()?;
    render::print(&report, output, &mut stdout())?;
    // What was to be found encrypted was not found at all.
    let missing = args.expect.is_some() && report.values == 0;
    Ok(exit_code(report.complete, report.unexpected > 0 || missing))
}
