//! A TPM 2.0 in software, the library that programs reach it by, and the command line that the tests compare with.

use std::path::PathBuf;
use std::process::Command;

use super::apt;
use crate::error::Error;
use crate::{command, workspace};

const PACKAGES: [&str; 4] = ["swtpm", "libtss2-dev", "tpm2-tools", "pkg-config"];
const OTHERWISE: &str = "install swtpm, tpm2-tools, pkg-config and the headers of tpm2-tss";

/// swtpm, when everything else is there too.
pub(super) fn find_or_install() -> Result<PathBuf, Error> {
    if let Some(swtpm) = find() {
        return Ok(swtpm);
    }
    apt::install("swtpm", &PACKAGES, OTHERWISE)?;
    find().ok_or_else(|| Error::Missing { tool: "swtpm", hint: OTHERWISE.to_owned() })
}

fn find() -> Option<PathBuf> {
    let has_library = command::output(Command::new("pkg-config").args(["--exists", "tss2-esys"])).is_ok();
    let has_tools = ["tpm2_createprimary", "tpm2_unseal"].iter().all(|tool| workspace::on_path(tool).is_some());
    workspace::on_path("swtpm").filter(|_| has_library && has_tools)
}
