//! How etcd is reached, and what is said when it cannot be: by the program, on the command line.

mod auth;
mod failover;
pub(crate) mod forwarder;
mod mistakes;
mod reached;
mod tls;
mod tls_files;

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `--dial-timeout` is in these tests.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// For the start of the program, on a machine that does other things too.
const SLACK: Duration = Duration::from_secs(5);

/// `atrest scan` with the flags and variables of a connection.
#[derive(Debug, Default)]
struct Scan {
    args: Vec<std::ffi::OsString>,
    variables: Vec<(&'static str, std::ffi::OsString)>,
}

/// What a run of the program came to.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    took: Duration,
}

impl Scan {
    fn of(endpoints: &str) -> Self {
        Self::default().flag("--endpoints", endpoints)
    }

    fn flag(self, flag: &str, value: impl AsRef<OsStr>) -> Self {
        self.switch(flag).switch(value)
    }

    fn switch(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.args.push(flag.as_ref().to_owned());
        self
    }

    fn ca(self, ca: &Path) -> Self {
        self.flag("--cacert", ca)
    }

    fn pair(self, pair: &crate::support::CertificateFiles) -> Self {
        self.flag("--cert", &pair.cert).flag("--key", &pair.key)
    }

    fn variable(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    fn run(&self) -> Outcome {
        let mut command = atrest();
        command.arg("scan").args(&self.args).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if !self.args.iter().any(|arg| arg == "--dial-timeout") {
            command.arg("--dial-timeout").arg(format!("{}s", DIAL_TIMEOUT.as_secs()));
        }
        outcome(&mut command)
    }

    /// It must work; answers what it prints.
    fn works(&self) -> String {
        let outcome = self.run();
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{self:?}\n{}", outcome.stdout);
        outcome.stdout
    }

    /// It must say so, and nothing else, in time. The lines are those after `atrest: `.
    fn fails(&self, code: i32, lines: &[&str]) {
        let outcome = self.run();
        let expected: String = lines.iter().map(|line| format!("atrest: {line}\n")).collect();
        assert_eq!(outcome.stderr, expected, "{self:?}");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert!(outcome.took < DIAL_TIMEOUT + SLACK, "{self:?} took {:?}", outcome.took);
    }
}

/// The program, without what the developer has set for an etcd of his own.
fn atrest() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atrest"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCDCTL_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

fn outcome(command: &mut Command) -> Outcome {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Outcome { code: output.status.code(), stdout, stderr, took: begin.elapsed() }
}

/// An address where nobody listens, and nobody can while this is held.
struct Dead(tokio::net::TcpSocket);

impl Dead {
    fn new() -> Self {
        Self::at("127.0.0.1:0")
    }

    fn at(address: &str) -> Self {
        let address: std::net::SocketAddr = address.parse().expect("it is an address");
        let socket = match address.is_ipv4() {
            true => tokio::net::TcpSocket::new_v4(),
            false => tokio::net::TcpSocket::new_v6(),
        };
        let socket = socket.expect("a socket can be made");
        socket.bind(address).expect("the loopback interface has a free port");
        Self(socket)
    }
}

impl std::fmt::Display for Dead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.local_addr().expect("it is bound"))
    }
}

/// A port that nobody listens on yet.
fn free_port() -> u16 {
    listener().local_addr().expect("it is bound").port()
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port")
}

/// A server that does this with every connection, until the test ends. Answers its endpoint without a scheme.
fn serve(with: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = listener();
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(with));
    address
}
