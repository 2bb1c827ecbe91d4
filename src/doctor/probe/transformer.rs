use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::doctor::evidence::{Timing, TransformerSpeed};
use crate::transformer::{DataContext, ResourceTransformers};

/// The size of the value, that of a usual Secret.
const BYTES: usize = 1024;

/// How often it is sealed and opened.
const CALLS: usize = 200;

/// How fast the provider that writes each resource is on this machine. What a KMS must be asked for is left out: nothing is known of its key.
#[must_use]
pub fn transformers(transformers: &ResourceTransformers) -> Vec<TransformerSpeed> {
    let mut seen = BTreeSet::new();
    let context = DataContext::new(b"/registry/secrets/atrest/doctor");
    let plaintext = [b'x'; BYTES];
    let mut speeds = Vec::new();
    for (_, list) in transformers.lists() {
        let label = list.write_key().to_string();
        if !seen.insert(label.clone()) {
            continue;
        }
        let mut sealed = Vec::new();
        let seal = times(|| {
            sealed.clear();
            list.seal(&plaintext, context, &mut sealed).is_ok()
        });
        let open = times(|| list.open(&sealed, context).is_ok());
        if let (Some(seal), Some(open)) = (seal, open) {
            speeds.push(TransformerSpeed { label, bytes: BYTES as u64, seal, open });
        }
    }
    speeds
}

/// Nothing when it does not work.
fn times(mut call: impl FnMut() -> bool) -> Option<Timing> {
    let mut times: Vec<Duration> = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        if !call() {
            return None;
        }
        times.push(begun.elapsed());
    }
    Some(Timing::new(times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn providers_with_keys_are_timed_and_a_kms_is_left_out() {
        let file = b"kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
            - resources: [secrets, configmaps]\n  providers:\n  - secretbox: {keys: [{name: a, secret: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=}]}\n\
            - resources: [pods]\n  providers:\n  - kms: {apiVersion: v2, name: k, endpoint: 'unix:///nowhere'}\n";
        let loaded = config::load(file, &config::Options::default()).unwrap();
        let built = ResourceTransformers::from_configurations(&[loaded.config]).unwrap();
        let speeds = transformers(&built);
        let labels: Vec<_> = speeds
            .iter()
            .map(|speed| (speed.label.as_str(), speed.bytes, speed.seal.calls(), speed.open.calls()))
            .collect();
        assert_eq!(labels, [("secretbox/a", 1024, CALLS, CALLS)]);
    }
}
