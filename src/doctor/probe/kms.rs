use std::time::Duration;

use crate::config::{Endpoint, KmsApiVersion};
use crate::doctor::evidence::KmsProbe;
use crate::kms::check::{Api, Options, check};
use crate::report::CheckResult;

/// How many calls are timed.
const SAMPLES: u32 = 20;

/// Asks a KMS plugin: its status, and what it encrypts and decrypts, as `kms check` does. Of a plugin that no configuration names, what it
/// serves of KMS v1 does not matter when it serves KMS v2.
pub async fn kms(name: &str, endpoint: Endpoint, timeout: Duration, version: Option<KmsApiVersion>) -> KmsProbe {
    let mut probe = KmsProbe {
        name: name.to_owned(),
        endpoint: endpoint.to_string(),
        error: None,
        failed: Vec::new(),
        latency: Vec::new(),
        timeout,
    };
    let api = version.map(|version| match version {
        KmsApiVersion::V1 => Api::V1,
        KmsApiVersion::V2 => Api::V2,
    });
    let options = Options { endpoint, timeout, api, samples: SAMPLES, concurrency: 4, stored: Vec::new() };
    match check(&options).await {
        Err(error) => probe.error = Some(error.chain()),
        Ok(report) => {
            let serves_v2 = report.checks.iter().any(|check| check.api == "v2");
            let matters = |of: &str| version.is_some() || !serves_v2 || of != "v1beta1";
            let failed = report.checks.iter().filter(|check| check.result == CheckResult::Fail && matters(check.api));
            probe.failed =
                failed.map(|check| (format!("{}/{}", check.api, check.name), check.detail.clone())).collect();
            let micros = Duration::from_micros;
            let latency = report.latency.iter().filter(|call| matters(call.api));
            let latency = latency.map(|call| (call.method, micros(call.p50_us), micros(call.p99_us)));
            probe.latency = latency.collect();
        }
    }
    probe
}
