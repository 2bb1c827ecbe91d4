//! Where things are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

/// The folder of the workspace's `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The folder that cargo builds into.
pub(crate) fn target_dir() -> Result<PathBuf, Error> {
    match std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        // Cargo takes a relative one from the folder that it is started in, which is this process's too.
        Some(dir) => std::path::absolute(&dir).map_err(|source| Error::File { path: dir.into(), source }),
        None => Ok(root().join("target")),
    }
}

/// The cargo that runs this program, to be run in the root.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    if let Ok(target) = target_dir() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    cargo
}

/// The first executable file of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

/// Whether this is a file that somebody may execute.
pub(crate) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
