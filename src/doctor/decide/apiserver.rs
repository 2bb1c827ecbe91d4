//! The API server itself: admission, and what it does with what it has read.

use super::column::Column;
use super::facts::{Facts, Server};
use super::signals::{READ_VERBS, WRITE_VERBS};
use super::thresholds::{ADMISSION_SECONDS, EVER, FETCHED, FETCHED_FOR_ONE, FLOWCONTROL_WAIT_SECONDS};
use super::{Row, steps};
use crate::doctor::figure;
use crate::doctor::metrics::Labels;
use crate::report::Axis;

const WEBHOOKS: &str = "apiserver_admission_webhook_admission_duration_seconds";
const CONTROLLERS: &str = "apiserver_admission_controller_admission_duration_seconds";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "flowcontrol",
        axis: Axis::ApiserverAdmission,
        title: "requests wait for a seat of API priority and fairness, or are rejected; etcd and the transformers are fast",
        expected: false,
        symptom: |facts| facts.any_request_slow().and(behind_is_fast(facts)),
        confirm: |facts| {
            let wait = facts.slow(
                Server::Api,
                "apiserver_flowcontrol_request_wait_duration_seconds",
                |labels| Some(format!("wait in {}", labels.get("priority_level"))),
                |_| FLOWCONTROL_WAIT_SECONDS,
            );
            let rejected = |labels: Labels<'_>| {
                Some(format!("rejected in {} ({})", labels.get("priority_level"), labels.get("reason")))
            };
            wait.or(facts.counted(Server::Api, "apiserver_flowcontrol_rejected_requests_total", EVER, rejected))
        },
        next: |_| {
            steps(&[
                "who asks so much: `kubectl get --raw /debug/api_priority_and_fairness/dump_requests`",
                "give that client a flow schema of its own, or the priority level more shares",
            ])
        },
    },
    Row {
        id: "webhook",
        axis: Axis::ApiserverAdmission,
        title: "writes wait for an admission webhook or controller; etcd and the transformers are fast",
        expected: false,
        symptom: |facts| {
            let writes_only = facts.requests_slow(WRITE_VERBS).and(facts.requests_slow(READ_VERBS).not());
            writes_only.and(behind_is_fast(facts))
        },
        confirm: |facts| {
            let named = |labels: Labels<'_>| Some(format!("{} ({})", labels.get("name"), labels.get("operation")));
            let webhooks = facts.slow(Server::Api, WEBHOOKS, named, |_| ADMISSION_SECONDS);
            webhooks.or(facts.slow(Server::Api, CONTROLLERS, named, |_| ADMISSION_SECONDS))
        },
        next: |_| {
            steps(&[
                "the webhook or controller that is named: its pods, their CPU, and what they call",
                "a lower timeoutSeconds, and rules that match less, in its WebhookConfiguration",
            ])
        },
    },
    Row {
        id: "list-filtering",
        axis: Axis::ApiserverSerialization,
        title: "lists are slow because many objects are fetched for few that are returned; etcd is fast",
        expected: false,
        symptom: |facts| facts.requests_slow(&["LIST"]).and(facts.etcd_slow().not()),
        confirm: fetched_for_little,
        next: |_| {
            steps(&[
                "lists by label or field selector of such a resource: list by namespace, watch, or index it",
                "pages (limit=500), resourceVersion=0 where a slightly old answer does, and protobuf",
                "`kubectl top` of the API server: decoding and encoding is CPU",
            ])
        },
    },
];

/// E and T normal.
fn behind_is_fast(facts: Facts<'_>) -> Column {
    facts.etcd_slow().not().and(facts.transformations_slow().not())
}

/// Compares what lists fetch with what they return, resource by resource.
fn fetched_for_little(facts: Facts<'_>) -> Column {
    let mut all = Column::unknown(Server::Api.metrics());
    for target in facts.targets(Server::Api) {
        let sum = |names: [&str; 2]| {
            let mut sums = std::collections::BTreeMap::<String, f64>::new();
            for name in names {
                for (labels, value) in target.counters(name).filter(|(_, value)| value.is_finite()) {
                    // `resource` has the group in it before 1.34.
                    *sums.entry(format!("{} {}", labels.get("resource"), labels.get("group"))).or_default() += value;
                }
            }
            sums
        };
        let fetched =
            sum(["apiserver_storage_list_fetched_objects_total", "apiserver_cache_list_fetched_objects_total"]);
        if fetched.is_empty() {
            all = all.or(Column::unknown("apiserver_storage_list_fetched_objects_total"));
            continue;
        }
        let returned =
            sum(["apiserver_storage_list_returned_objects_total", "apiserver_cache_list_returned_objects_total"]);
        let worst = fetched
            .iter()
            .map(|(resource, fetched)| (resource, *fetched, returned.get(resource).copied().unwrap_or_default()))
            .max_by(|(_, a, x), (_, b, y)| (a - x).total_cmp(&(b - y)));
        let Some((resource, fetched, returned)) = worst else { continue };
        let (resource, source) = (resource.trim(), target.source());
        let figures = vec![
            figure::counted(format!("{resource} fetched by lists"), fetched, &source),
            figure::counted(format!("{resource} returned by lists"), returned, &source),
        ];
        all = all.or(Column::of(fetched >= FETCHED && fetched >= FETCHED_FOR_ONE * returned, figures));
    }
    all
}
