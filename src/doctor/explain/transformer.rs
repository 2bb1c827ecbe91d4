//! What kube-apiserver's transformers say of a stored value, and KMS plugins.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const VERIFY: &str =
    "`atrest verify --encryption-provider-config FILE --prefix PREFIX`: what the value needs, and why it does not open";
const EVERY: &str = "name the configuration of every API server (--encryption-provider-config is repeatable), and old ones: whichever opens it has the key";
const KMS: &str =
    "`atrest kms check --endpoint unix:///…` on the control-plane node: whether the plugin behaves, and how fast it is";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "encrypted-read-as-object",
        axis: Axis::Transformer,
        patterns: &[
            Pattern::Without(
                &["illegal base64 data at input byte 3"],
                &[
                    "cannot be handled as a",
                    "input byte 30",
                    "input byte 31",
                    "input byte 32",
                    "input byte 33",
                    "input byte 34",
                    "input byte 35",
                    "input byte 36",
                    "input byte 37",
                    "input byte 38",
                    "input byte 39",
                ],
            ),
            Pattern::All(&["couldn't get version/kind", "k8s:enc"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "An API server has taken ciphertext for an object: byte 3 of `k8s:enc:…` is the colon. That API server reads without the \
                  EncryptionConfiguration, or with one that does not cover the resource, while others write encrypted.",
        causes: &[
            "one API server of several was started without --encryption-provider-config, so it fails sometimes only",
            "the resource was taken out of the configuration",
            "while the file is loaded: the fourth character of a `secret` is no base64",
        ],
        next: &[
            "compare --encryption-provider-config, and the file behind it, on every API server: `atrest doctor --manifest …` on each",
            VERIFY,
        ],
    },
    Entry {
        id: "no-matching-prefix",
        axis: Axis::Transformer,
        patterns: &[
            Pattern::Text("no matching prefix found"),
            Pattern::Text("does not match any of the supported transformers"),
        ],
        in_logs: true,
        vague: false,
        meaning: "No provider of the configuration has the prefix of the stored value: the value was neither tried nor found wrong.",
        causes: &[
            "the value is in the clear, and `identity` is not among the providers of the resource",
            "the provider, or the KMS of that name, was taken out before everything was written anew",
            "another API server writes by a provider that this one does not have",
            "the value is damaged at its beginning",
        ],
        next: &[
            "`atrest scan --prefix PREFIX`: which provider the value names; it needs no key",
            "add that provider behind the first one on every API server (`identity: {}` for a value in the clear), then `atrest rekey`",
        ],
    },
    Entry {
        id: "no-matching-key",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("no matching key was found for the provided")],
        in_logs: true,
        vague: false,
        meaning: "The provider is configured, and has no key of the name that the stored value names.",
        causes: &[
            "the key was taken out before everything was written anew",
            "the configuration was generated again, with a new name",
            "another API server has a key that this one does not have",
        ],
        next: &[VERIFY, EVERY],
    },
    Entry {
        id: "identity-encrypted",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("identity transformer tried to read encrypted data")],
        in_logs: true,
        vague: false,
        meaning: "The resource has no provider but `identity`, and the stored value begins with `k8s:enc:`: it is encrypted.",
        causes: &[
            "encryption was switched off, or the resource taken out, before everything was written in the clear",
            "this API server has another configuration than the one that wrote",
        ],
        next: &[
            "`atrest scan --prefix PREFIX`: which provider and key name the value has",
            "put that provider back, behind `identity`, on every API server; then `atrest rekey`, and drop it after `atrest verify`",
        ],
    },
    Entry {
        id: "kms-v1-data",
        axis: Axis::Transformer,
        patterns: &[
            Pattern::All(&["[cipher: message authentication failed", "invalid padding on input"]),
            Pattern::All(&["[cipher: message authentication failed", "block size"]),
            Pattern::Text("invalid data encountered by envelope transformer"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A value of KMS v1: the plugin gave a data key, and the data opens by it neither as AES-GCM (since 1.25) nor as AES-CBC \
                  (before); or the value is cut off in front of the data.",
        causes: &[
            "the plugin decrypts by another key than the one that encrypted, and does not notice",
            "the value was copied from another key: AES-GCM binds it to its own",
            "the value is damaged",
        ],
        next: &[VERIFY, KMS],
    },
    Entry {
        id: "invalid-padding",
        axis: Axis::Transformer,
        patterns: &[
            Pattern::Text("invalid padding on input"),
            Pattern::Text("invalid pkcs7 data (empty or not padded)"),
            Pattern::Text("the stored data is not a multiple of the block size"),
        ],
        in_logs: true,
        vague: false,
        meaning: "aescbc: the value does not end as it should once it is decrypted. CBC has no authentication, so a wrong key and a damaged \
                  value look the same; one value in 256 opens with a wrong key, to garbage.",
        causes: &[
            "two API servers have different keys under the same name: about half of the reads fail",
            "the key of that name was replaced, and not added",
            "a value that was cut off or damaged (`not a multiple of the block size`)",
        ],
        next: &[VERIFY, EVERY],
    },
    Entry {
        id: "authentication-failed",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("cipher: message authentication failed")],
        in_logs: true,
        vague: false,
        meaning: "AES-GCM (aesgcm, or the data of a KMS): the value was not written by this key for this etcd key, or it was altered. Which of \
                  the three cannot be told from one value.",
        causes: &[
            "another key under the same name",
            "the value was restored or copied under another path, or --etcd-prefix was changed: the whole etcd key is bound to it",
            "a damaged value",
        ],
        next: &[
            VERIFY,
            "it says `moved` and for which key when the value belongs elsewhere, `wrong-key` when nothing opens under that key name",
            EVERY,
        ],
    },
    Entry {
        id: "secretbox-failed",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("output array was not large enough for encryption")],
        in_logs: true,
        vague: false,
        meaning: "secretbox: authentication failed. The text is upstream's, and misleading: no array is too small.",
        causes: &["another key under the same name", "a damaged value"],
        next: &[VERIFY, EVERY],
    },
    Entry {
        id: "too-short",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("the stored data was shorter than the required size")],
        in_logs: true,
        vague: false,
        meaning: "Behind its prefix the value is shorter than a nonce and a tag: it was cut off.",
        causes: &["a tool wrote it by hand, or through a terminal", "a restore from a damaged snapshot"],
        next: &[
            VERIFY,
            "`atrest snapshot history --snapshot FILE KEY` on a backup: whether an earlier revision is whole",
        ],
    },
    Entry {
        id: "kms-never-healthy",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Text("got unexpected nil transformer"),
            Pattern::All(&["encrypteddeksource with keyid hash", "expired at"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "KMS v2 has no valid state. `nil transformer`: the plugin was never healthy since the API server started, so even what could be \
                  read is refused. `expired`: it was last healthy more than three minutes ago, so nothing is written; reads go on.",
        causes: &[
            "the plugin is down, or its socket is elsewhere",
            "Status is not healthy, or names another key ID than Encrypt",
        ],
        next: &[KMS, "`kubectl get --raw /healthz/kms-providers` on that API server"],
    },
    Entry {
        id: "kms-key-id",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Text("keyid is empty"),
            Pattern::Text("failed to validate key id"),
            Pattern::Text("invalid key id"),
            Pattern::All(&["keyid", "exceeds the max size"]),
            Pattern::Text("failed to validate encrypted dek source"),
            Pattern::Text("failed to validate annotations"),
        ],
        in_logs: true,
        vague: false,
        meaning: "KMS v2: what the plugin answers, or what is stored, breaks the limits: a key ID of 1 to 1024 bytes, an encrypted DEK source of 1 \
                  to 1024 bytes, annotations of 32 KiB with domain names as keys.",
        causes: &[
            "a plugin that leaves the key ID of EncryptResponse empty",
            "a plugin that puts a whole document into the ciphertext",
        ],
        next: &[KMS, VERIFY],
    },
    Entry {
        id: "kms-protocol-error",
        axis: Axis::Kms,
        patterns: &[
            Pattern::All(&["protocol_error", "kms"]),
            Pattern::All(&["rst_stream", "protocol_error"]),
            Pattern::Text("stream terminated by rst_stream"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The plugin's HTTP/2 refuses the request before it is read: the Go client names the path of the socket as :authority, which strict \
                  servers (Rust's h2) do not take. Fixed for KMS v2 in kube-apiserver 1.32; for KMS v1 it is still so.",
        causes: &["a plugin on tonic or h2, behind a kube-apiserver before 1.32, or spoken to by KMS v1"],
        next: &[KMS, "use a plugin that takes any :authority, as atrest-kms-plugin does"],
    },
    Entry {
        id: "kms-socket",
        axis: Axis::Kms,
        patterns: &[
            Pattern::All(&["dial unix", "no such file or directory"]),
            Pattern::All(&["dial unix", "connection refused"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "Nobody answers on the plugin's socket where the API server looks for it: inside its own container.",
        causes: &[
            "`no such file`: the folder of the socket is not mounted into the static pod, or the plugin is not running",
            "`connection refused`: the plugin has ended and left the socket; or the socket itself is mounted, and the plugin has made a new one",
        ],
        next: &[
            "`atrest doctor --manifest kube-apiserver.yaml --encryption-provider-config FILE`: whether the socket is mounted",
            KMS,
        ],
    },
    Entry {
        id: "kms-unavailable",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Without(&["dial unix", "permission denied"], &["no such file or directory", "connection refused"]),
            Pattern::Without(
                &["rpc error", "unavailable", "kms"],
                &["no such file or directory", "connection refused", "etcdserver"],
            ),
            Pattern::Without(
                &["rpc error", "unavailable", "dial unix"],
                &["no such file or directory", "connection refused"],
            ),
        ],
        in_logs: true,
        vague: false,
        meaning: "A KMS plugin cannot be asked: its socket may not be opened, or the plugin says that what is behind it is not available.",
        causes: &[
            "`permission denied`: the mode or the owner of the socket, SELinux or AppArmor",
            "`Unavailable` without `dial unix`: the service behind the plugin",
        ],
        next: &["`ls -lZ` on the socket, and as whom kube-apiserver runs", KMS],
    },
    Entry {
        id: "kms-timeout",
        axis: Axis::Kms,
        patterns: &[Pattern::All(&["kms", "deadlineexceeded"]), Pattern::All(&["kms", "deadline exceeded"])],
        in_logs: true,
        vague: false,
        meaning: "The plugin has not answered within `timeout` of the configuration, 3 s when none is given.",
        causes: &[
            "the service behind the plugin is slow, throttles or cannot be reached",
            "KMS v1 with more objects than `cachesize`: every list asks the plugin",
        ],
        next: &[KMS, "`atrest doctor --apiserver-metrics …`: latency by method, and the size of the cache"],
    },
    Entry {
        id: "kms-decrypt",
        axis: Axis::Kms,
        patterns: &[
            Pattern::Text("failed to decrypt dek"),
            Pattern::Text("unable to decrypt dek"),
            Pattern::Text("failed to decrypt, error:"),
            Pattern::Text("failed to encrypt, error:"),
            Pattern::Text("error while decrypting key"),
            Pattern::Text("failed to create transformer for dek"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The plugin was asked for a data key and answered with an error, which stands behind it with its gRPC code.",
        causes: &[
            "NotFound, InvalidArgument: the KMS does not have the key that the value names, as after a switch to another key or cluster",
            "PermissionDenied, Unauthenticated, FailedPrecondition: it may not be used, is disabled, or the token has expired",
            "Unavailable, DeadlineExceeded: the service behind the plugin",
        ],
        next: &[VERIFY, "it tells `kms-unavailable` (nothing is lost) from `kms-key-unknown` and `kms-refused`", KMS],
    },
    Entry {
        id: "newer-format",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("unknown encrypteddeksourcetype"), Pattern::Text("encrypted data is empty")],
        in_logs: true,
        vague: false,
        meaning: "A value of KMS v2 with a form that this API server does not know, or without data.",
        causes: &["a newer kube-apiserver wrote it, and the cluster was set back", "a damaged value"],
        next: &[VERIFY],
    },
    Entry {
        id: "not-transformable",
        axis: Axis::Transformer,
        patterns: &[
            Pattern::Text("data from the storage is not transformable"),
            Pattern::Text("saw a deleted event, but object data is corrupt"),
            Pattern::Text("corrupt object"),
            Pattern::Text("storagereaderror"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The API server with AllowUnsafeMalformedObjectDeletion calls an object corrupt when it can be transformed or decoded for no matter \
                  what reason: a KMS that is away for a moment counts too. A list names up to 100 of them, and fails.",
        causes: &["a key that is missing or wrong", "a KMS that does not answer", "a damaged value"],
        next: &[VERIFY, "delete nothing before that: with the right key, or the KMS back, it may be whole"],
    },
    Entry {
        id: "not-decodable",
        axis: Axis::ApiserverSerialization,
        patterns: &[
            Pattern::Text("object not decodable"),
            Pattern::Text("is not decodable"),
            Pattern::Text("unable to decode"),
            Pattern::Text("no kind is registered"),
            Pattern::Text("no kind \""),
            Pattern::Text("couldn't get version/kind"),
            Pattern::Text("proto: illegal wiretype"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The value was opened, and what is in it is no object that this API server knows.",
        causes: &[
            "the API version was removed, and the object never stored in a newer one",
            "aescbc or `identity`: a damaged value, or one opened by a wrong key, which nothing notices",
            "a custom resource whose definition has gone",
        ],
        next: &["`atrest get … -o yaml`, or `atrest decode`, shows what is in it", VERIFY],
    },
    Entry {
        id: "unable-to-transform",
        axis: Axis::Transformer,
        patterns: &[Pattern::Text("unable to transform key")],
        in_logs: true,
        vague: false,
        meaning: "A list met a value that does not open, and failed as a whole: the key in the text is the first such value, and there may be more. What \
                  is wrong with it stands behind the key.",
        causes: &["a key, a provider or a KMS key that this API server does not have", "a damaged or moved value"],
        next: &[
            VERIFY,
            "without --prefix it goes through everything, and lists every such value and not the first only",
        ],
    },
];
