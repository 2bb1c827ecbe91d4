//! Real etcd servers: a process, free ports of the loopback interface, and a folder that is gone afterwards.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;
use super::install::Version;
use super::pki::{CertificateFiles, Pki};

/// A machine that runs other tests too may take long.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(60);

pub(super) const PORT_TAKEN: &str = "address already in use";
const SOCKET: &str = "etcd.sock:1";
const PEER: &str = "http://127.0.0.1:2380";

/// What an [`Etcd`] is to be like.
#[derive(Debug)]
pub(crate) struct Builder {
    version: Version,
    snapshot: Option<PathBuf>,
    tls: Option<Tls>,
    client_cert_auth: bool,
    root_password: Option<String>,
    listen: Listen,
    args: Vec<String>,
}

#[derive(Debug)]
struct Tls {
    ca: PathBuf,
    server: CertificateFiles,
    client: CertificateFiles,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listen {
    V4,
    V6,
    Unix,
}

impl Builder {
    /// Starts with the contents of a gzipped snapshot.
    pub(crate) fn restored_from(mut self, snapshot: impl Into<PathBuf>) -> Self {
        self.snapshot = Some(snapshot.into());
        self
    }

    /// Serves TLS with that certificate. [`Etcd::flags`] trusts the PKI's authority, which need not have issued it.
    pub(crate) fn tls(mut self, pki: &Pki, server: CertificateFiles) -> Self {
        self.tls = Some(Tls { ca: pki.ca().to_owned(), server, client: pki.client("root") });
        self
    }

    /// Refuses TLS clients without a certificate of the PKI.
    pub(crate) fn client_cert_auth(mut self) -> Self {
        self.client_cert_auth = true;
        self
    }

    /// Makes the user `root` with that password, and refuses who does not authenticate.
    pub(crate) fn auth_enabled(mut self, root_password: &str) -> Self {
        self.root_password = Some(root_password.to_owned());
        self
    }

    /// Serves on a unix socket: [`Etcd::socket`].
    pub(crate) fn unix_socket(mut self) -> Self {
        self.listen = Listen::Unix;
        self
    }

    /// Serves on `[::1]`.
    pub(crate) fn ipv6(mut self) -> Self {
        self.listen = Listen::V6;
        self
    }

    /// One more argument of etcd, like `--max-request-bytes=4096`.
    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Starts it and returns when it serves.
    ///
    /// # Panics
    /// When it does not start; with the end of its log.
    pub(crate) fn start(self) -> Etcd {
        let dir = tempfile::Builder::new().prefix("atrest-etcd-").tempdir().expect("a temporary folder can be made");
        if let Some(snapshot) = &self.snapshot {
            restore(self.version, snapshot, dir.path());
        }
        let mut etcd = Etcd { process: None, starts: 0, ports: Ports::free(self.listen), dir, config: self };
        let mut tries = 8;
        while let Err(log) = etcd.spawn() {
            tries -= 1;
            assert!(tries > 0 && log.contains(PORT_TAKEN), "etcd does not start; the end of its log:\n{log}");
            etcd.ports = Ports::free(etcd.config.listen);
        }
        if let Some(password) = &etcd.config.root_password {
            Client::new(etcd.back_door(), None).enable_auth(password);
        }
        etcd
    }
}

/// A running etcd. Dropping it kills it and removes its data.
///
/// Beside what the builder asked for it has a back door: plain HTTP on a port of `127.0.0.1` of its own, for
/// [`Etcd::client`], so that a test can store and look whatever is wrong with the certificates it tests.
#[derive(Debug)]
pub(crate) struct Etcd {
    process: Option<Child>,
    starts: u32,
    ports: Ports,
    dir: tempfile::TempDir,
    config: Builder,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    back_door: u16,
}

impl Ports {
    fn free(listen: Listen) -> Self {
        let host = if listen == Listen::V6 { "::1" } else { "127.0.0.1" };
        // Both are held until both are known, or they might be the same.
        let client = TcpListener::bind((host, 0)).expect("the loopback interface has a free port");
        let back_door = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback interface has a free port");
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        Self { client: port(&client), back_door: port(&back_door) }
    }
}

impl Etcd {
    /// A plain etcd, without TLS and authentication.
    pub(crate) fn start(version: Version) -> Self {
        Self::builder(version).start()
    }

    /// An etcd that is to be described.
    pub(crate) fn builder(version: Version) -> Builder {
        Builder {
            version,
            snapshot: None,
            tls: None,
            client_cert_auth: false,
            root_password: None,
            listen: Listen::V4,
            args: Vec::new(),
        }
    }

    /// What `--endpoints` wants.
    pub(crate) fn endpoint(&self) -> String {
        match self.config.listen {
            Listen::V4 => self.endpoint_at("127.0.0.1"),
            Listen::V6 => self.endpoint_at("[::1]"),
            Listen::Unix => format!("unix://{}", self.socket().display()),
        }
    }

    /// The endpoint under another name of this host, like `localhost`.
    pub(crate) fn endpoint_at(&self, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme(), self.ports.client)
    }

    /// The port of the endpoint.
    pub(crate) fn port(&self) -> u16 {
        self.ports.client
    }

