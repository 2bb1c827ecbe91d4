//! What API servers answer, and their watch caches.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const METRICS: &str = "`atrest doctor --apiserver-metrics A --apiserver-metrics B`, two readings a minute apart";
const VERIFY: &str =
    "`atrest verify --encryption-provider-config FILE`: a single value that does not open keeps a cache from filling";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "cache-initializing",
        axis: Axis::ApiserverCache,
        patterns: &[
            Pattern::Text("storage is (re)initializing"),
            Pattern::Text("storage is reinitializing"),
            Pattern::Text("unexpected listandwatch error"),
            Pattern::All(&["failed to list", "cacher"]),
            Pattern::All(&["cacher", "unexpected error"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "The watch cache of a resource is not ready: lists and watches are answered 429 with Retry-After. It fills again after every failure, and ends \
                  all watches of the resource each time. GETs go to etcd and work.",
        causes: &[
            "one value of the resource that cannot be opened or decoded: it fails anew every second",
            "etcd does not answer",
            "the API server has just started",
        ],
        next: &[
            "the line `unexpected ListAndWatch error` in the API server's log says why: `atrest doctor --log FILE`",
            VERIFY,
        ],
    },
    Entry {
        id: "continue-expired",
        axis: Axis::ApiserverCache,
        patterns: &[
            Pattern::Text("the provided continue parameter is too old"),
            Pattern::Text("provided continue parameter"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A list in pages took longer than etcd keeps history (5 to 10 minutes), so its next page has no revision to be read at: 410 Expired. The answer \
                  has another continue token that goes on at the latest revision.",
        causes: &["a slow client, or pages that are very small"],
        next: &[
            "go on with the token in metadata.continue of the answer, where a mix of two revisions does no harm",
            "larger pages (--chunk-size)",
        ],
    },
    Entry {
        id: "resource-version-too-old",
        axis: Axis::ApiserverCache,
        patterns: &[
            Pattern::Text("too old resource version"),
            Pattern::Text("the resourceversion for the provided list is too old"),
            Pattern::Text("the resourceversion for the provided watch is too old"),
            Pattern::Text("resource version is too old"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A watch or list was to begin at a revision that the watch cache, or etcd, no longer has: 410 Gone. The client lists anew; that is how it is meant.",
        causes: &[
            "a client that was away",
            "so many changes that the cache's window is short: a rotation changes every object once",
            "an API server that has just started",
        ],
        next: &["nothing, when it is seldom", METRICS, "slow a rotation down: `atrest rekey --rate N`"],
    },
    Entry {
        id: "resource-version-too-large",
        axis: Axis::ApiserverCache,
        patterns: &[Pattern::Text("too large resource version"), Pattern::Text("resourceversiontoolarge")],
        in_logs: true,
        vague: false,
        meaning: "A client asked for a revision that this API server's watch cache has not reached within 3 s: 504 Timeout, with a cause ResourceVersionTooLarge.",
        causes: &[
            "the cache lags behind etcd: its watch is slow, or etcd sends no progress (before 3.4.31 and 3.5.13)",
            "etcd was restored from a snapshot, and clients remember later revisions",
            "API servers of two clusters behind one address",
        ],
        next: &[
            METRICS,
            "after a restore: restart API servers and controllers",
            "`atrest doctor --endpoints …`: the version and the revision of each member",
        ],
    },
    Entry {
        id: "prev-kv",
        axis: Axis::ApiserverCache,
        patterns: &[Pattern::Text("prevkv=nil"), Pattern::Text("etcd event received with prevkv")],
        in_logs: true,
        vague: false,
        meaning: "A watch began exactly at the compacted revision: etcd sends the event, and the value before it is gone. The client gets 500 in place of 410, and lists anew.",
        causes: &["a client that was away for as long as etcd keeps history"],
        next: &["nothing: it happens once for each such watch"],
    },
    Entry {
        id: "webhook",
        axis: Axis::ApiserverAdmission,
        patterns: &[
            Pattern::Without(&["failed calling webhook"], &["failing open"]),
            Pattern::Without(&["failed to call webhook"], &["failing open"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "An admission webhook did not answer, and its failurePolicy is Fail.",
        causes: &["its pods do not run, or cannot be reached", "its certificate"],
        next: &[
            "the webhook that the text names: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`",
            METRICS,
        ],
    },
    Entry {
        id: "webhook-open",
        axis: Axis::ApiserverAdmission,
        patterns: &[Pattern::All(&["webhook", "failing open"])],
        in_logs: true,
        vague: false,
        meaning: "An admission webhook did not answer, and its failurePolicy is Ignore: the request went on without it, after its timeoutSeconds.",
        causes: &["its pods do not run, or cannot be reached", "its certificate"],
        next: &[
            "what it should have checked or changed was not: look at what was written meanwhile",
            "the webhook that the text names: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`",
            "a lower timeoutSeconds: each request waits that long for it",
        ],
    },
    Entry {
        id: "request-not-decodable",
        axis: Axis::ApiserverSerialization,
        patterns: &[Pattern::Text("cannot be handled as a")],
        in_logs: true,
        vague: false,
        meaning: "The object that was sent with the request is not what its kind has: 400. Nothing stored is involved, and no encryption. `illegal base64`: \
                  a value below `data` of the Secret in that manifest is not base64, from the byte that is named.",
        causes: &[
            "`data` with plain text in it: base64 is meant, or `stringData`",
            "base64 that was wrapped, cut, or copied with a quote or a blank",
        ],
        next: &[
            "write plain text below `stringData`, or make the value with `base64 -w 0`",
            "`kubectl apply --dry-run=server -f FILE` tries it without writing",
        ],
    },
    Entry {
        id: "illegal-base64",
        axis: Axis::ApiserverSerialization,
        patterns: &[Pattern::Text("illegal base64 data at input byte")],
        in_logs: true,
        vague: true,
        meaning: "Something that should be base64 is not, from the byte that is named (counted from 0). Byte 3 alone would be ciphertext that was taken for an \
                  object; any other byte is a text that somebody has written.",
        causes: &[
            "a Secret in a manifest, with plain text or wrapped base64 below `data`",
            "a `secret` of an EncryptionConfiguration",
            "base64 with the alphabet of URLs (`-` and `_`), without its padding, or with a line end in it",
        ],
        next: &[
            "of a manifest: `kubectl apply --dry-run=server -f FILE`; plain text belongs below `stringData`",
            "of an EncryptionConfiguration: `atrest config check FILE`",
        ],
    },
    Entry {
        id: "quota-evaluation",
        axis: Axis::ApiserverAdmission,
        patterns: &[Pattern::Text("resource quota evaluation timed out")],
        in_logs: true,
        vague: false,
        meaning: "Admission counts what a namespace uses before it lets an object in, and did not come to that within 10 s. No transformer is involved.",
        causes: &[
            "very many creates in one namespace at once",
            "etcd or the API server is slow: the ResourceQuota is written with each of them",
        ],
        next: &["`kubectl get resourcequota -n NAMESPACE`, and who creates so much there", METRICS],
    },
    Entry {
        id: "conflict",
        axis: Axis::ApiserverAdmission,
        patterns: &[
            Pattern::Text("the object has been modified"),
            Pattern::Text("please apply your changes to the latest version"),
        ],
        in_logs: true,
        vague: false,
        meaning: "409 Conflict: somebody else has changed the object since the client read it. Nothing is wrong: the client reads again and tries again.",
        causes: &["two controllers that change one object", "a rotation under way, which changes each object once"],
        next: &["nothing, unless the same object is in it all the time: then two controllers fight over it"],
    },
    Entry {
        id: "body-too-large",
        axis: Axis::RequestLimit,
        patterns: &[
            Pattern::Text("request entity too large"),
            Pattern::Text("limit is 3145728"),
            Pattern::Text("http: request body too large"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The body of a request is larger than the API server takes, 3 MiB.",
        causes: &["an object with files in it"],
        next: &["split the object; etcd takes 1.5 MiB in any case"],
    },
    Entry {
        id: "status-410",
        axis: Axis::ApiserverCache,
        patterns: &[Pattern::Status("410"), Pattern::Text("reason:expired"), Pattern::Text("\"expired\"")],
        in_logs: false,
        vague: true,
        meaning: "410 Gone, reason Expired: a list or watch at a revision that is no longer kept. The client lists anew.",
        causes: &[
            "history is compacted after 5 to 10 minutes",
            "the window of the watch cache is short, as while very much changes",
        ],
        next: &["nothing, when it is seldom", METRICS],
    },
    Entry {
        id: "status-429",
        axis: Axis::ApiserverAdmission,
        patterns: &[
            Pattern::Status("429"),
            Pattern::Text("too many requests, please try again later"),
            Pattern::Text("the server has received too many requests"),
        ],
        in_logs: false,
        vague: true,
        meaning: "429 Too Many Requests: priority and fairness has no seat for the request, or the watch cache of the resource is not ready (then the text says \
                  `storage is (re)initializing`).",
        causes: &[
            "a client that lists all the time",
            "requests that take long, and hold their seats",
            "a watch cache that cannot fill",
        ],
        next: &[METRICS],
    },
    Entry {
        id: "status-504",
        axis: Axis::ApiserverCache,
        patterns: &[
            Pattern::Status("504"),
            Pattern::Text("request did not complete within"),
            Pattern::Text("gateway timeout"),
        ],
        in_logs: false,
        vague: true,
        meaning: "504: the API server did not finish within its time (60 s), or, with the cause ResourceVersionTooLarge, its watch cache does not reach a revision.",
        causes: &["etcd or a KMS that is slow", "a list that is very large", "a watch cache that lags behind"],
        next: &[METRICS],
    },
    Entry {
        id: "status-500",
        axis: Axis::Transformer,
        patterns: &[Pattern::Status("500"), Pattern::Text("internal error occurred"), Pattern::Text("internalerror")],
        in_logs: false,
        vague: true,
        meaning: "500: what etcd or a transformer says is passed on, in the text behind it. For one object alone it is most often a value that does not open; for \
                  all of them etcd or the KMS.",
        causes: &["a value that cannot be opened", "etcd refuses or does not answer", "a KMS that does not answer"],
        next: &[
            "the text behind it, or the line of the API server's log at that time: `atrest doctor --log FILE`",
            VERIFY,
            METRICS,
        ],
    },
];
