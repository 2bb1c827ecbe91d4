//! What somebody sends for `doctor`, as each of the files that it reads, and as two readings of one server: it ends, and every
//! quantile is between the ends of the buckets.
#![no_main]

use atrest::doctor::metrics::{Metrics, Scrape, targets};
use atrest::doctor::{ApiserverManifest, Evidence, KmsSocket, LogSummary, diagnose, explain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let half = data.len() / 2;
    let scrape = |bytes: &[u8]| Scrape { name: String::new(), metrics: Metrics::parse(bytes), at: None };
    let readings = || targets(vec![scrape(&data[..half]), scrape(&data[half..])]);
    let log = LogSummary::read("", &mut &*data).ok();
    let report = diagnose(Evidence {
        apiservers: readings(),
        etcd_metrics: readings(),
        log,
        ..Evidence::default()
    });
    assert!(report.answer.is_some() || report.findings.is_empty());
    for target in readings() {
        let histogram = target.histogram("h", |_| true);
        if let (Some(low), Some(high)) = (histogram.quantile(0.1), histogram.quantile(0.9)) {
            assert!(low.value <= high.value || low.at_least);
        }
    }
    if let Ok(manifest) = ApiserverManifest::parse(data) {
        let socket = KmsSocket { provider: String::new(), path: "/run/kms.sock".into(), plugin: None };
        let _ = manifest.problems(&[socket]);
    }
    let _ = explain(&String::from_utf8_lossy(data));
});
