//! Where the etcd programs are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The etcd versions that the tests run against.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Version {
    V3_4,
    V3_5,
}

impl Version {
    pub(crate) const ALL: [Self; 2] = [Self::V3_4, Self::V3_5];

    fn prefix(self) -> &'static str {
        match self {
            Self::V3_4 => "3.4.",
            Self::V3_5 => "3.5.",
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::V3_4 => &["etcd", "etcdctl"],
            Self::V3_5 => &["etcd", "etcdctl", "etcdutl"],
        }
    }

    /// The path of one of its programs.
    pub(super) fn program(self, name: &str) -> PathBuf {
        static V3_4: OnceLock<PathBuf> = OnceLock::new();
        static V3_5: OnceLock<PathBuf> = OnceLock::new();
        let dir = match self {
            Self::V3_4 => &V3_4,
            Self::V3_5 => &V3_5,
        };
        dir.get_or_init(|| self.find()).join(name)
    }

    /// # Panics
    /// When it is not on this machine: a test that cannot run has failed.
    fn find(self) -> PathBuf {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        let named: Vec<PathBuf> = std::env::split_paths(&variable("ATREST_ETCD_DIRS")).collect();
        let on_path: Vec<PathBuf> = std::env::split_paths(&variable("PATH")).collect();
        named.into_iter().chain(downloaded()).chain(on_path).find(|dir| self.is_in(dir)).unwrap_or_else(|| {
            panic!("etcd {}x is not on this machine: run `cargo xtask setup`", self.prefix());
        })
    }

    fn is_in(self, dir: &Path) -> bool {
        if !self.programs().iter().all(|program| dir.join(program).is_file()) {
            return false;
        }
        let output = Command::new(dir.join("etcd")).arg("--version").output();
        output.is_ok_and(|output| {
            String::from_utf8_lossy(&output.stdout).starts_with(&format!("etcd Version: {}", self.prefix()))
        })
    }
}

/// Where `cargo xtask setup` puts them.
fn downloaded() -> Vec<PathBuf> {
    // Cargo makes this folder for integration tests, directly inside its target folder.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it has a parent");
    let entries = std::fs::read_dir(target.join("tools")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("etcd-")).map(|entry| entry.path()).collect()
}
