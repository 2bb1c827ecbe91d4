use clap::{Parser, Subcommand};

use crate::commands::keyring::{KeygenArgs, ListArgs, ResealArgs, RetireArgs, RotateArgs};

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
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
