//! `cargo xtask demo`: a key rotation, from the first look to the proof, on a private etcd.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::etcd::Etcd;
use crate::{command, setup, workspace};

/// What the private etcd holds.
pub(crate) const SNAPSHOT: &str = "tests/vectors/snapshots/local.db.gz";
const CONFIG: &str = "tests/vectors/snapshots/encryption-config-local.yaml";

/// A command of the rotation.
struct Step {
    says: &'static str,
    args: &'static [&'static str],
    /// `scan` knows no keys.
    takes_config: bool,
    /// Exit codes that do not fail the demonstration: 1 means findings, which is what `verify` is there for.
    fine: &'static [i32],
}

const STEPS: [Step; 6] = [
    Step { says: "What is stored, and under which keys?", args: &["scan"], takes_config: false, fine: &[0, 1] },
    Step { says: "Can all of it be read, and what is stale?", args: &["verify"], takes_config: true, fine: &[0, 1] },
    Step { says: "What would be rewritten?", args: &["rekey"], takes_config: true, fine: &[0] },
    // Slowly, so that there is time to look at the bar.
    Step { says: "Rewrite it.", args: &["rekey", "--yes", "--rate", "20"], takes_config: true, fine: &[0] },
    Step { says: "Is anything stale now?", args: &["verify"], takes_config: true, fine: &[0, 1] },
    Step {
        says: "May the old key be removed from the configuration?",
        args: &["verify", "--removable", "aescbc/key1"],
        takes_config: true,
        fine: &[0, 1],
    },
];

pub(crate) fn run() -> Result<(), Error> {
    let interrupted = catch_signals()?;
    let tools = setup::basics()?;
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--locked", "--package", "atrest"]);
    command::run(build.env("PROTOC", &tools.protoc))?;
    if interrupted.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }

    let atrest = workspace::target_dir()?.join("release/atrest");
    let etcd = Etcd::start(&tools.etcd_3_5, &workspace::root().join(SNAPSHOT))?;
    STEPS.iter().try_for_each(|step| run_step(step, &atrest, &etcd, &interrupted))
}

/// With the signals caught, this process lives to stop etcd and to remove its data.
fn catch_signals() -> Result<Arc<AtomicBool>, Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|source| Error::System { what: "signal handler", source })?;
    }
    Ok(interrupted)
}

fn run_step(step: &Step, atrest: &Path, etcd: &Etcd, interrupted: &AtomicBool) -> Result<(), Error> {
    let mut command = Command::new(atrest);
    command.current_dir(workspace::root()).args(step.args).args(["--endpoints", &etcd.endpoint()]);
    if step.takes_config {
        command.args(["--encryption-provider-config", CONFIG]);
    }
    // The developer's own settings are for the developer's own etcd.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCDCTL_")) {
        command.env_remove(name);
    }
    let line = command::line_of(&command);
    println!("\n# {}\n$ {line}", step.says);

    let mut process = command.spawn().map_err(|source| command::spawn_error(&command, source))?;
    let mut patience = None;
    let status = loop {
        match process.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(source) => return Err(Error::System { what: "wait", source }),
        }
        if interrupted.load(Ordering::Relaxed) {
            // Ctrl-C has reached it too: let it end as it wants to.
            let until = *patience.get_or_insert_with(|| Instant::now() + Duration::from_secs(10));
            if Instant::now() > until {
                let _ = process.kill();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if interrupted.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    match status.code() {
        Some(code) if step.fine.contains(&code) => Ok(()),
        _ => Err(Error::Failed { line, status, stderr: String::new() }),
    }
}
