//! etcd 3.4 from Debian 12, unpacked without being installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, find_etcd, install};
use crate::error::Error;
use crate::{command, workspace};

const PROGRAMS: [&str; 2] = ["etcd", "etcdctl"];
const OTHERWISE: &str = "it is taken from Debian 12's packages etcd-server and etcd-client; elsewhere name a folder with etcd \
                         and etcdctl 3.4 in ATREST_ETCD_DIRS";

pub(super) fn find_or_download(tools: &Path) -> Result<PathBuf, Error> {
    if let Some(dir) = find_etcd(tools, "3.4.", &PROGRAMS) {
        return Ok(dir);
    }
    if ["apt-get", "dpkg"].iter().any(|program| workspace::on_path(program).is_none()) {
        return Err(Error::Missing { tool: "etcd 3.4", hint: format!("this is not Debian: {OTHERWISE}") });
    }
    let temporary = tempfile::tempdir_in(tools).map_err(|source| Error::File { path: tools.to_owned(), source })?;
    let dir = temporary.path();
    let download = || {
        let mut apt = apt::apt_get();
        apt.args(["download", "-q", "etcd-server", "etcd-client"]).current_dir(dir);
        apt
    };
    // Without the packages' list it finds nothing, and a list of last month names files that are gone.
    if command::output(&mut download()).is_err() {
        if apt::may_install() {
            command::run(apt::apt_get().args(["update", "-q"]))?;
        }
        command::run(&mut download()).map_err(|error| match error {
            Error::Failed { .. } => Error::Missing { tool: "etcd 3.4", hint: OTHERWISE.to_owned() },
            other => other,
        })?;
    }
    let unpacked = dir.join("unpacked");
    let files = std::fs::read_dir(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
    for package in files.flatten().map(|entry| entry.path()).filter(|file| file.extension().is_some_and(|e| e == "deb"))
    {
        command::run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    }
    install(tools, &unpacked.join("usr/bin"), "3.4.", &PROGRAMS)
}
