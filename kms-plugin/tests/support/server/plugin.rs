//! The program itself, serving a keyring.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atrest::kms::api::v2::StatusRequest;
use atrest::kms::api::v2::key_management_service_client::KeyManagementServiceClient as V2Client;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// A folder with a keyring, and what is needed to serve it.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
}

/// A plugin that runs.
#[derive(Debug)]
pub(crate) struct Plugin {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
    pub(crate) path: PathBuf,
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_atrest-kms-plugin"));
    program.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    program
}

impl Site {
    /// With a new keyring.
    pub(crate) fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().expect("a folder") };
        let output = site.keyring("keygen");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        site
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.at("kms.sock")
    }

    /// Runs a command on the keyring.
    pub(crate) fn keyring(&self, command: &str) -> Output {
        program().arg(command).arg("--keyring").arg(self.at("keyring")).arg("--plain").output().expect("it runs")
    }

    /// `serve`, with the flags that every test needs.
    pub(crate) fn serve(&self) -> Command {
        let url = |path: PathBuf| format!("unix://{}", path.display());
        self.serve_at(&url(self.socket()), &url(self.at("health.sock")))
    }

    pub(crate) fn serve_at(&self, listen: &str, health: &str) -> Command {
        let mut serve = program();
        serve.args(["serve", "--listen", listen, "--health", health]);
        serve.args(["--backend", "keyring", "--plain", "--keyring"]).arg(self.at("keyring"));
        serve
    }

    /// A plugin that has started; whether it serves already is another question.
    pub(crate) fn start(&self, serve: &mut Command) -> Plugin {
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        let stderr = BufReader::new(child.stderr.take().expect("its standard error"));
        let reader = {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in stderr.lines() {
                    let line = line.expect("UTF-8");
                    *log.lock().expect("no panic") += &format!("{line}\n");
                }
            })
        };
        Plugin { child, log, reader: Some(reader), path: self.socket() }
    }

    /// A plugin that is healthy.
    pub(crate) async fn start_healthy(&self) -> Plugin {
        let plugin = self.start(&mut self.serve());
        plugin.until_healthy().await;
        plugin
    }
}

impl Plugin {
    /// What it has logged up to now.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no panic").clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it took until Status said ok.
    pub(crate) async fn until_healthy(&self) -> Duration {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) {
            if let Ok(channel) = endpoint(&self.path).connect().await
                && let Ok(status) = V2Client::new(channel).status(StatusRequest {}).await
                && status.get_ref().healthz == "ok"
            {
                return began.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it is not healthy:\n{}", self.log());
    }

    /// Until this is in its log.
    pub(crate) async fn until_logged(&self, text: &str) {
        for _ in 0..1000 {
            if self.log().contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{text:?} is not in the log:\n{}", self.log());
    }

    pub(crate) fn client(&self) -> V2Client<Channel> {
        V2Client::new(endpoint(&self.path).connect_lazy())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Until it has ended. How, and what it wrote to standard output and standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        let status = self.child.wait().expect("its status");
        let mut stdout = String::new();
        self.child.stdout.take().expect("standard output").read_to_string(&mut stdout).expect("UTF-8");
        self.reader.take().expect("a reader").join().expect("no panic");
        (status, stdout, self.log())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // One that has ended is no process any more.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn endpoint(path: &Path) -> Endpoint {
    Endpoint::try_from(format!("unix://{}", path.display())).expect("a URL")
}
