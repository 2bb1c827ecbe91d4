//! moto from PyPI: a server that answers like AWS, in a virtual environment of Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, named, python};
use crate::command;
use crate::error::Error;

const REQUIREMENT: &str = "moto[server]==5.2.5";

pub(super) fn find_or_install(tools: &Path) -> Result<PathBuf, Error> {
    let place = tools.join("moto");
    let server = place.join("bin/moto_server");
    // It names its own folder in its files, so one that was moved does not start.
    let usual = Some(server.clone()).filter(|server| command::output(Command::new(server).arg("--help")).is_ok());
    if let Some(server) = named("ATREST_MOTO_SERVER").or(usual) {
        return Ok(server);
    }
    // It is made where it stays, and again when it was not finished.
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|source| Error::File { path: place.clone(), source })?;
    }
    let python = python::find()?;
    if command::output(Command::new(&python).args(["-m", "venv"]).arg(&place)).is_err() {
        apt::install("python3", &["python3-venv"], "install the module venv of Python 3")?;
        command::run(Command::new(&python).args(["-m", "venv"]).arg(&place))?;
    }
    command::run(
        Command::new(place.join("bin/python"))
            .args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"])
            .args(["--only-binary", ":all:", REQUIREMENT]),
    )?;
    if server.is_file() {
        Ok(server)
    } else {
        let hint = "pip brought no moto_server; name one in ATREST_MOTO_SERVER".to_owned();
        Err(Error::Missing { tool: "moto", hint })
    }
}
