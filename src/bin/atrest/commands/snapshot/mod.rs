//! The commands that are about files alone.

mod rewrite;

use std::path::PathBuf;
use std::sync::Arc;

use atrest::snapshot::{DataDir, Snapshot};

use super::source::open_file;
use crate::args::{FileArgs, SnapshotArg, SnapshotCommand};
use crate::failure::Failure;

pub(super) async fn run(command: &SnapshotCommand, quiet: bool) -> Result<u8, Failure> {
    match command {
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
}

fn open(argument: &SnapshotArg, file: &FileArgs) -> Result<Named, Failure> {
    let file = FileArgs { snapshot: argument.path.clone().or_else(|| file.snapshot.clone()), ..file.clone() };
    let (snapshot, name) = open_file(&file)?;
    let path = match (&file.snapshot, &file.data_dir) {
        (Some(path), _) => Some(path.clone()).filter(|path| path.as_os_str() != "-"),
        (None, Some(directory)) => Some(DataDir::new(directory)?.database()),
        (None, None) => None,
    };
    Ok(Named { snapshot, name, path })
}
