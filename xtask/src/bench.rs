//! `cargo xtask bench`

use crate::error::Error;
use crate::{command, setup, workspace};

pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    let tools = setup::run()?;
    let mut bench = workspace::cargo();
    bench.args(["bench", "--locked"]).args(args);
    command::run(tools.tell(&mut bench))
}
