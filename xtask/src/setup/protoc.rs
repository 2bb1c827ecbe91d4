//! The compiler of protobuf definitions, which the build script of etcd-client runs.

use std::path::PathBuf;
use std::process::Command;

use crate::error::Error;
use crate::setup::apt;
use crate::{command, workspace};

const OTHERWISE: &str = "`cargo install protox --features bin --locked` (no C++ needed), then run this again";

pub(super) fn find_or_install() -> Result<PathBuf, Error> {
    if let Some(protoc) = std::env::var_os("PROTOC").filter(|path| !path.is_empty()) {
        command::output(Command::new(&protoc).arg("--version"))?;
        return Ok(protoc.into());
    }
    if let Some(protoc) = workspace::on_path("protoc").or_else(|| workspace::on_path("protox")) {
        return Ok(protoc);
    }
    // The second has the well-known types, which etcd's definitions import; the first only recommends it.
    apt::install("protoc", &["protobuf-compiler", "libprotobuf-dev"], OTHERWISE)
}
