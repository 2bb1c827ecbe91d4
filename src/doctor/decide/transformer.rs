//! What is stored and how it opens: keys, codec, KMS.

use std::collections::BTreeSet;

use super::cache::resource_of;
use super::column::Column;
use super::facts::{Facts, Server};
use super::signals::READ_VERBS;
use super::thresholds::{EVER, KMS_CALL_SECONDS, OFTEN};
use super::{Row, steps};
use crate::doctor::figure;
use crate::doctor::metrics::Labels;
use crate::report::Axis;

const OPERATIONS: &str = "apiserver_storage_transformation_operations_total";
const KMS_LATENCY: &str = "apiserver_envelope_encryption_kms_operations_latency_seconds";
const CACHE_SIZE: &str = "apiserver_envelope_encryption_dek_source_cache_size";

/// The explanations of texts that are about one value.
const OF_A_VALUE: &[&str] = &[
    "encrypted-read-as-object",
    "no-matching-prefix",
    "no-matching-key",
    "identity-encrypted",
    "kms-v1-data",
    "invalid-padding",
    "authentication-failed",
    "secretbox-failed",
    "too-short",
    "newer-format",
    "not-transformable",
    "unable-to-transform",
];

/// The explanations of texts that are about a plugin.
const OF_A_KMS: &[&str] =
    &["kms-never-healthy", "kms-key-id", "kms-protocol-error", "kms-socket", "kms-timeout", "kms-decrypt"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "transformation-failed",
        axis: Axis::Transformer,
        title: "stored values do not open: a key is missing, or a value is of another key, moved or damaged",
        expected: false,
        symptom: |facts| failed_requests(facts).or(facts.logged(OF_A_VALUE)),
        confirm: |facts| failed_reads(facts).or(facts.logged(OF_A_VALUE)),
        next: |facts| {
            let unknown = failed_reads(facts).evidence.iter().any(|figure| figure.what.contains("prefix unknown"));
            let missing =
                "prefix unknown: no provider fits; `atrest scan` says which provider the values name, without a key";
            let wrong = "the API server's own prefix: wrong key under that name, a moved value, or damage; some are normal during a rotation \
                         with two keys of a provider";
            let first = if unknown { missing } else { wrong };
            steps(&[
                first,
                "`atrest verify --encryption-provider-config FILE`: each value that does not open, and why",
                "delete nothing before that",
            ])
        },
    },
    Row {
        id: "decode-failed",
        axis: Axis::ApiserverSerialization,
        title: "values open, and what is in them is no object that the API server knows",
        expected: false,
        symptom: |facts| {
            let decode = facts.counted(Server::Api, "apiserver_storage_decode_errors_total", EVER, |labels| {
                Some(format!("{} not decoded", resource_of(labels)))
            });
            decode.or(facts.logged(&["not-decodable"]))
        },
        confirm: |facts| match facts.targets(Server::Api).is_empty() {
            true => facts.logged(&["not-decodable"]),
            false => failed_reads(facts).not(),
        },
        next: |_| {
            steps(&[
                "`atrest verify --encryption-provider-config FILE`: `garbage` or `identity-mismatch` is a wrong key or damage without authentication",
                "`atrest get … -o yaml` shows the apiVersion: was it removed with this release?",
            ])
        },
    },
    Row {
        id: "kms",
        axis: Axis::Kms,
        title: "the KMS plugin, or what is behind it, is slow or does not answer",
        expected: false,
        symptom: |facts| {
            let unavailable = facts.counted(Server::Api, OPERATIONS, OFTEN, |labels| {
                let status = labels.get("status");
                is_unavailable(&status).then(|| format!("{} {status}", labels.get("transformation_type")))
            });
            facts.transformations_slow().or(unavailable).or(kms_answers_badly(facts)).or(facts.logged(OF_A_KMS))
        },
        confirm: |facts| {
            let method = |labels: Labels<'_>| {
                let method = labels.get("method_name");
                let method = method.rsplit('/').next().unwrap_or_default();
                Some(format!("{} of {}", method, labels.get("provider_name")))
            };
            let slow = facts.slow(Server::Api, KMS_LATENCY, method, |_| KMS_CALL_SECONDS);
            let failed = facts.counted(
                Server::Api,
                "apiserver_envelope_encryption_kms_operations_latency_seconds_count",
                OFTEN,
                |labels| {
                    let code = labels.get("grpc_status_code");
                    (code != "OK" && !code.is_empty())
                        .then(|| Some(format!("{} answered {code}", method(labels)?)))
                        .flatten()
                },
            );
            slow.or(failed).or(kms_answers_badly(facts)).or(facts.logged(OF_A_KMS))
        },
        next: |_| {
            steps(&[
                "`atrest kms check --endpoint unix:///…` on that control-plane node: is it the plugin, or the service behind it?",
                "the plugin's own log and metrics; throttling by the service shows there",
                "of KMS v1: more objects than `cachesize` mean a call for each read",
            ])
        },
    },
    Row {
        id: "kms-cold-cache",
        axis: Axis::Kms,
        title: "reads are slow while the data keys of a KMS are fetched once each, as after a restart",
        expected: true,
        symptom: |facts| facts.requests_slow(READ_VERBS).and(facts.transformations_slow().not()),
        confirm: cold_cache,
        next: |_| {
            steps(&[
                "wait: one call for each DEK source, then they are cached",
                "`atrest rekey` leaves a few DEK sources in place of many",
            ])
        },
    },
];

