//! What kube-apiserver says when it does not start.

use super::entry::{Entry, Pattern};
use crate::report::Axis;

const CHECK: &str = "`atrest config check FILE`: every error of the file at once, with line and column";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        id: "config-base64",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("secret must be base64 encoded"),
            Pattern::Text("secrets must be base64 encoded"),
            Pattern::Without(&["illegal base64 data at input byte 0"], &["cannot be handled as a"]),
            Pattern::All(&["illegal base64", "secret: invalid value"]),
            Pattern::All(&["illegal base64", "encryption-provider-config"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "A `secret` in the EncryptionConfiguration is no base64: the API server does not load the file, and does not start with it.",
        causes: &[
            "a variable or a placeholder that was never filled in, as ${ENCRYPTION_KEY}: the error is at byte 0",
            "base64 that was wrapped, or copied with a quote, a blank or `\\n`",
            "base64 with the alphabet of URLs (`-` and `_`), or without its padding `=`",
        ],
        next: &[CHECK, "make a key with `head -c 32 /dev/urandom | base64 -w 0`"],
    },
    Entry {
        id: "config-key-size",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("secret is not of the expected length"),
            Pattern::All(&["expected one of", "got "]),
            Pattern::Text("crypto/aes: invalid key size"),
        ],
        in_logs: true,
        vague: false,
        meaning: "A key has a length that its cipher does not have: aescbc and aesgcm take 16, 24 or 32 bytes, secretbox 32. `crypto/aes: \
                  invalid key size` on a read is said of a data key that a KMS v1 plugin gave back.",
        causes: &[
            "a passphrase was encoded, and not random bytes",
            "the key was encoded twice, or a line end was encoded with it",
            "of KMS v1: the plugin decrypts to something else than was encrypted",
        ],
        next: &[CHECK, "`atrest kms check --endpoint unix:///…` for a KMS plugin"],
    },
    Entry {
        id: "config-duplicate-name",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("duplicate kms config name"),
            Pattern::Text("duplicate kmsv2 config name"),
            Pattern::Text("duplicate kms name"),
            Pattern::All(&["encryption", "duplicate value"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "Two KMS providers of the file have the same name; each name stands in the stored values and must mean one plugin.",
        causes: &[
            "an entry was copied for another resource",
            "a rotation to a second plugin under the name of the first",
        ],
        next: &[CHECK, "one `resources` entry may list several resources; a second plugin needs a name of its own"],
    },
    Entry {
        id: "config-endpoint-scheme",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("endpoint.scheme"),
            Pattern::All(&["unsupported scheme", "unix"]),
            Pattern::Text("invalid endpoint for kms provider"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The endpoint of a KMS is no unix socket: only unix:///absolute/path, or unix:///@name, is taken.",
        causes: &["the path without unix://", "tcp:// or http://", "two slashes where three are meant"],
        next: &[CHECK],
    },
    Entry {
        id: "config-kms-v1-disabled",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("kmsv1 is deprecated and will only receive security updates"),
            Pattern::Text("--feature-gates=kmsv1=true"),
        ],
        in_logs: true,
        vague: false,
        meaning: "The file has a KMS v1 provider, which Kubernetes 1.29 and later load only with --feature-gates=KMSv1=true.",
        causes: &["an upgrade to 1.29 or later with values that KMS v1 still holds"],
        next: &[
            "set --feature-gates=KMSv1=true on every API server, so that the old values can be read",
            "add a KMS v2 provider before it, `atrest rekey`, then drop the v1 provider once `atrest verify --removable kms-v1/NAME` says yes",
        ],
    },
    Entry {
        id: "config-not-there",
        axis: Axis::Configuration,
        patterns: &[
            Pattern::Text("error while reading encryption provider configuration file"),
            Pattern::Text("error opening encryption provider configuration file"),
            Pattern::All(&["error while parsing", "encryption provider configuration"]),
        ],
        in_logs: true,
        vague: false,
        meaning: "The API server cannot read or parse the file of --encryption-provider-config, and does not start.",
        causes: &[
            "the file is on the host and not mounted into the static pod",
            "indentation that was lost by copying",
            "an empty file",
        ],
        next: &[
            "`atrest doctor --manifest kube-apiserver.yaml --encryption-provider-config FILE`: whether it is mounted",
            CHECK,
        ],
    },
];
