//! `cargo xtask test`

use crate::demo::SNAPSHOT;
use crate::error::Error;
use crate::etcd::Etcd;
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
    tests.args(["--workspace", "--locked"]);
    if args.is_empty() {
        // It comes below, with all its backends.
        tests.args(["--exclude", "atrest-kms-plugin"]);
    }
    command::run(tools.tell(tests.args(args)))?;
    if args.is_empty() {
        let mut plugin = workspace::cargo();
        let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test", "--lib", "--bins", "--tests"] };
        plugin.args(runner).args(["-p", "atrest-kms-plugin", "--locked", "--all-features"]);
        command::run(tools.tell(&mut plugin))?;
        let mut doc_tests = workspace::cargo();
        doc_tests.args(["test", "--doc", "--workspace", "--locked"]);
        // The examples of the storage layer are run against it.
        let etcd = Etcd::start(&tools.etcd_3_5, &workspace::root().join(SNAPSHOT))?;
        command::run(tools.tell(doc_tests.env("ETCDCTL_ENDPOINTS", etcd.endpoint())))?;
    }
    Ok(())
}
