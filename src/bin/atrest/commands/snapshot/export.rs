use std::sync::atomic::Ordering;

use atrest::backup::{Export, ExportError, Exported};
use atrest::get::{Got, Options, get};
use atrest::snapshot::{Order, Values, View};

use super::open;
use crate::args::SnapshotExportArgs;
use crate::commands::get::shown;
use crate::commands::source::checked_selection;
use crate::commands::{Keys, STOP, exit_code, stop_signal, warn, warn_of_unreadable};
use crate::failure::Failure;
use crate::progress::Display;
use crate::render::{object_line, object_text, plural};

pub(super) async fn run(args: &SnapshotExportArgs, quiet: bool) -> Result<u8, Failure> {
    let selection = checked_selection(&args.selection)?;
    let Keys { transformers, kms } = Keys::of(&args.config.encryption_provider_config, &args.config.kms, quiet)?;
    stop_signal();
    let named = open(&args.snapshot, &args.file)?;
    let view =
        View { revision: args.file.revision, order: Order::Keys, prefixes: selection.prefixes()?, ..View::default() };
    let values = Values::new(&named.snapshot, &view).map_err(|error| Failure::of_snapshot(&named.path, error))?;
    let problems = values.problems().clone();
    let options = Options {
        transformers: &transformers,
        selection: &selection,
        source: named.name.clone(),
        name: None,
        wants: &|_| true,
        shown: shown(&args.shown),
    };
    let is_yaml = args.output == "yaml";
    let mut export =
        if is_yaml { Export::tree(&args.out, args.resume)? } else { Export::lines(&args.out, args.resume)? };
    let (mut written, mut skipped) = (0_u64, 0_u64);
    let mut failed: Option<ExportError> = None;
    let mut visit = |got: Got| {
        // What is not written is there for --resume.
        if failed.is_some() || STOP.load(Ordering::Relaxed) {
            return;
        }
        let text = |got: &Got| if is_yaml { object_text(&got.object.value, true) } else { object_line(got) };
        match export.write(&got, text) {
            Ok(Exported::Written) => written += 1,
            Ok(Exported::Skipped) => skipped += 1,
            Err(error) => {
                failed = Some(error);
                STOP.store(true, Ordering::Relaxed);
            }
        }
    };
    let report = get(values, &*kms, &options, &Display::new(quiet), &STOP, &mut visit).await?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    export.finish()?;
    let suspicious = named.is_suspicious(args.file.skip_hash_check, quiet)?;
    for line in problems.lines().iter().take(20) {
        warn(quiet, format_args!("damaged: {line}"));
    }
    warn_of_unreadable(&report.findings, &args.config.encryption_provider_config, quiet);
    if !quiet {
        let already = match skipped {
            0 => String::new(),
            1 => ", 1 was there already".to_owned(),
            count => format!(", {count} were there already"),
        };
        let objects = plural(written, "object", "objects");
        let unreadable = plural(report.findings.len() as u64, "value", "values");
        eprintln(format_args!(
            "{objects} at revision {} written to {}{already}; {unreadable} cannot be read",
            report.revision,
            args.out.display()
        ));
        if !report.complete {
            eprintln(format_args!("interrupted: --resume goes on"));
        }
    }
    Ok(exit_code(report.complete && problems.is_clean(), suspicious || !report.findings.is_empty()))
}

fn eprintln(message: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    _ = writeln!(std::io::stderr(), "atrest: {message}");
}
