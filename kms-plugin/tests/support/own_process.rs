//! Tests that need a process of their own: for variables of the environment, which a running program does not set, or for a library
//! that is initialized once per process.

use std::ffi::OsString;
use std::process::Command;

const MARK: &str = "ATREST_TEST_IN_OWN_PROCESS";

/// Runs `body` of the test called `name`, module path and all, in a process with these variables.
pub(crate) fn run(name: &str, variables: impl FnOnce() -> Vec<(&'static str, OsString)>, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let me = std::env::current_exe().expect("it has a path");
    let output = Command::new(me)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .envs(variables())
        .output()
        .expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("running 1 test"), "no test is called {name}");
    assert!(output.status.success(), "{text}");
}
