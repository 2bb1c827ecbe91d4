//! `cargo xtask fuzz-smoke`

use std::process::Command;

use crate::error::Error;
use crate::{command, workspace};

/// Runs every fuzz target for that long.
pub(crate) fn smoke(seconds: u32) -> Result<(), Error> {
    let fuzz_dir = workspace::root().join("tests/fuzz");
    let manifest = fuzz_dir.join("Cargo.toml");
    std::fs::metadata(&manifest).map_err(|source| Error::File { path: manifest, source })?;
    if workspace::on_path("cargo-fuzz").is_none() {
        command::run(workspace::cargo().args(["install", "cargo-fuzz", "--version", "0.13.2", "--locked"]))?;
    }
    let targets = command::output(cargo_fuzz("list").args(["--fuzz-dir", "tests/fuzz"]))?;
    // Apart from the ordinary build, whose artifacts have no coverage counters.
    let target_dir = workspace::target_dir()?.join("fuzz");
    for target in targets.split_whitespace() {
        let mut fuzz = cargo_fuzz("run");
        fuzz.args(["--fuzz-dir", "tests/fuzz", "--target-dir"]).arg(&target_dir).arg(target);
        let seeds = fuzz_dir.join("seeds").join(target);
        if seeds.is_dir() {
            // What is found goes into the first, so that the seeds stay as they are.
            let corpus = fuzz_dir.join("corpus").join(target);
            std::fs::create_dir_all(&corpus).map_err(|source| Error::File { path: corpus.clone(), source })?;
            fuzz.arg(corpus).arg(seeds);
        }
        // An input of a few KiB that takes seconds, or a GiB, is as good as a crash.
        fuzz.args(["--", "-timeout=10", "-rss_limit_mb=1024"]).arg(format!("-max_total_time={seconds}"));
        command::run(&mut fuzz)?;
    }
    Ok(())
}

fn cargo_fuzz(subcommand: &str) -> Command {
    let mut cargo = workspace::cargo();
    // The sanitizers' flags are unstable; only the fuzzers are built with them.
    cargo.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", subcommand]);
    // cargo-fuzz sets RUSTFLAGS, which hides those of .cargo/config.toml.
    cargo.env("RUSTFLAGS", r#"--cfg poly1305_backend="soft""#);
    cargo
}
