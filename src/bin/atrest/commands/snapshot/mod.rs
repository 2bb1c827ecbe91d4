//! The commands that are about files alone.

mod compare;
mod export;
mod look;
mod rewrite;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrest::snapshot::bbolt::Warning;
use atrest::snapshot::{DataDir, Snapshot};

use super::source::{OpenedFile, is_as_expected, note_of_log, open_file};
use super::warn;
use crate::args::{FileArgs, SnapshotArg, SnapshotCommand};
use crate::failure::Failure;

pub(super) async fn run(command: &SnapshotCommand, quiet: bool) -> Result<u8, Failure> {
    match command {
        SnapshotCommand::Inspect(args) => look::inspect(args, quiet),
        SnapshotCommand::Export(args) => export::run(args, quiet).await,
        SnapshotCommand::Diff(args) => compare::diff(args, quiet).await,
        SnapshotCommand::History(args) => compare::history(args, quiet).await,
        SnapshotCommand::Residue(args) => look::residue(args, quiet),
        SnapshotCommand::Rekey(args) => rewrite::rekey(args, quiet).await,
        SnapshotCommand::Redact(args) => rewrite::redact(args, quiet).await,
        SnapshotCommand::Decrypt(args) => rewrite::decrypt(args, quiet).await,
    }
}

/// The file that is meant, however it is named.
struct Named {
    snapshot: Arc<Snapshot>,
    /// What reports call it.
    name: String,
    /// Where it is; - for standard input.
    path: PathBuf,
    /// The data directory that it is of.
    data_dir: Option<DataDir>,
}

impl Named {
    /// Whether the file is known to be other than it was written, which is told.
    fn is_suspicious(&self, skip_hash_check: bool, quiet: bool) -> Result<bool, Failure> {
        self.warn_of_log(quiet);
        let is_data_dir = self.data_dir.is_some();
        is_suspicious(&self.snapshot, &self.name, is_data_dir, skip_hash_check, quiet)
            .map_err(|failure| failure.in_file(&self.path))
    }

    /// Says what the log of a data directory has and the database has not.
    fn warn_of_log(&self, quiet: bool) {
        if self.data_dir.is_some()
            && let Some(note) = note_of_log(&self.snapshot, &self.path)
        {
            warn(quiet, format_args!("{}: {note}", self.name));
        }
    }

    /// Where it is, unless it came from standard input.
    fn file(&self) -> Option<&Path> {
        Some(self.path.as_path()).filter(|path| *path != Path::new("-"))
    }
}

pub(super) fn is_suspicious(
    snapshot: &Snapshot,
    name: &str,
    is_data_dir: bool,
    skip_hash_check: bool,
    quiet: bool,
) -> Result<bool, Failure> {
    let trailer = snapshot.trailer()?;
    if !is_as_expected(&trailer, is_data_dir) {
        let skipped = if skip_hash_check { " (--skip-hash-check)" } else { "" };
        warn(quiet, format_args!("{name}: {trailer}{skipped}"));
    }
    let has_changed = snapshot.db().has_changed().map_err(atrest::snapshot::Error::from)?;
    if has_changed {
        warn(quiet, format_args!("{name}: {}", Warning::Changed));
    }
    Ok(has_changed || (trailer.is_wrong() && !skip_hash_check))
}

/// Opens a file of which all revisions are meant.
fn open_whole(argument: &SnapshotArg, file: &FileArgs) -> Result<Named, Failure> {
    if file.revision.is_some() {
        return Err(Failure::Usage(
            "--revision means nothing to this command, which is about every revision of the file".to_owned(),
        ));
    }
    open(argument, file)
}

fn open(argument: &SnapshotArg, file: &FileArgs) -> Result<Named, Failure> {
    if file.kine.is_some() {
        return Err(Failure::Usage(
            "--kine is no source of this command: scan, verify and get read the database of kine".to_owned(),
        ));
    }
    let file = FileArgs { snapshot: argument.path.clone().or_else(|| file.snapshot.clone()), ..file.clone() };
    let OpenedFile { snapshot, name, path } = open_file(&file)?;
    let data_dir = match (&file.snapshot, &file.data_dir) {
        (None, Some(directory)) => Some(DataDir::new(directory)?),
        _ => None,
    };
    Ok(Named { snapshot, name, path, data_dir })
}
