use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::snapshot::Error;

/// The directory that a file is in or will be: where its temporary file is, too.
#[must_use]
pub fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes what a process that was killed has left: it may hold everything in the clear.
pub(super) fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(".atrest-").and_then(|rest| rest.strip_suffix(".part")?.split_once('-'));
        let is_abandoned = process
            .is_some_and(|(process, _)| process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists());
        if is_abandoned && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            _ = fs::remove_file(entry.path());
        }
    }
}

/// An existing file is replaced only when that is asked for, and what was read never.
pub(super) fn refuse_target(source: Option<&Path>, target: &Path, overwrite: bool) -> Result<(), Error> {
    let Ok(existing) = fs::symlink_metadata(target) else { return Ok(()) };
    let of_source = source.and_then(|source| fs::metadata(source).ok());
    if of_source.is_some_and(|source| (source.dev(), source.ino()) == (existing.dev(), existing.ino())) {
        return Err(Error::SameFile { path: target.to_owned() });
    }
    if !overwrite || !existing.is_file() {
        return Err(Error::Exists { path: target.to_owned() });
    }
    Ok(())
}
