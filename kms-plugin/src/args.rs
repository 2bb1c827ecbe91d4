use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::commands::serve::ServeArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused
  2  wrong usage or configuration
  3  cannot reach or read something";

/// A KMS plugin for kube-apiserver.
#[derive(Debug, Parser)]
#[command(name = "atrest-kms-plugin", version, after_help = EXIT_CODES, propagate_version = true, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// More messages on standard error
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Form of the messages
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// An object a line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve kube-apiserver on a unix socket
    Serve(Box<ServeArgs>),
}
