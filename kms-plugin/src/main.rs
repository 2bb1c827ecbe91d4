//! A KMS plugin for kube-apiserver.
//!
//! The plugin's services are not part of this release: the binary says so and exits with 2.

use std::process::ExitCode;

fn main() -> ExitCode {
    use std::io::Write as _;
    // Nothing else can be done when standard error is closed.
    _ = writeln!(std::io::stderr(), "atrest-kms-plugin: error: serving keys is not in version {} yet", atrest::VERSION);
    ExitCode::from(2)
}
