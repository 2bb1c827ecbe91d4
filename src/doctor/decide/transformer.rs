//! What is stored and how it opens: keys, codec, KMS.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::resource_of;
use super::column::{Column, State};
use super::facts::{Facts, Server};
use super::signals::{READ_VERBS, T};
use super::thresholds::{EVER, FAILED_SHARE, KMS_CALL_SECONDS, OFTEN};
use super::{Row, seen, steps};
use crate::doctor::figure;
use crate::doctor::metrics::{Labels, Target};
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
    &["kms-never-healthy", "kms-key-id", "kms-protocol-error", "kms-timeout", "kms-unavailable", "kms-decrypt"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "transformation-failed",
        axis: Axis::Transformer,
        title: "stored values do not open: a key is missing, or a value is of another key, moved or damaged",
        expected: false,
        symptom: |facts| {
            let (requests, logged) = (failed_requests(facts), facts.logged(OF_A_VALUE));
            // A log without such a text may be of another API server.
            let is_open = requests.state == State::Unknown && !facts.targets(Server::Api).is_empty();
            if is_open && !logged.holds() { requests } else { requests.or(logged) }
        },
        confirm: |facts| {
            let reads = if failed_requests(facts).holds() { failed_reads(facts) } else { many_failed_reads(facts) };
            reads.or(facts.logged(OF_A_VALUE))
        },
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
        id: "kms-socket",
        axis: Axis::Kms,
        title: "nothing listens on the socket of a KMS plugin",
        expected: false,
        symptom: seen,
        confirm: |facts| no_listener(facts).or(facts.logged(&["kms-socket"])),
        next: |_| {
            steps(&[
                "start the plugin: `crictl ps -a`, or `systemctl status`, and its log say why it does not run",
                "the path: `ls -l` on it, and compare it with `endpoint` of the configuration and with what the plugin is started with",
                "in a static pod: is the folder of the socket mounted? `atrest doctor --manifest … --encryption-provider-config FILE`",
            ])
        },
    },
    Row {
        id: "kms",
        axis: Axis::Kms,
        title: "the KMS plugin, or what is behind it, is slow or does not answer",
        expected: false,
        symptom: |facts| {
            facts.transformations_slow().or(not_answered(facts)).or(kms_answers_badly(facts)).or(facts.logged(OF_A_KMS))
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
            let seen = slow.or(failed).or(kms_answers_badly(facts)).or(facts.logged(OF_A_KMS));
            let has_latency = facts.targets(Server::Api).iter().any(|target| target.has_histogram(KMS_LATENCY));
            if seen.holds() || has_latency {
                return seen;
            }
            // Without the plugin's own figures the transformations point to it.
            let by_kms = |labels: Labels<'_>| {
                let prefix = labels.get("transformer_prefix");
                prefix.starts_with("k8s:enc:kms:").then(|| format!("{} by {prefix}", labels.get("transformation_type")))
            };
            let transformations = facts.slow(Server::Api, T, by_kms, |_| KMS_CALL_SECONDS);
            let points = [transformations, not_answered(facts)].into_iter().filter(Column::holds);
            match points.reduce(Column::or) {
                Some(points) => Column::unknown(KMS_LATENCY).with(points),
                None => seen,
            }
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

/// Reads of values by a provider: those that failed, and those that did not.
#[derive(Default)]
struct Reads {
    failed: f64,
    opened: f64,
    statuses: BTreeSet<String>,
}

/// Of each resource and prefix.
fn reads(target: &Target) -> BTreeMap<(String, String), Reads> {
    let mut reads: BTreeMap<(String, String), Reads> = BTreeMap::new();
    for (labels, value) in target.counters(OPERATIONS).filter(|(_, value)| value.is_finite() && *value > 0.0) {
        let of = || (labels.get("resource").into_owned(), labels.get("transformer_prefix").into_owned());
        if is_failed_read(labels) {
            let reads = reads.entry(of()).or_default();
            reads.failed += value;
            reads.statuses.insert(labels.get("status").into_owned());
        } else if labels.is("transformation_type", "from_storage") && labels.is("status", "OK") {
            reads.entry(of()).or_default().opened += value;
        }
    }
    reads.retain(|_, reads| reads.failed > 0.0);
    reads
}

/// Reads that failed, so many of all that a second key of a rotation does not explain it; between two readings, any.
fn many_failed_reads(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown(Server::Api.metrics());
    for target in facts.targets(Server::Api) {
        let source = target.source();
        let is_much = |reads: &Reads| target.is_window() || reads.failed > FAILED_SHARE * (reads.failed + reads.opened);
        let figures: Vec<_> = reads(target)
            .into_iter()
            .filter(|(_, reads)| is_much(reads))
            .map(|((resource, prefix), reads)| {
                let statuses = reads.statuses.into_iter().collect::<Vec<_>>().join(", ");
                let tried = reads.failed + reads.opened;
                figure::counted(
                    format!("{resource} not opened of {tried:.0}, prefix {prefix}, {statuses}"),
                    reads.failed,
                    &source,
                )
            })
            .collect();
        all = all.or(Column::of(!figures.is_empty(), figures));
    }
    all
}

/// Requests that were answered 500, for resources of which values were not opened. That a value is tried with a key that does not
/// open it is normal during a rotation, and so is a 500 now and then; together they are not. Without the requests it is not known, and
/// neither when more failed than were opened: a watch cache that does not fill answers 429.
fn failed_requests(facts: Facts<'_>) -> Column {
    const REQUESTS: &str = "apiserver_request_total";
    let mut failed = BTreeSet::new();
    let mut is_open = false;
    for target in facts.targets(Server::Api) {
        for ((resource, prefix), reads) in reads(target) {
            let by_another_key = prefix.starts_with("k8s:enc:") && reads.failed <= reads.opened;
            is_open |= !target.last().has(REQUESTS) || !by_another_key;
            failed.insert(resource);
        }
    }
    let answered = facts.counted(Server::Api, REQUESTS, EVER, |labels| {
        let resource = resource_of(labels);
        (labels.is("code", "500") && failed.contains(&resource))
            .then(|| format!("500 to {} {resource}", labels.get("verb")))
    });
    if is_open && !answered.holds() {
        return Column::unknown(
            "requests for these resources that fail (500 in apiserver_request_total, or a log by --log)",
        );
    }
    answered
}

fn is_failed_read(labels: Labels<'_>) -> bool {
    let status = labels.get("status");
    labels.is("transformation_type", "from_storage") && status != "OK" && !is_unavailable(&status)
}

/// Transformations that failed because of a KMS.
fn not_answered(facts: Facts<'_>) -> Column {
    facts.counted(Server::Api, OPERATIONS, OFTEN, |labels| {
        let status = labels.get("status");
        // Nothing but a KMS can fail to seal.
        let not_sealed = labels.is("transformation_type", "to_storage") && status != "OK";
        (is_unavailable(&status) || not_sealed).then(|| format!("{} {status}", labels.get("transformation_type")))
    })
}

/// Whether nobody listens on a socket, as far as the error tells.
fn is_no_listener(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    ["no such file", "no such socket", "connection refused"].iter().any(|text| error.contains(text))
}

fn no_listener(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown("a KMS plugin (--kms-endpoint, --encryption-provider-config)");
    for probe in &facts.evidence.kms {
        let error = probe.error.iter().filter(|error| is_no_listener(error));
        let source = format!("{} at {}", probe.name, probe.endpoint);
        let figures: Vec<_> = error.map(|error| figure::text("socket", error, &source)).collect();
        all = all.or(Column::of(!figures.is_empty(), figures));
    }
    all
}

/// What plugins answered here.
fn kms_answers_badly(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown("a KMS plugin (--kms-endpoint, --encryption-provider-config)");
    for probe in &facts.evidence.kms {
        let source = format!("{} at {}", probe.name, probe.endpoint);
        let column = match &probe.error {
            Some(error) if is_no_listener(error) => Column::of(false, Vec::new()),
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
