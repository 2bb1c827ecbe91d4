//! Whether a plugin, anybody's, behaves as kube-apiserver needs it.
//!
//! Each check has a name and comes to pass, warn or fail. A plugin that is slow is looked at all the same: calls are given more than
//! the timeout of the configuration, and it is the latency that fails.

mod authority;
mod latency;
mod socket;
mod v1;
mod v2;

use std::time::Duration;

use super::plugin::random_key;
use super::{Client, Connection, Error};
use crate::config::Endpoint;
use crate::report::{CheckResult, KmsCheck, KmsCheckReport};
use crate::transformer::envelope::DekSource;

/// How long a call is waited for, however long the timeout of the configuration is not.
const LONGEST_CALL: Duration = Duration::from_secs(10);

/// The APIs of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `v1beta1.KeyManagementService`.
    V1,
    /// `v2.KeyManagementService`.
    V2,
}

/// How to look at a plugin.
#[derive(Debug)]
pub struct Options {
    /// The plugin's socket.
    pub endpoint: Endpoint,
    /// The timeout of the configuration.
    pub timeout: Duration,
    /// Only this API, which then must be served; otherwise every one that is.
    pub api: Option<Api>,
    /// How many calls are timed, one after the other.
    pub samples: u32,
    /// How many calls are made at once.
    pub concurrency: u32,
    /// What values from storage need: it must be decrypted, also when an older key has encrypted it.
    pub stored: Vec<DekSource>,
}

/// Collects what the checks come to.
#[derive(Debug)]
struct Checks {
    api: &'static str,
    report: KmsCheckReport,
}

impl Checks {
    fn add(&mut self, name: &'static str, result: CheckResult, detail: impl Into<String>) {
        self.report.ok &= result != CheckResult::Fail;
        self.report.checks.push(KmsCheck { api: self.api, name, result, detail: detail.into() });
    }

    fn pass(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, CheckResult::Pass, detail);
    }

    fn warn(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, CheckResult::Warn, detail);
    }

    fn fail(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, CheckResult::Fail, detail);
    }

    fn skip(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, CheckResult::Skip, detail);
    }
}

/// Looks at a plugin.
///
/// # Errors
///
/// When nobody listens on the socket. What else goes wrong is in the report.
pub async fn check(options: &Options) -> Result<KmsCheckReport, Error> {
    let timeout_ms = u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX);
    let report = KmsCheckReport::new(options.endpoint.to_string(), timeout_ms);
    let mut checks = Checks { api: "socket", report };
    socket::check(&options.endpoint, options.timeout, &mut checks).await?;
    let patient = (options.timeout * 10).clamp(Duration::from_secs(5), LONGEST_CALL.max(options.timeout));
    let client = Client::new(Connection::of_check(options.endpoint.clone(), patient));
    let v2 = match options.api {
        Some(Api::V1) => false,
        _ => v2::check(&client, options, &mut checks).await,
    };
    let v1 = match options.api {
        Some(Api::V2) => false,
        None if checks
            .report
            .checks
            .iter()
            .any(|check| check.name == "status" && check.result == CheckResult::Fail) =>
        {
            // What did not answer would keep us waiting again.
            true
        }
        _ => v1::check(&client, options, &mut checks).await,
    };
    if !v1 && !v2 {
        checks.api = "socket";
        checks.fail("served", "the plugin serves neither v2.KeyManagementService nor v1beta1.KeyManagementService");
    }
    let Checks { mut report, .. } = checks;
    report.recommended_timeout_ms = latency::recommended_timeout_ms(&report.latency);
    Ok(report)
}

/// Whether the plugin does not have an API at all.
fn is_not_served(error: &Error) -> bool {
    error.code() == Some(tonic::Code::Unimplemented)
}

/// Makes round trips at once.
async fn check_concurrency<F: Future<Output = Result<bool, Error>>>(
    options: &Options,
    checks: &mut Checks,
    round_trip: impl Fn() -> F,
) {
    let at_once = options.concurrency;
    let results = futures::future::join_all((0..at_once).map(|_| round_trip())).await;
    let mut failed = results.into_iter().filter_map(|result| match result {
        Ok(true) => None,
        Ok(false) => Some("one was answered with the plaintext of another".to_owned()),
        Err(error) => Some(error.chain()),
    });
    match failed.next() {
        None => checks.pass("concurrency", format!("{at_once} round trips at once")),
        Some(first) => {
            let failed = 1 + failed.count();
            checks.fail("concurrency", format!("{failed} of {at_once} round trips at once failed: {first}"));
        }
    }
}
