//! `atrest-kms-plugin`: the KMS plugin's command line.

mod args;
mod commands;
mod failure;
mod hint;
mod process;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

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
    let level = default_filter(is_server, args.verbose);
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|asked| !asked.trim().is_empty());
    let (filter, misunderstood) = match asked.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (level.into(), Some(error)),
        None => (level.into(), None),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    _ = match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text if is_server => builder.with_target(false).try_init(),
        LogFormat::Text => builder.with_target(false).without_time().try_init(),
    };
    if let Some(error) = misunderstood {
        tracing::warn!("{} counts as not set: {error}", EnvFilter::DEFAULT_ENV);
    }
}

/// What cryptoki calls an error, as that a token lacks one of all functions, is answered by the backend in its own words.
fn default_filter(is_server: bool, verbose: u8) -> &'static str {
    match (is_server, verbose) {
        (false, 0) => "warn,cryptoki=off",
        (true, 0) | (false, 1) => "warn,atrest_kms_plugin=info,atrest=info,cryptoki=off",
        (_, 1..) => "info,atrest_kms_plugin=debug,atrest=debug,cryptoki=off",
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Each time that it connected to a token, cryptoki wrote about thirty lines of errors.
    #[test]
    fn cryptoki_is_not_heard_unless_asked_for() {
        for (is_server, verbose) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
            let filter = EnvFilter::try_new(default_filter(is_server, verbose)).unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(filter), || {
                assert!(!tracing::enabled!(target: "cryptoki::context", tracing::Level::ERROR));
                assert!(tracing::enabled!(target: "cryptography", tracing::Level::WARN));
                let is_debug = tracing::enabled!(target: "atrest_kms_plugin::serve", tracing::Level::DEBUG);
                assert_eq!(is_debug, verbose >= if is_server { 1 } else { 2 });
            });
        }
    }
}
