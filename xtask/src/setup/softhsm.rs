//! SoftHSM 2 from Debian: a PKCS#11 token in files.

use std::path::PathBuf;

use super::{apt, named};
use crate::error::Error;
use crate::workspace;

/// Where Debian, Fedora and Homebrew have it.
const PLACES: [&str; 4] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
];
const OTHERWISE: &str = "install SoftHSM 2, and name its libsofthsm2.so in ATREST_SOFTHSM_MODULE";

pub(super) fn find_or_install() -> Result<PathBuf, Error> {
    let module = || {
        let usual = PLACES.iter().map(PathBuf::from).find(|file| file.is_file());
        // The tests make tokens with the program.
        named("ATREST_SOFTHSM_MODULE").or(usual).filter(|_| workspace::on_path("softhsm2-util").is_some())
    };
    if let Some(module) = module() {
        return Ok(module);
    }
    apt::install("softhsm2-util", &["softhsm2"], OTHERWISE)?;
    module().ok_or_else(|| Error::Missing { tool: "SoftHSM's PKCS#11 module", hint: OTHERWISE.to_owned() })
}
