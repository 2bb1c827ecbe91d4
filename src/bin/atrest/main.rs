//! See, verify and rotate what is encrypted at rest in a Kubernetes cluster's etcd.

mod args;
mod commands;
mod failure;
mod hint;
mod progress;
mod render;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use args::Args;
use failure::Failure;

fn main() -> ExitCode {
    // Two libraries of the tree could bring a provider; without a choice rustls panics.
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            _ = error.print();
            return ExitCode::from(failure::USAGE);
        }
        Err(error) if error.use_stderr() => {
            // Without a subcommand it is the help that is shown, and no message of the program.
            let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            let program = if is_help { "" } else { "atrest: " };
            _ = write!(std::io::stderr(), "{program}{}", error.render());
            return ExitCode::from(failure::USAGE);
        }
        Err(help) => {
            _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    init_logging(args.verbose, args.quiet);
    match commands::run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            let mut stderr = std::io::stderr().lock();
            _ = writeln!(stderr, "atrest: error: {failure}");
            for hint in hint::hints(&failure) {
                _ = writeln!(stderr, "atrest: hint: {hint}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn init_logging(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "atrest=warn,error",
        (false, 1) => "atrest=info,warn",
        (false, _) => "atrest=debug,info",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| level.into());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    _ = tracing::subscriber::set_global_default(subscriber);
}
