//! `cargo xtask setup`: brings what the build and the tests need and a bare machine lacks.

mod apt;
mod etcd_3_4;
mod etcd_3_5;
mod grpcio;
mod moto;
mod openbao;
mod protoc;
mod python;
mod softhsm;
mod tpm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::{command, workspace};

/// Where the tools are.
#[derive(Debug)]
pub(crate) struct Tools {
    /// `protoc`, or `protox`, which understands what prost asks of it.
    pub(crate) protoc: PathBuf,
    /// A folder with etcd, etcdctl and etcdutl 3.5.
    pub(crate) etcd_3_5: PathBuf,
    /// A folder with etcd and etcdctl 3.4.
    pub(crate) etcd_3_4: PathBuf,
    /// A Python with gRPC.
    pub(crate) grpcio_python: PathBuf,
    /// SoftHSM's PKCS#11 module.
    pub(crate) softhsm: PathBuf,
    /// `bao`, which is OpenBao's server.
    pub(crate) bao: PathBuf,
    /// `moto_server`, which answers like AWS.
    pub(crate) moto: PathBuf,
}

impl Tools {
    /// Tells a command of cargo where the tools are.
    pub(crate) fn tell<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let mut dirs = OsString::from(&self.etcd_3_5);
        dirs.push(":");
        dirs.push(&self.etcd_3_4);
        command.env("PROTOC", &self.protoc).env("ATREST_ETCD_DIRS", dirs);
        command.env("ATREST_GRPCIO_PYTHON", &self.grpcio_python).env("ATREST_SOFTHSM_MODULE", &self.softhsm);
        command.env("ATREST_BAO", &self.bao).env("ATREST_MOTO_SERVER", &self.moto)
    }
}

/// What it takes to build, and one etcd.
#[derive(Debug)]
pub(crate) struct Basics {
    dir: PathBuf,
    /// `protoc`, or `protox`.
    pub(crate) protoc: PathBuf,
    /// A folder with etcd, etcdctl and etcdutl 3.5.
    pub(crate) etcd_3_5: PathBuf,
}

/// Finds or brings what a demonstration needs.
pub(crate) fn basics() -> Result<Basics, Error> {
    let dir = workspace::target_dir()?.join("tools");
    std::fs::create_dir_all(&dir).map_err(|source| Error::File { path: dir.clone(), source })?;
    let protoc = protoc::find_or_install()?;
    say("protoc", &protoc);
    let etcd_3_5 = etcd_3_5::find_or_download(&dir)?;
    say("etcd 3.5", &etcd_3_5);
    Ok(Basics { dir, protoc, etcd_3_5 })
}

/// Finds or brings each tool. Doing it again changes nothing.
pub(crate) fn run() -> Result<Tools, Error> {
    let Basics { dir, protoc, etcd_3_5 } = basics()?;
    // The tests make PKCS#1 and SEC1 keys with it.
    let openssl = match workspace::on_path("openssl") {
        Some(openssl) => openssl,
        None => apt::install("openssl", &["openssl"], "install the openssl command line")?,
    };
    say("openssl", &openssl);
    let etcd_3_4 = etcd_3_4::find_or_download(&dir)?;
    say("etcd 3.4", &etcd_3_4);
    let grpcio_python = grpcio::find_or_install(&dir)?;
    say("grpcio", &grpcio_python);
    // The tests find it on PATH.
    say("swtpm", &tpm::find_or_install()?);
    let softhsm = softhsm::find_or_install()?;
    say("SoftHSM", &softhsm);
    let bao = openbao::find_or_download(&dir)?;
    say("OpenBao", &bao);
    let moto = moto::find_or_install(&dir)?;
    say("moto", &moto);
    Ok(Tools { protoc, etcd_3_5, etcd_3_4, grpcio_python, softhsm, bao, moto })
}

fn say(tool: &str, place: &Path) {
    eprintln!("setup: {tool}: {}", place.display());
}

/// The file that a variable names.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|file| file.is_file())
}

/// A folder of `ATREST_ETCD_DIRS`, or of `target/tools`, with an etcd whose version begins with `minor`, and with `programs`.
fn find_etcd(tools: &Path, minor: &str, programs: &[&str]) -> Option<PathBuf> {
    let named = std::env::var_os("ATREST_ETCD_DIRS").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|dir| !dir.as_os_str().is_empty());
    let downloaded = std::fs::read_dir(tools).into_iter().flatten().flatten().map(|entry| entry.path());
    let downloaded = downloaded.filter(|dir| is_install(dir));
    named.chain(downloaded).find(|dir| {
        programs.iter().all(|program| workspace::is_executable(&dir.join(program)))
            && etcd_version(&dir.join("etcd")).is_ok_and(|version| version.starts_with(minor))
    })
}

fn is_install(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("etcd-"))
}

/// The version of an etcd, like `3.5.1`.
fn etcd_version(etcd: &Path) -> Result<String, Error> {
    let text = command::output(Command::new(etcd).arg("--version"))?;
    Ok(text.lines().find_map(|line| line.strip_prefix("etcd Version: ")).unwrap_or_default().trim().to_owned())
}

/// Puts downloaded programs in their place: checked, executable, and all or none of them.
fn install(tools: &Path, from: &Path, minor: &str, programs: &[&str]) -> Result<PathBuf, Error> {
    use std::os::unix::fs::PermissionsExt;
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let stage = tempfile::tempdir_in(tools).map_err(file_error(tools))?;
    for program in programs {
        let to = stage.path().join(program);
        std::fs::copy(from.join(program), &to).map_err(file_error(&from.join(program)))?;
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).map_err(file_error(&to))?;
        // etcdctl and etcdutl have a subcommand where etcd has a flag.
        let how = if *program == "etcd" { "--version" } else { "version" };
        command::output(Command::new(&to).arg(how).env("ETCDCTL_API", "3"))?;
    }
    let version = etcd_version(&stage.path().join("etcd"))?;
    if !version.starts_with(minor) {
        return Err(Error::Missing {
            tool: "etcd",
            hint: format!("the download is etcd {version}; name a folder with etcd {minor}x in ATREST_ETCD_DIRS"),
        });
    }
    let place = tools.join(format!("etcd-{version}"));
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(file_error(&place))?;
    }
    let stage = stage.keep();
    std::fs::set_permissions(&stage, std::fs::Permissions::from_mode(0o755)).map_err(file_error(&stage))?;
    std::fs::rename(&stage, &place).map_err(file_error(&place))?;
    Ok(place)
}
