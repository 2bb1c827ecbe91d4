//! Debian's packages.

use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;
use crate::{command, workspace};

/// apt-get, not asking anything.
pub(super) fn apt_get() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// Whether this process may install packages.
pub(super) fn may_install() -> bool {
    let root = command::output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0");
    root && workspace::on_path("apt-get").is_some()
}

/// Installs the packages that bring `program`, or fails with `otherwise`, which says how else to get it.
pub(super) fn install(program: &'static str, packages: &[&str], otherwise: &str) -> Result<PathBuf, Error> {
    if !may_install() {
        let hint = format!("as root on Debian: `apt-get install {}`; elsewhere: {otherwise}", packages.join(" "));
        return Err(Error::Missing { tool: program, hint });
    }
    command::run(apt_get().args(["update", "-q"]))?;
    command::run(apt_get().args(["install", "-q", "-y", "--no-install-recommends"]).args(packages))?;
    workspace::on_path(program)
        .ok_or_else(|| Error::Missing { tool: program, hint: format!("{} did not bring it", packages.join(" and ")) })
}
