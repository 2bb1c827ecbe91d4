//! A private etcd for the demonstration.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command;
use crate::error::Error;

/// An etcd on free ports of the loopback interface. Dropping it stops it and removes its data.
pub(crate) struct Etcd {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts the etcd of the folder `programs` with the contents of a gzipped snapshot.
    pub(crate) fn start(programs: &Path, snapshot: &Path) -> Result<Self, Error> {
        let dir = tempfile::tempdir().map_err(|source| Error::System { what: "temporary folder", source })?;
        let data = restore(programs, snapshot, dir.path())?;
        let log = dir.path().join("etcd.log");
        // Somebody may take a port between our finding it free and etcd's listening on it.
        for _ in 0..4 {
            if let Some((process, port)) = try_start(programs, &data, &log)? {
                return Ok(Self { process, port, _dir: dir });
            }
        }
        Err(Error::EtcdNotReady { log: end_of(&log) })
    }

    /// What `--endpoints` wants.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Either fails only if it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn restore(programs: &Path, snapshot: &Path, dir: &Path) -> Result<PathBuf, Error> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let plain = dir.join("snapshot.db");
    let mut reader = flate2::read::GzDecoder::new(File::open(snapshot).map_err(file_error(snapshot))?);
    let mut writer = File::create(&plain).map_err(file_error(&plain))?;
    std::io::copy(&mut reader, &mut writer).map_err(file_error(snapshot))?;
    let data = dir.join("data");
    let mut etcdutl = Command::new(programs.join("etcdutl"));
    command::output(etcdutl.args(["snapshot", "restore"]).arg(&plain).arg("--data-dir").arg(&data))?;
    Ok(data)
}

/// `None` if a port was taken.
fn try_start(programs: &Path, data: &Path, log: &Path) -> Result<Option<(Child, u16)>, Error> {
    use std::os::unix::process::CommandExt;
    let file = File::create(log).map_err(|source| Error::File { path: log.to_owned(), source })?;
    let port = free_port()?;
    let client = format!("http://127.0.0.1:{port}");
    let mut etcd = Command::new(programs.join("etcd"));
    etcd.arg("--data-dir").arg(data);
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync"]);
    // A group of its own: Ctrl-C is to end the command that uses etcd first, and etcd after it.
    etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).process_group(0);
    let mut process = etcd.spawn().map_err(|source| command::spawn_error(&etcd, source))?;

    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if text.contains("ready to serve client requests") {
            return Ok(Some((process, port)));
        }
        let ended = matches!(process.try_wait(), Ok(Some(_)));
        if ended && text.contains("address already in use") {
            return Ok(None);
        }
        if ended || Instant::now() > deadline {
            let _ = process.kill();
            let _ = process.wait();
            return Err(Error::EtcdNotReady { log: end_of(log) });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|source| Error::System { what: "no free port", source })
}

fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}
