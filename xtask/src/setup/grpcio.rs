//! gRPC for Python, from PyPI: a client that is not tonic's.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{named, python};
use crate::error::Error;
use crate::{command, workspace};

/// For Linux on x86-64 and aarch64, and Python 3.11 to 3.14. Later releases have dependencies.
const REQUIREMENT: &str = "\
grpcio==1.75.1 \
--hash=sha256:0049a7bf547dafaeeb1db17079ce79596c298bfe308fc084d023c8907a845b9a \
--hash=sha256:b1ea1bbe77ecbc1be00af2769f4ae4a88ce93be57a4f3eebd91087898ed749f9 \
--hash=sha256:7d4fa6ccc3ec2e68a04f7b883d354d7fea22a34c44ce535a2f0c0049cf626ddf \
--hash=sha256:bb658f703468d7fbb5dcc4037c65391b7dc34f808ac46ed9136c24fc5eeb041d \
--hash=sha256:0ee119f4f88d9f75414217823d21d75bfe0e6ed40135b0cbbfc6376bc9f7757d \
--hash=sha256:5bf4001d3293e3414d0cf99ff9b1139106e57c3a66dfff0c5f60b2a6286ec133 \
--hash=sha256:07a554fa31c668cf0e7a188678ceeca3cb8fead29bbe455352e712ec33ca701c \
--hash=sha256:4484f4b7287bdaa7a5b3980f3c7224c3c622669405d20f69549f5fb956ad0421
";

/// A Python that has it.
pub(super) fn find_or_install(tools: &Path) -> Result<PathBuf, Error> {
    let named = named("ATREST_GRPCIO_PYTHON");
    let environment = tools.join("grpcio");
    let own = environment.join("bin/python");
    if let Some(python) = named.into_iter().chain([own.clone()]).find(|python| has_grpc(python)) {
        return Ok(python);
    }
    let python = python::find()?;
    // Without pip in it: Debian has that in a package of its own, and the pip outside does as well.
    command::run(Command::new(&python).args(["-m", "venv", "--clear", "--without-pip"]).arg(&environment))?;
    let requirements = environment.join("requirements.txt");
    std::fs::write(&requirements, REQUIREMENT).map_err(|source| Error::File { path: requirements.clone(), source })?;
    command::run(
        python::pip(&python)?
            .arg("--python")
            .arg(&own)
            .args(["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement"])
            .arg(&requirements),
    )?;
    if has_grpc(&own) {
        return Ok(own);
    }
    let hint = "name a Python that imports grpc in ATREST_GRPCIO_PYTHON".to_owned();
    Err(Error::Missing { tool: "grpcio", hint })
}

fn has_grpc(python: &Path) -> bool {
    workspace::is_executable(python) && command::output(Command::new(python).args(["-c", "import grpc"])).is_ok()
}
