use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::report::JournalEntry;

/// A file with a line of JSON for each write, without key material and without plaintext.
///
/// A line is written when etcd has confirmed the write. After a crash, the writes that were in flight are missing. One that exists is
/// gone on with, for the cluster that it is of.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
    found: Found,
}

/// What a journal says that exists already.
#[derive(Debug, Default)]
struct Found {
    /// The clusters that it names.
    clusters: Vec<String>,
    /// The highest revision of its writes; 0 when there are none.
    revision: i64,
    /// Whether its last line is cut off.
    unfinished: bool,
}

/// What is read of a line.
#[derive(Deserialize)]
struct Line {
    cluster_id: Option<String>,
    new_revision: i64,
}

/// The journal cannot be written, or must not be gone on with. The operator can fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot write {}", path.display())]
    Io {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is of another cluster.
    #[error("{} is of the cluster {journal}, and etcd is of {etcd}", path.display())]
    OtherCluster {
        /// Where it is.
        path: PathBuf,
        /// The cluster that it names.
        journal: String,
        /// The cluster that is written to.
        etcd: String,
    },
    /// It has writes that etcd does not have: this is another etcd, or one that was restored from before.
    #[error("{} has a write of revision {journal}, and etcd has only come to {etcd}", path.display())]
    FutureRevision {
        /// Where it is.
        path: PathBuf,
        /// The highest revision in it.
        journal: i64,
        /// The revision of etcd.
        etcd: i64,
    },
}

/// A cluster as journals name it, and as etcd does in its log.
pub(super) fn cluster_name(id: u64) -> String {
    format!("{id:x}")
}

impl Found {
    /// A line that is cut off says nothing.
    fn read(file: File) -> std::io::Result<Self> {
        let (mut file, mut line, mut found) = (BufReader::new(file), Vec::new(), Self::default());
        while file.read_until(b'\n', &mut line)? > 0 {
            found.unfinished = !line.ends_with(b"\n");
            if let Ok(Line { cluster_id, new_revision }) = serde_json::from_slice(&line) {
                found.revision = found.revision.max(new_revision);
                found.clusters.extend(cluster_id.filter(|id| !found.clusters.contains(id)));
            }
            line.clear();
        }
        Ok(found)
    }
}

impl Journal {
    /// Opens a journal, at its end when it exists. It is readable by its owner alone, and never a symbolic link.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or is a symbolic link.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        // O_NOFOLLOW, which the standard library has no name for.
        #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
        const NO_FOLLOW: i32 = 0o100_000;
        #[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
        const NO_FOLLOW: i32 = 0o400_000;
        let error = |source| JournalError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(NO_FOLLOW).open(path);
        let file = file.map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        let mut found = Found::default();
        if metadata.is_file() && metadata.len() > 0 {
            let written = OpenOptions::new().read(true).custom_flags(NO_FOLLOW).open(path);
            found = written.and_then(Found::read).map_err(error)?;
        }
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), found })
    }

    /// Makes sure that what it says already is of this cluster, and of before this revision. A cluster that is not named, as kine names
    /// none, may be any.
    ///
    /// # Errors
    ///
    /// [`JournalError::OtherCluster`] and [`JournalError::FutureRevision`].
    pub fn check(&self, cluster_id: Option<u64>, revision: i64) -> Result<(), JournalError> {
        let etcd = cluster_id.map(cluster_name).unwrap_or_default();
        if let Some(journal) = self.found.clusters.iter().find(|named| cluster_id.is_some() && **named != etcd) {
            return Err(JournalError::OtherCluster { path: self.path.clone(), journal: journal.clone(), etcd });
        }
        if self.found.revision > revision {
            let (path, journal) = (self.path.clone(), self.found.revision);
            return Err(JournalError::FutureRevision { path, journal, etcd: revision });
        }
        Ok(())
    }

    /// Adds a line and hands it to the operating system.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&mut self, entry: &JournalEntry) -> Result<(), JournalError> {
        // Behind a line that is cut off, as on a full disk, it would be lost with it.
        let begun = if std::mem::take(&mut self.found.unfinished) { self.file.write_all(b"\n") } else { Ok(()) };
        let written = begun
            .and_then(|()| serde_json::to_writer(&mut self.file, entry).map_err(std::io::Error::from))
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush());
        written.map_err(|source| JournalError::Io { path: self.path.clone(), source })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_gone_on_with_where_it_was_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let check = |text: &str, cluster: Option<u64>, revision| {
            std::fs::write(&path, text).unwrap();
            Journal::open(&path)
                .unwrap()
                .check(cluster, revision)
                .map_err(|error| error.to_string().replace(&path.display().to_string(), "it"))
        };
        let of_a = "{\"cluster_id\":\"a\",\"new_revision\":7}\n{\"cluster_id\":\"a\",\"new_revision\":5}\n";
        assert_eq!(check(of_a, Some(10), 7), Ok(()));
        let future = Err("it has a write of revision 7, and etcd has only come to 6".to_owned());
        assert_eq!(check(of_a, Some(10), 6), future);
        assert_eq!(check(of_a, Some(11), 7), Err("it is of the cluster a, and etcd is of b".to_owned()));
        // kine, and lines of before clusters were named.
        assert_eq!(check(of_a, None, 7), Ok(()));
        assert_eq!(check("{\"new_revision\":7}\n", Some(10), 7), Ok(()));
        // A write that was cut off, and what is no journal.
        assert_eq!(check("{\"new_revision\":7}\n{\"new_revision\":9", Some(10), 7), Ok(()));
        assert_eq!(check("precious\n", Some(10), 0), Ok(()));
        assert_eq!(check("", Some(10), 0), Ok(()));
    }

    /// The first write of a run was appended to the line that the run before it had not finished, and no reader of JSON saw either.
    #[test]
    fn a_line_that_is_cut_off_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, "{\"new_revision\":7}\n{\"new_rev").unwrap();
        let entry = JournalEntry {
            time: "2026-01-01T00:00:00Z".to_owned(),
            cluster_id: None,
            key: crate::report::EtcdKey::new(b"/registry/secrets/a/x"),
            old_revision: 7,
            new_revision: 8,
            old_header: "identity".to_owned(),
            new_header: "k8s:enc:aesgcm:v1:k:".to_owned(),
            old_kms_key_id_hash: None,
            new_kms_key_id_hash: None,
        };
        let mut journal = Journal::open(&path).unwrap();
        journal.write(&entry).unwrap();
        journal.write(&entry).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let line = "{\"time\":\"2026-01-01T00:00:00Z\",\"key\":\"/registry/secrets/a/x\",\"old_revision\":7,\"new_revision\":8,\
                    \"old_header\":\"identity\",\"new_header\":\"k8s:enc:aesgcm:v1:k:\"}";
        assert_eq!(text.lines().collect::<Vec<_>>(), ["{\"new_revision\":7}", "{\"new_rev", line, line]);
    }
}
