use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::census::Census;
use super::{Error, markers, name_of};
use crate::report::{EtcdKey, ResiduePlace, ResidueReport};
use crate::snapshot::wal::request::{Place, Request};
use crate::snapshot::wal::{self, Directory, Fate, Index, Mode};
use crate::snapshot::{self, DataDir, Input};

/// Looks through the write-ahead log: every value of every request, whether it was applied or not.
pub(super) fn log(
    data_dir: &DataDir,
    census: &mut Census<'_>,
    report: &mut ResidueReport,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let directory = match Directory::list(&data_dir.wal()) {
        Ok(directory) => directory,
        // A copy of a data directory may lack it.
        Err(error) => {
            report.complete = false;
            report.notes.push(format!("the write-ahead log was not looked through: {}", crate::causes::Chain(&error)));
            return Ok(());
        }
    };
    report.files.extend(directory.segments.iter().map(|path| name_of(path)));
    if directory.segments.is_empty() {
        report.notes.push("there is no write-ahead log".to_owned());
        return Ok(());
    }
    let log = directory.open()?;
    let index = Index::build(&log, Mode::Salvage)?;
    index.visit(&log, |indexed, entry| {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let request = Request::parse(&entry);
        let segment = directory.segments.get(indexed.position.segment);
        census.file(&segment.map_or_else(String::new, |path| name_of(path)));
        let fate = match indexed.fate {
            Fate::Discarded => Some(ResiduePlace::WalDiscarded),
            Fate::Unverified => Some(ResiduePlace::WalLeftover),
            _ if !index.is_committed(indexed) => Some(ResiduePlace::WalUncommitted),
            _ => None,
        };
        request.for_each_value(|value| {
            let place = fate.unwrap_or(match value.place {
                Place::TxnFailure => ResiduePlace::WalOtherBranch,
                Place::Compare => ResiduePlace::WalCompare,
                _ => ResiduePlace::Wal,
            });
            census.value(place, &value.key, value.value.0, indexed.position.offset, false);
        });
        for password in request.plaintext_passwords() {
            let user = EtcdKey::new(&password.user);
            if !report.plaintext_passwords.contains(&user) {
                report.plaintext_passwords.push(user);
            }
        }
    })?;
    if let wal::End::Damaged(damage) = &index.end {
        let file = directory.segments.get(damage.at.segment).map_or_else(String::new, |path| name_of(path));
        report.notes.push(format!("{file}, offset {}: {}", damage.at.offset, damage.kind));
    }
    for leftover in &index.leftovers {
        let Some(path) = directory.segments.get(leftover.at.segment) else { continue };
        census.file(&name_of(path));
        let input = open(path)?;
        markers::find(&input, leftover.at.offset, leftover.bytes, &mut |marked| {
            census.marked(ResiduePlace::WalLeftover, marked);
        })?;
    }
    for remnant in &directory.remnants {
        look_through(&remnant.path, ResiduePlace::LeftFile, census, report)?;
    }
    Ok(())
}

/// Looks through what lies beside the database.
pub(super) fn left_files(
    data_dir: &DataDir,
    census: &mut Census<'_>,
    report: &mut ResidueReport,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let database = data_dir.database();
    let mut paths: Vec<PathBuf> = Vec::new();
    for directory in [data_dir.snap(), data_dir.member().to_owned()] {
        let read = |source| snapshot::Error::Open { path: directory.clone(), source };
        for entry in std::fs::read_dir(&directory).map_err(read)? {
            let path = entry.map_err(read)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_left_log = name.starts_with("wal.") && path.is_dir();
            if is_left_log {
                for file in std::fs::read_dir(&path).map_err(read)? {
                    paths.push(file.map_err(read)?.path());
                }
            } else if path.is_file() && path != database {
                paths.push(path);
            }
        }
    }
    paths.sort();
    for path in paths {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let is_raft = path.extension().is_some_and(|extension| extension == "snap");
        let place = if is_raft { ResiduePlace::RaftSnapshot } else { ResiduePlace::LeftFile };
        look_through(&path, place, census, report)?;
    }
    Ok(())
}

fn look_through(
    path: &Path,
    place: ResiduePlace,
    census: &mut Census<'_>,
    report: &mut ResidueReport,
) -> Result<(), Error> {
    if !path.is_file() {
        return Ok(());
    }
    let name = name_of(path);
    census.file(&name);
    report.files.push(name);
    let input = open(path)?;
    markers::find(&input, 0, input.len(), &mut |marked| census.marked(place, marked))?;
    Ok(())
}

fn open(path: &Path) -> Result<Input, snapshot::Error> {
    Input::open(path).map_err(|source| snapshot::Error::Open { path: path.to_owned(), source })
}
