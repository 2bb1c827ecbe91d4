//! `cargo xtask test`

use crate::error::Error;
use crate::{command, setup, workspace};

pub(crate) fn run(args: &[String]) -> Result<(), Error> {
    let tools = setup::run()?;
    let mut tests = workspace::cargo();
    let nextest = workspace::on_path("cargo-nextest").is_some();
    if nextest {
        tests.args(["nextest", "run"]);
    } else {
        tests.arg("test");
        if args.is_empty() {
            // Everything but the doc tests, which come below.
            tests.args(["--lib", "--bins", "--tests", "--examples"]);
        }
    }
    tests.args(["--workspace", "--locked"]).args(args);
    command::run(tools.tell(&mut tests))?;
    if args.is_empty() {
        // AWS KMS is no default feature of the plugin: its SDK takes minutes to build.
        let mut aws = workspace::cargo();
        let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
        aws.args(runner).args(["-p", "atrest-kms-plugin", "--locked", "--features", "aws", "--lib", "--test", "aws"]);
        command::run(tools.tell(&mut aws))?;
        let mut doc_tests = workspace::cargo();
        doc_tests.args(["test", "--doc", "--workspace", "--locked"]);
        command::run(tools.tell(&mut doc_tests))?;
    }
    Ok(())
}
