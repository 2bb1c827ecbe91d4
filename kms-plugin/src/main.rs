//! `atrest-kms-plugin`: the KMS plugin's command line.

mod args;
mod commands;
mod failure;
mod hint;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::Args;
use failure::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            _ = write!(std::io::stderr(), "atrest-kms-plugin: {}", error.render());
            return ExitCode::from(failure::USAGE);
        }
        Err(help) => {
            _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    init_logging();
    match commands::run(&args) {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            let mut stderr = std::io::stderr().lock();
            _ = writeln!(stderr, "atrest-kms-plugin: error: {failure}");
            if let Some(hint) = hint::hint(&failure) {
                _ = writeln!(stderr, "atrest-kms-plugin: hint: {hint}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn init_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    _ = tracing::subscriber::set_global_default(subscriber);
}
