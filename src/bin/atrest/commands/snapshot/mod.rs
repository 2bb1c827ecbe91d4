//! The commands that are about files alone.

mod compare;
mod export;
mod look;
mod rewrite;

use std::path::PathBuf;
use std::sync::Arc;

use atrest::snapshot::{DataDir, Snapshot};

use super::source::open_file;
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
    /// Where it is, unless it came from standard input.
    path: Option<PathBuf>,
    /// The data directory that it is of.
    data_dir: Option<DataDir>,
}

fn open(argument: &SnapshotArg, file: &FileArgs) -> Result<Named, Failure> {
    let file = FileArgs { snapshot: argument.path.clone().or_else(|| file.snapshot.clone()), ..file.clone() };
    let (snapshot, name) = open_file(&file)?;
    let data_dir = match (&file.snapshot, &file.data_dir) {
        (None, Some(directory)) => Some(DataDir::new(directory)?),
        _ => None,
    };
    let path = match &data_dir {
        Some(data_dir) => Some(data_dir.database()),
        None => file.snapshot.filter(|path| path.as_os_str() != "-"),
    };
    Ok(Named { snapshot, name, path, data_dir })
}
