//! Where the programs that the backends are tested against are.

use std::path::{Path, PathBuf};

/// The file that `variable` names, else the first of `places` that exists: absolute, or below `target/tools`.
///
/// # Panics
/// When there is none: a test that cannot run has failed.
pub(crate) fn find(variable: &str, places: &[&str]) -> PathBuf {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    // Cargo makes this folder for integration tests, directly inside its target folder.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it has a parent");
    let usual = places.iter().map(|place| target.join("tools").join(place));
    named.into_iter().chain(usual).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{} is not on this machine: run `cargo xtask setup`", places[0]);
    })
}
