//! What is left of plaintext and of old ciphertext, by the place where it is.

mod census;
mod files;
mod markers;
mod tree;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use census::Census;

use crate::report::{Progress, ResidueReport};
use crate::resource::KeyLayout;
use crate::snapshot::{self, DataDir, Snapshot, wal};
use crate::transformer::ResourceTransformers;

/// What to look through, and what should not be there.
#[derive(Debug)]
pub struct Options<'a> {
    /// The configuration: what it encrypts must be nowhere in the clear, nor under a key that does not write. Without one that is so
    /// of Secrets, whatever they are encrypted by.
    pub transformers: Option<&'a ResourceTransformers>,
    /// Where API servers store.
    pub layout: &'a KeyLayout,
    /// What the report calls the source.
    pub source: String,
    /// The file that is looked through.
    pub file: String,
    /// The data directory that it is of: its log and what else lies there are looked through too.
    pub data_dir: Option<&'a DataDir>,
}

/// Why not everything could be looked through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// The write-ahead log.
    #[error("the write-ahead log")]
    Wal(#[from] wal::Error),
}

/// Looks through a snapshot, and the data directory that it is of.
///
/// # Errors
///
/// When something cannot be read.
pub fn residue(
    snapshot: &Snapshot,
    options: &Options<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<ResidueReport, Error> {
    let mut report = ResidueReport::new(options.source.clone());
    let mut census = Census::new(options);
    progress.begin("looking through the database", None);
    census.file(&options.file);
    report.files.push(options.file.clone());
    tree::look_through(snapshot, &mut census, &mut report, progress, stop)?;
    progress.end();
    if let Some(data_dir) = options.data_dir {
        progress.begin("looking through the log", None);
        files::log(data_dir, &mut census, &mut report, stop)?;
        files::left_files(data_dir, &mut census, &mut report, stop)?;
        progress.end();
    }
    report.complete &= !stop.load(std::sync::atomic::Ordering::Relaxed);
    census.finish(&mut report);
    Ok(report)
}

/// A path as people know it.
fn name_of(path: &Path) -> String {
    path.display().to_string()
}
