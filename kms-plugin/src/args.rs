use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::commands::keyring::{KeygenArgs, ListArgs, ResealArgs, RetireArgs, RotateArgs};
use crate::commands::serve::ServeArgs;

const AFTER_HELP: &str = "\
Environment:
  RUST_LOG  what is logged instead, by targets and levels: cryptoki=error,atrest_kms_plugin=debug

Exit codes:
  0  done
  1  refused
  2  wrong usage or configuration
  3  cannot reach or read something";

/// A KMS plugin for kube-apiserver.
#[derive(Debug, Parser)]
#[command(name = "atrest-kms-plugin", version, after_help = AFTER_HELP, propagate_version = true, max_term_width = 110)]
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
    /// Make a keyring with one new key
    Keygen(KeygenArgs),
    /// Make a new key that encrypts from now on; with several plugins first --stage, then --activate
    Rotate(RotateArgs),
    /// Show the keys of a keyring, without the keys themselves
    List(ListArgs),
    /// Remove a key that nothing is encrypted by any more
    Retire(RetireArgs),
    /// Seal a keyring in another way, with the same keys
    Reseal(ResealArgs),
}
