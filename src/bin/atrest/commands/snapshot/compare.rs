use std::path::Path;
use std::sync::Arc;

use atrest::backup;
use atrest::get::{Options, SecretData, Shown};
use atrest::report::Difference;
use atrest::resource::Selection;
use atrest::snapshot::{self, DataDir, Mode, Order, Snapshot, Values, View};

use super::{is_suspicious, open_whole};
use crate::args::{ShownArgs, SnapshotArg, SnapshotDiffArgs, SnapshotHistoryArgs};
use crate::commands::source::checked_selection;
use crate::commands::{Keys, STOP, exit_code, layout_of, stdout, stop_signal};
use crate::failure::{FINDINGS, Failure};
use crate::progress::Display;
use crate::render;

/// What is compared shows hashes where it must not show secrets: lengths would hide changes.
fn compared(args: &ShownArgs) -> Result<Shown, Failure> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(|error| Failure::Output(std::io::Error::other(error.to_string())))?;
    let secrets = if args.reveal { SecretData::Revealed } else { SecretData::Hashed(salt) };
    Ok(Shown { managed_fields: args.show_managed_fields, as_stored: args.as_stored, secrets })
}

pub(super) async fn diff(args: &SnapshotDiffArgs, quiet: bool) -> Result<u8, Failure> {
    if args.to.is_none() && args.from_revision.is_none() && args.to_revision.is_none() {
        return Err(Failure::Usage(
            "name two snapshots, or two revisions of one with --from-revision and --to-revision".to_owned(),
        ));
    }
    let selection = checked_selection(&args.selection)?;
    let Keys { transformers, kms } = Keys::of(&args.config.encryption_provider_config, &args.config.kms, quiet)?;
    stop_signal();
    let mode = if args.salvage { Mode::Salvage } else { Mode::Strict };
    let from = open_one(&args.from, mode)?;
    let to = match &args.to {
        Some(path) => open_one(path, mode)?,
        None => Arc::clone(&from),
    };
    let snapshots = (Arc::clone(&from), Arc::clone(&to));
    let values = |path: &Path, snapshot: &Arc<Snapshot>, revision| {
        let prefixes = selection.prefixes()?;
        let view = View { revision, order: Order::Keys, prefixes, ..View::default() };
        Values::new(snapshot, &view).map_err(|error| Failure::of_snapshot(path, error))
    };
    let name = |path: &Path| path.display().to_string();
    let to_path = args.to.as_ref().unwrap_or(&args.from);
    let from = (name(&args.from), values(&args.from, &from, args.from_revision)?);
    let to = (name(to_path), values(to_path, &to, args.to_revision)?);
    let options = Options {
        transformers: &transformers,
        selection: &selection,
        source: String::new(),
        name: None,
        wants: &|_| true,
        shown: compared(&args.shown)?,
    };
    let mut report = backup::diff(from, to, &options, &*kms, &Display::new(quiet), &STOP).await?;
    let mut suspicious = false;
    for (path, snapshot) in [(Some(&args.from), &snapshots.0), (args.to.as_ref(), &snapshots.1)] {
        let Some(path) = path else { continue };
        let (name, is_data_dir) = (path.display().to_string(), path.is_dir());
        suspicious |= is_suspicious(snapshot, &name, is_data_dir, args.skip_hash_check, quiet)
            .map_err(|failure| failure.in_file(path))?;
    }
    if !args.resealed {
        let resealed = report.rows.iter().filter(|row| row.difference == Difference::Resealed).count();
        report.rows.retain(|row| row.difference != Difference::Resealed);
        if resealed > 0 {
            report.notes.push(match resealed {
                1 => "1 object is the same and was only stored anew: --resealed lists it".to_owned(),
                count => format!("{count} objects are the same and were only stored anew: --resealed lists them"),
            });
        }
    }
    let code = exit_code(report.complete, suspicious || !report.rows.is_empty());
    let (output, mut out) = (args.output.output, stdout());
    render::rows_first(&mut report.rows, output, &mut out)?;
    render::print(&report, output, &mut out)?;
    Ok(code)
}

fn open_one(path: &Path, mode: Mode) -> Result<Arc<Snapshot>, Failure> {
    let options = snapshot::Options { mode, ..snapshot::Options::default() };
    let path = if path.is_dir() { DataDir::new(path)?.database() } else { path.to_owned() };
    Snapshot::open(&path, options).map(Arc::new).map_err(|error| Failure::of_snapshot(&path, error))
}

pub(super) async fn history(args: &SnapshotHistoryArgs, quiet: bool) -> Result<u8, Failure> {
    let Keys { transformers, kms } = Keys::of(&args.config.encryption_provider_config, &args.config.kms, quiet)?;
    stop_signal();
    let named = open_whole(&SnapshotArg { path: None }, &args.file)?;
    let selection = Selection { layout: layout_of(&args.layout.etcd_prefix), ..Selection::default() };
    let options = Options {
        transformers: &transformers,
        selection: &selection,
        source: named.name.clone(),
        name: None,
        wants: &|_| true,
        shown: compared(&args.shown)?,
    };
    let mut report = backup::history(&named.snapshot, args.key.as_bytes(), &options, &*kms, &STOP)
        .await
        .map_err(|error| Failure::from(error).in_file(&named.path))?;
    let suspicious = named.is_suspicious(args.file.skip_hash_check, quiet)?;
    let unreadable = report.revisions.iter().any(|row| row.class.is_some_and(|class| !class.is_readable()));
    let code = match report.revisions.is_empty() && report.complete {
        true => FINDINGS,
        false => exit_code(report.complete, suspicious || unreadable),
    };
    let (output, mut out) = (args.output.output, stdout());
    render::rows_first(&mut report.revisions, output, &mut out)?;
    render::print(&report, output, &mut out)?;
    Ok(code)
}