    /// The socket of an etcd made with [`Builder::unix_socket`].
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// The data directory, with `member/snap/db` in it.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The flags with which etcdctl, or atrest, reaches the endpoint as it should.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--endpoints".into(), self.endpoint().into()];
        if let Some(tls) = &self.config.tls {
            flags.extend(["--cacert".into(), tls.ca.clone().into()]);
            if self.config.client_cert_auth {
                flags.extend(["--cert".into(), tls.client.cert.clone().into()]);
                flags.extend(["--key".into(), tls.client.key.clone().into()]);
            }
        }
        if let Some(password) = &self.config.root_password {
            flags.extend(["--user".into(), format!("root:{password}").into()]);
        }
        flags
    }

    /// Runs etcdctl with [`Etcd::flags`] and these arguments.
    pub(crate) fn etcdctl(&self, args: &[&str]) -> Output {
        self.etcdctl_with(&self.flags(), args)
    }

    /// Runs etcdctl with other flags.
    pub(crate) fn etcdctl_with(&self, flags: &[OsString], args: &[&str]) -> Output {
        let mut etcdctl = Command::new(self.config.version.program("etcdctl"));
        without_settings(&mut etcdctl).env("ETCDCTL_API", "3").args(flags).args(args);
        etcdctl.stdin(Stdio::null()).output().expect("etcdctl can be started")
    }

    /// A client, by the back door, that may do everything.
    pub(crate) fn client(&self) -> Client {
        let user = self.config.root_password.as_ref().map(|password| ("root".to_owned(), password.clone()));
        Client::new(self.back_door(), user)
    }

    /// Kills it as a power cut would, with nothing written that had not been.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It fails only if the process has ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it again, on the same ports and data; kills it first if it runs.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut tries = 20;
        while let Err(log) = self.spawn() {
            tries -= 1;
            assert!(tries > 0 && log.contains(PORT_TAKEN), "etcd does not start again; the end of its log:\n{log}");
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Stops it in its tracks: connections stay open and nothing answers, until [`Etcd::resume`].
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// The end of [`Etcd::pause`].
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    /// What it has logged since it was last started.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    fn back_door(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.back_door)
    }

    fn scheme(&self) -> &'static str {
        if self.config.tls.is_some() { "https" } else { "http" }
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join(format!("etcd-{}.log", self.starts))
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("etcd is running");
        // `kill` is a part of every shell, and a program of its own only on some machines.
        let script = format!("kill {signal} {}", process.id());
        let status = Command::new("sh").arg("-c").arg(script).status().expect("sh can be started");
        assert!(status.success(), "kill {signal}: {status}");
    }

    /// The error is the end of its log.
    fn spawn(&mut self) -> Result<(), String> {
        self.starts += 1;
        let log = File::create(self.log_file()).expect("the log can be made");
        let endpoint = match self.config.listen {
            // etcd wants a host and a port, takes both for a file name, and the folder for its own.
            Listen::Unix => format!("{}://{SOCKET}", if self.config.tls.is_some() { "unixs" } else { "unix" }),
            Listen::V4 | Listen::V6 => self.endpoint(),
        };
        let mut etcd = Command::new(self.config.version.program("etcd"));
        without_settings(&mut etcd).current_dir(self.dir.path());
        etcd.arg("--data-dir").arg(self.data_dir());
        etcd.arg("--listen-client-urls").arg(format!("{endpoint},{}", self.back_door()));
        etcd.args(["--advertise-client-urls", &self.back_door()]);
        // No peer ever calls, so only what it listens on has to be free.
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        etcd.args(["--initial-advertise-peer-urls", PEER]).arg(format!("--initial-cluster=default={PEER}"));
        // Nobody to wait for: it elects itself at once.
        etcd.args(["--heartbeat-interval", "20", "--election-timeout", "200", "--bcrypt-cost", "4"]);
        if self.config.version == Version::V3_5 {
            etcd.arg("--unsafe-no-fsync");
        }
        if let Some(tls) = &self.config.tls {
            etcd.arg("--cert-file").arg(&tls.server.cert).arg("--key-file").arg(&tls.server.key);
            if self.config.client_cert_auth {
                // The authority alone would have the same effect, with a warning.
                etcd.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
            }
        }
        etcd.args(&self.config.args);
        etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(etcd.spawn().expect("etcd can be started"));
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            // The log, and not an answer on the port: somebody else's etcd may answer there.
            if self.log().contains("ready to serve client requests") {
                return Ok(());
            }
            let ended = self.process.as_mut().is_none_or(|process| !matches!(process.try_wait(), Ok(None)));
            if ended || Instant::now() > deadline {
                self.kill();
                return Err(self.end_of_log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Etcd {
    #[expect(clippy::print_stderr, reason = "of a test that fails this is the output")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the end of etcd's log:\n{}", self.end_of_log());
        }
    }
}

/// Removes what the developer has set for an etcd of his own.
pub(super) fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD") {
            command.env_remove(name);
        }
    }
    command
}

fn restore(version: Version, snapshot: &Path, dir: &Path) {
    let plain = dir.join("snapshot.db");
    let compressed = File::open(snapshot).unwrap_or_else(|error| panic!("{}: {error}", snapshot.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("the snapshot is gzip");
    std::fs::write(&plain, bytes).expect("the snapshot can be written");
    let program = match version {
        Version::V3_4 => "etcdctl",
        Version::V3_5 => "etcdutl",
    };
    let mut command = Command::new(version.program(program));
    without_settings(&mut command).env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(&plain);
    command.arg("--data-dir").arg(dir.join("data"));
    command.args(["--initial-advertise-peer-urls", PEER]).arg(format!("--initial-cluster=default={PEER}"));
    let output = command.output().expect("the program that restores can be started");
    assert!(output.status.success(), "restore failed: {}", String::from_utf8_lossy(&output.stderr));
}
