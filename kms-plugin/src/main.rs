//! `atrest-kms-plugin`: the KMS plugin's command line.

mod args;
mod commands;
mod failure;
mod hint;
mod process;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command, LogFormat};
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
    init_logging(&args);
    process::forbid_core_dumps();
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

/// Logs go to standard error. A server says what it does; another command only what is wrong.
fn init_logging(args: &Args) {
    let is_server = matches!(args.command, Command::Serve(_));
    let level = match (is_server, args.verbose) {
        (false, 0) => "warn",
        (true, 0) | (false, 1) => "atrest_kms_plugin=info,atrest=info,warn",
        (_, 1..) => "atrest_kms_plugin=debug,atrest=debug,info",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| level.into());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    _ = match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text if is_server => builder.with_target(false).try_init(),
        LogFormat::Text => builder.with_target(false).without_time().try_init(),
    };
}