fn is_unavailable(status: &str) -> bool {
    matches!(status, "Unavailable" | "DeadlineExceeded")
}

/// Reads that failed for another reason than a KMS that does not answer.
fn failed_reads(facts: Facts<'_>) -> Column {
    facts.counted(Server::Api, OPERATIONS, EVER, |labels| {
        is_failed_read(labels).then(|| {
            let (resource, prefix) = (labels.get("resource"), labels.get("transformer_prefix"));
            format!("{resource} not opened, prefix {prefix}, {}", labels.get("status"))
        })
    })
}

/// Requests that were answered 500, for resources of which values were not opened. That a value is tried with a key that does not
/// open it is normal during a rotation, and so is a 500 now and then; together they are not.
fn failed_requests(facts: Facts<'_>) -> Column {
    let mut failed = BTreeSet::new();
    for target in facts.targets(Server::Api) {
        let not_opened = target.counters(OPERATIONS).filter(|(labels, value)| *value > 0.0 && is_failed_read(*labels));
        failed.extend(not_opened.map(|(labels, _)| labels.get("resource").into_owned()));
    }
    facts.counted(Server::Api, "apiserver_request_total", EVER, |labels| {
        let resource = resource_of(labels);
        (labels.is("code", "500") && failed.contains(&resource))
            .then(|| format!("500 to {} {resource}", labels.get("verb")))
    })
}

fn is_failed_read(labels: Labels<'_>) -> bool {
    let status = labels.get("status");
    labels.is("transformation_type", "from_storage") && status != "OK" && !is_unavailable(&status)
}

/// What plugins answered here.
fn kms_answers_badly(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown("a KMS plugin (--kms-endpoint, --encryption-provider-config)");
    for probe in &facts.evidence.kms {
        let source = format!("{} at {}", probe.name, probe.endpoint);
        let column = match &probe.error {
            Some(error) => Column::of(true, vec![figure::text("socket", error, &source)]),
            None => {
                let slow = probe.latency.iter().filter(|(_, _, p99)| *p99 > probe.timeout / 2);
                let figures: Vec<_> =
                    slow.map(|(method, _, p99)| figure::duration(format!("p99 of {method}"), *p99, &source)).collect();
                Column::of(!figures.is_empty(), figures)
            }
        };
        all = all.or(column);
    }
    all
}

/// The cache of DEK sources holds little more than was decrypted between the two readings: it was filled in that time.
fn cold_cache(facts: Facts<'_>) -> Column {
    let mut all = facts.window(Server::Api);
    if !all.holds() {
        return all;
    }
    all = Column::unknown(CACHE_SIZE);
    let decrypts =
        facts.total(Server::Api, "apiserver_envelope_encryption_kms_operations_latency_seconds_count", |labels| {
            labels.get("method_name").ends_with("Decrypt")
        });
    for (decrypts, target) in decrypts.into_iter().filter(|(_, target)| target.is_window()) {
        let Some(size) = target.last().samples(CACHE_SIZE).map(|(_, size)| size).reduce(f64::max) else { continue };
        let figures = vec![
            figure::counted("Decrypt calls of KMS plugins", decrypts, target.source()),
            figure::counted("cached DEK sources", size, &target.name),
        ];
        all = all.or(Column::of(decrypts >= 10.0 && size <= 2.0 * decrypts, figures));
    }
    all
}
