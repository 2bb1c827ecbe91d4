//! Three members of one cluster, which can be killed and stopped one by one.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;
use super::etcd::{PORT_TAKEN, READY_WITHIN, without_settings};
use super::install::Version;

const MEMBERS: usize = 3;

/// A running cluster. Dropping it kills its members and removes their data.
#[derive(Debug)]
pub(crate) struct Cluster {
    version: Version,
    members: Vec<Member>,
    dir: tempfile::TempDir,
}

#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
    paused: bool,
    starts: u32,
}

impl Member {
    /// What it answers to nobody.
    fn is_deaf(&self) -> bool {
        self.paused || self.process.is_none()
    }
}

/// Free ports, all of them held until all are known.
fn free_ports() -> Vec<Member> {
    let listeners: Vec<TcpListener> =
        (0..2 * MEMBERS).map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port")).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    let pairs = listeners.chunks(2).map(|pair| match pair {
        [client, peer] => (port(client), port(peer)),
        _ => unreachable!("they come in pairs"),
    });
    pairs.map(|(client, peer)| Member { client, peer, process: None, paused: false, starts: 0 }).collect()
}

impl Cluster {
    /// Three members, when they have a leader and serve.
    ///
    /// # Panics
    /// When they do not start; with the end of a log.
    pub(crate) fn start(version: Version) -> Self {
        let mut tries = 8;
        loop {
            let dir =
                tempfile::Builder::new().prefix("atrest-etcd-").tempdir().expect("a temporary folder can be made");
            let mut cluster = Self { version, members: free_ports(), dir };
            // None serves before there are two.
            (0..MEMBERS).for_each(|member| cluster.spawn(member));
            match (0..MEMBERS).try_for_each(|member| cluster.wait_until_ready(member)) {
                Ok(()) => {
                    cluster.leader();
                    return cluster;
                }
                Err(log) => {
                    tries -= 1;
                    assert!(tries > 0 && log.contains(PORT_TAKEN), "etcd does not start; the end of its log:\n{log}");
                }
            }
        }
    }

    /// The endpoints of all members.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..MEMBERS).map(|member| self.endpoint(member)).collect()
    }

    pub(crate) fn endpoint(&self, member: usize) -> String {
        format!("http://127.0.0.1:{}", self.member(member).client)
    }

    /// A client of one member.
    pub(crate) fn client(&self, member: usize) -> Client {
        Client::new(self.endpoint(member), None)
    }

    /// The member that leads, as it says itself. Waits until there is one.
    pub(crate) fn leader(&self) -> usize {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let alive = (0..MEMBERS).filter(|member| !self.member(*member).is_deaf());
            if let Some(leader) = { alive }.find(|member| self.client(*member).leads(Duration::from_secs(1))) {
                return leader;
            }
            assert!(Instant::now() < deadline, "no member leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills a member as a power cut would. etcd 3.5.1 is asked to end: killed in the middle of a write it takes the write for applied
    /// when it comes back, and its data is other than that of the others from then on (etcd-io/etcd#13766).
    pub(crate) fn kill(&mut self, member: usize) {
        let asked = self.version == Version::V3_5 && !self.member(member).paused;
        if let Some(mut process) = self.member_mut(member).process.take() {
            if asked {
                // It fails only if the process has ended by itself.
                _ = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", process.id())).status();
            }
            // It fails only if the process has ended by itself.
            if !asked {
                _ = process.kill();
            }
            _ = process.wait();
        }
        self.member_mut(member).paused = false;
    }

    /// Starts a member again, on its ports and data, and waits until it serves; kills it first if it runs.
    pub(crate) fn restart(&mut self, member: usize) {
        let mut tries = 20;
        loop {
            self.kill(member);
            self.spawn(member);
            match self.wait_until_ready(member) {
                Ok(()) => return,
                Err(log) => {
                    tries -= 1;
                    assert!(tries > 0 && log.contains(PORT_TAKEN), "etcd does not start again; its log:\n{log}");
                    std::thread::sleep(Duration::from_millis(250));
                }
            }
        }
    }

    /// Stops a member in its tracks: connections stay open and nothing answers, until [`Cluster::resume`].
    pub(crate) fn pause(&mut self, member: usize) {
        self.signal(member, "-STOP");
        self.member_mut(member).paused = true;
    }

    /// The end of [`Cluster::pause`].
    pub(crate) fn resume(&mut self, member: usize) {
        self.signal(member, "-CONT");
        self.member_mut(member).paused = false;
    }

    fn member(&self, member: usize) -> &Member {
        self.members.get(member).expect("there are three")
    }

    fn member_mut(&mut self, member: usize) -> &mut Member {
        self.members.get_mut(member).expect("there are three")
    }

    fn signal(&self, member: usize, signal: &str) {
        let process = self.member(member).process.as_ref().expect("it is running");
        // `kill` is a part of every shell, and a program of its own only on some machines.
        let script = format!("kill {signal} {}", process.id());
        let status = Command::new("sh").arg("-c").arg(script).status().expect("sh can be started");
        assert!(status.success(), "kill {signal}: {status}");
    }

    fn log_file(&self, member: usize) -> PathBuf {
        self.dir.path().join(format!("member-{member}-{}.log", self.member(member).starts))
    }

    fn log(&self, member: usize) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file(member)).unwrap_or_default()).into_owned()
    }

    fn end_of_log(&self, member: usize) -> String {
        let log = self.log(member);
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
    }

    fn spawn(&mut self, member: usize) {
        self.member_mut(member).starts += 1;
        let log = File::create(self.log_file(member)).expect("the log can be made");
        let peer = |member: usize| format!("http://127.0.0.1:{}", self.member(member).peer);
        let all: Vec<_> = (0..MEMBERS).map(|member| format!("member-{member}={}", peer(member))).collect();
        let mut etcd = Command::new(self.version.program("etcd"));
        without_settings(&mut etcd).current_dir(self.dir.path());
        etcd.arg(format!("--name=member-{member}")).arg(format!("--data-dir=data-{member}"));
        etcd.args(["--listen-client-urls", &self.endpoint(member), "--advertise-client-urls", &self.endpoint(member)]);
        etcd.args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)]);
        etcd.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        // Long enough for a machine that does other things too.
        etcd.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
        if self.version == Version::V3_5 {
            etcd.arg("--unsafe-no-fsync");
        }
        etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.member_mut(member).process = Some(etcd.spawn().expect("etcd can be started"));
    }

    /// The error is the end of its log.
    fn wait_until_ready(&mut self, member: usize) -> Result<(), String> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if self.log(member).contains("ready to serve client requests") {
                return Ok(());
            }
            let process = self.member_mut(member).process.as_mut();
            let ended = process.is_none_or(|process| !matches!(process.try_wait(), Ok(None)));
            if ended || Instant::now() > deadline {
                return Err(self.end_of_log(member));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Cluster {
    #[expect(clippy::print_stderr, reason = "of a test that fails this is the output")]
    fn drop(&mut self) {
        (0..MEMBERS).for_each(|member| self.kill(member));
        if std::thread::panicking() {
            for member in 0..MEMBERS {
                eprintln!("the end of the log of member {member}:\n{}", self.end_of_log(member));
            }
        }
    }
}
