//! From arguments to what the library does.

pub(crate) mod serve;

use crate::args::{Args, Command};
use crate::failure::Failure;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Serve(args) => serve::run(args),
    }
}
