//! Chores of the developers of atrest. Run as `cargo xtask <command>`.

mod bench;
mod command;
mod demo;
mod error;
mod etcd;
mod fuzz;
mod setup;
mod test;
mod workspace;

use std::process::ExitCode;

use error::Error;

const HELP: &str = "\
cargo xtask <command>

  setup                 bring what a bare machine lacks: protoc, openssl, etcd 3.5 and 3.4, and what the KMS plugin's tests need
  test [args...]        setup, then every test; with args: `cargo nextest run` (or `cargo test`) with them, no doc tests
  demo                  setup, then a key rotation from scan to verify on a private etcd
  fuzz-smoke [seconds]  every fuzz target for so long (default: 60)
  bench [args...]       setup, then `cargo bench` with args

Environment: PROTOC names a protoc; ATREST_ETCD_DIRS (colon-separated) names folders with etcd, etcdctl and etcdutl to use
in place of downloaded ones; ATREST_SOFTHSM_MODULE, ATREST_BAO and ATREST_MOTO_SERVER name the files of the KMS plugin's tests;
CARGO_TARGET_DIR is respected.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("xtask: hint: {hint}");
            }
            match error {
                Error::Usage(_) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(args: &[String]) -> Result<(), Error> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match (command, rest) {
        ("setup", []) => setup::run().map(drop),
        ("test", args) => test::run(args),
        ("demo", []) => demo::run(),
        ("fuzz-smoke", []) => fuzz::smoke(60),
        ("fuzz-smoke", [seconds]) => match seconds.parse() {
            Ok(seconds) if seconds > 0 => fuzz::smoke(seconds),
            _ => Err(Error::Usage(format!("fuzz-smoke: '{seconds}' is not a number of seconds"))),
        },
        ("bench", args) => bench::run(args),
        ("help" | "-h" | "--help", _) => {
            println!("{HELP}");
            Ok(())
        }
        ("setup" | "demo" | "fuzz-smoke", _) => Err(Error::Usage(format!("{command}: too many arguments"))),
        _ => Err(Error::Usage(format!("unknown command '{command}'"))),
    }
}
