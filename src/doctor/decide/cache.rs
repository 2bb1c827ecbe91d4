//! The watch cache of the API server.

use super::facts::Server;
use super::thresholds::{CACHE_WAIT_SECONDS, CUT, EVER, FILLED_AGAIN, MUCH, OFTEN};
use super::{Row, seen, steps};
use crate::doctor::metrics::Labels;
use crate::report::Axis;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "cache-reinitializing",
        axis: Axis::ApiserverCache,
        title: "a watch cache fills again and again: its lists and watches are answered 429",
        expected: false,
        symptom: |facts| facts.answered("429", &["LIST", "WATCH"], EVER).or(facts.logged(&["cache-initializing"])),
        confirm: |facts| {
            let filled =
                facts.counted(Server::Api, "apiserver_watch_cache_initializations_total", FILLED_AGAIN, |labels| {
                    Some(format!("cache of {} filled", resource_of(labels)))
                });
            filled.or(facts.logged(&["cache-initializing"]))
        },
        next: |_| {
            steps(&[
                "the reason: `unexpected ListAndWatch error` in the API server's log (`atrest doctor --log FILE`)",
                "one value that does not open is enough: `atrest verify --encryption-provider-config FILE --resource …`",
            ])
        },
    },
    Row {
        id: "cache-behind",
        axis: Axis::ApiserverCache,
        title: "watch caches do not reach the revisions that are asked for: 504, or reads that go past them",
        expected: false,
        symptom: |facts| facts.answered("504", &[], OFTEN).or(facts.logged(&["resource-version-too-large"])),
        confirm: |facts| {
            let waits = facts.slow(
                Server::Api,
                "apiserver_watch_cache_read_wait_seconds",
                |_| Some("wait for the cache".to_owned()),
                |_| CACHE_WAIT_SECONDS,
            );
            let fallback = |labels: Labels<'_>| {
                labels
                    .is("fallback", "true")
                    .then(|| format!("consistent reads of {} past the cache", resource_of(labels)))
            };
            waits.or(facts.counted(Server::Api, "apiserver_watch_cache_consistent_read_total", MUCH, fallback))
        },
        next: |_| {
            steps(&[
                "etcd's watches: `atrest doctor --etcd-metrics A --etcd-metrics B`",
                "etcd's version: progress that a cache asks for comes since 3.4.31 and 3.5.13",
                "after a restore of etcd: restart API servers and controllers, which remember later revisions",
            ])
        },
    },
    Row {
        id: "watchers-terminated",
        axis: Axis::ApiserverCache,
        title: "the API server cuts watches of clients that do not keep up",
        expected: false,
        symptom: seen,
        confirm: |facts| {
            facts.counted(Server::Api, "apiserver_terminated_watchers_total", CUT, |labels| {
                Some(format!("watches of {} cut", resource_of(labels)))
            })
        },
        next: |_| {
            steps(&[
                "which client is slow: its CPU, or a handler that blocks its informer",
                "whether events come in bursts: a rotation changes every object once (`atrest rekey --rate N`)",
            ])
        },
    },
    Row {
        id: "cache-inconsistent",
        axis: Axis::ApiserverCache,
        title: "a watch cache holds something else than etcd",
        expected: false,
        symptom: seen,
        confirm: |facts| {
            facts.counted(Server::Api, "apiserver_storage_consistency_checks_total", EVER, |labels| {
                labels.is("status", "failure").then(|| format!("failed checks of {}", resource_of(labels)))
            })
        },
        next: |_| {
            steps(&[
                "who writes to etcd directly, and changes several objects in one transaction?",
                "restart that API server: its cache is read anew",
                "report it to Kubernetes when nobody does",
            ])
        },
    },
];

/// `secrets`, `deployments.apps`.
pub(super) fn resource_of(labels: Labels<'_>) -> String {
    let (resource, group) = (labels.get("resource"), labels.get("group"));
    match (group.is_empty(), resource.is_empty()) {
        (_, true) => "an unnamed resource".to_owned(),
        (true, _) => resource.into_owned(),
        (false, _) => format!("{resource}.{group}"),
    }
}
