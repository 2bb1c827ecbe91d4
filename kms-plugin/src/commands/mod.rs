//! From arguments to what the library does.

pub(crate) mod keyring;
pub(crate) mod serve;

use crate::args::{Args, Command};
use crate::failure::Failure;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Keygen(args) => keyring::keygen(args),
        Command::Rotate(args) => keyring::rotate(args),
        Command::List(args) => keyring::list(args),
        Command::Retire(args) => keyring::retire(args),
        Command::Reseal(args) => keyring::reseal(args),
    }
}
