use atrest::report::ValueRow;
use atrest::scan::{ExpectEncrypted, Options, scan};

use super::{Context, Lines, exit_code, stdout, transformers};
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
    let (mut out, output) = (BufferedOutput::default(), args.output.output);
    let mut lines = Lines::new(&mut out, context.stop);
    let mut rows = |row: &ValueRow| match output {
        Output::Ndjson => lines.print(row),
        Output::Name if args.expect.is_none() => lines.print_text(&row.key),
        _ => {}
    };
    let report = scan(values, &options, &context.display, context.stop, &mut rows).await?;
    lines.finish()?;
    // The report comes after the rows.
    std::io::Write::flush(&mut out)?;
    render::print(&report, output, &mut stdout())?;
    // What was to be found encrypted was not found at all.
    let missing = args.expect.is_some() && report.values == 0;
    Ok(exit_code(report.complete, report.unexpected > 0 || missing))
}

/// Standard output without its lock: rows come from whichever thread runs the operation.
#[derive(Default)]
pub(super) struct BufferedOutput(Vec<u8>);

impl std::io::Write for BufferedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= 64 * 1024 {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let written = std::io::stdout().lock().write_all(&self.0);
        self.0.clear();
        written
    }
}

impl Drop for BufferedOutput {
    fn drop(&mut self) {
        // A reader that has gone was noticed by the write before, or will be by the next.
        _ = std::io::Write::flush(self);
    }
}
