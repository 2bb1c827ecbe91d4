use std::time::Duration;

use crate::config::Endpoint;
use crate::doctor::evidence::KmsProbe;
use crate::kms::check::{Options, check};
use crate::report::CheckResult;

/// How many calls are timed.
const SAMPLES: u32 = 20;

/// Asks a KMS plugin: its status, and what it encrypts and decrypts, as `kms check` does.
pub async fn kms(name: &str, endpoint: Endpoint, timeout: Duration) -> KmsProbe {
    let mut probe = KmsProbe {
        name: name.to_owned(),
        endpoint: endpoint.to_string(),
        error: None,
        failed: Vec::new(),
        latency: Vec::new(),
        timeout,
    };
    let options = Options { endpoint, timeout, api: None, samples: SAMPLES, concurrency: 4, stored: Vec::new() };
    match check(&options).await {
        Err(error) => probe.error = Some(error.chain()),
        Ok(report) => {
            let failed = report.checks.into_iter().filter(|check| check.result == CheckResult::Fail);
            probe.failed = failed.map(|check| (format!("{}/{}", check.api, check.name), check.detail)).collect();
            let micros = Duration::from_micros;
            let latency = report.latency.iter().map(|call| (call.method, micros(call.p50_us), micros(call.p99_us)));
            probe.latency = latency.collect();
        }
    }
    probe
}
