use std::time::{Duration, Instant};

use super::{Checks, Options};
use crate::report::KmsLatency;

/// Times calls one after the other. The first error ends it.
pub(super) async fn measure<F: Future<Output = Result<(), String>>>(
    method: &'static str,
    options: &Options,
    checks: &mut Checks,
    call: impl Fn() -> F,
) {
    let mut times = Vec::new();
    let begun = Instant::now();
    // A slow plugin is known to be slow after some calls.
    let enough = (options.timeout * 5).max(Duration::from_secs(5));
    for _ in 0..options.samples.max(1) {
        let start = Instant::now();
        if let Err(error) = call().await {
            return checks.fail(name_of(method), format!("{method} failed while it was timed: {error}"));
        }
        times.push(start.elapsed());
        if begun.elapsed() > enough && times.len() >= 5 {
            break;
        }
    }
    times.sort_unstable();
    let latency = KmsLatency {
        api: checks.api,
        method,
        calls: times.len() as u64,
        p50_us: percentile(&times, 50),
        p95_us: percentile(&times, 95),
        p99_us: percentile(&times, 99),
        max_us: percentile(&times, 100),
    };
    let p99 = Duration::from_micros(latency.p99_us);
    let text = format!(
        "p50 {}, p95 {}, p99 {} of {} calls; the timeout is {:?}",
        millis(latency.p50_us),
        millis(latency.p95_us),
        millis(latency.p99_us),
        latency.calls,
        options.timeout
    );
    let name = name_of(method);
    if p99 > options.timeout {
        checks.fail(name, format!("{text}: calls would fail"));
    } else if p99 > options.timeout / 2 {
        checks.warn(name, format!("{text}: there is little room"));
    } else {
        checks.pass(name, text);
    }
    checks.report.latency.push(latency);
}

fn name_of(method: &str) -> &'static str {
    if method == "Encrypt" { "latency-encrypt" } else { "latency-decrypt" }
}

fn percentile(sorted: &[Duration], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

fn millis(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10)
}

/// Ten times what nearly all calls take, at least a second: what is waited for in vain is not many times that.
pub(super) fn recommended_timeout_ms(latencies: &[KmsLatency]) -> Option<u64> {
    let slowest = latencies.iter().map(|latency| latency.p99_us).max()?;
    Some((slowest / 100).div_ceil(1000).max(1) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let times: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!([50, 95, 99, 100].map(|percent| percentile(&times, percent)), [100, 190, 198, 200]);
        assert_eq!(percentile(&times[..1], 99), 1);
        assert_eq!(percentile(&[], 99), 0);
        assert_eq!(millis(12_345), "12.34 ms");
    }

    #[test]
    fn a_timeout_has_room_and_is_whole_seconds() {
        let latency =
            |p99_us| KmsLatency { api: "v2", method: "Decrypt", calls: 1, p50_us: 0, p95_us: 0, p99_us, max_us: 0 };
        assert_eq!(recommended_timeout_ms(&[latency(200)]), Some(1000));
        assert_eq!(recommended_timeout_ms(&[latency(200), latency(450_000)]), Some(5000));
        assert_eq!(recommended_timeout_ms(&[]), None);
    }
}
