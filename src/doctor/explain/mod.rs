//! Error texts that people paste, and what they mean.

mod apiserver;
mod configuration;
mod entry;
mod etcd;
mod table;
mod transformer;

pub(super) use entry::Entry;
use table::table;

use super::figure;
use crate::report::{ExplainReport, Explanation, Figure, SCHEMA_VERSION};

/// The longest text that is looked at.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// How many keys are taken from a text.
const MAX_KEYS: usize = 10;

/// What to collect for a text that nobody knows.
const COLLECT: [&str; 4] = [
    "the whole line of the API server's log, and the ten lines before it: `atrest doctor --log FILE` reads the file",
    "`kubectl get --raw /metrics` of each API server twice, a minute apart: `atrest doctor --apiserver-metrics A --apiserver-metrics B`",
    "etcd's /metrics likewise: `atrest doctor --etcd-metrics FILE`",
    "`atrest doctor --endpoints …` for what etcd itself says",
];

/// Says what a text means. Several explanations may fit, and the most specific stands first.
#[must_use]
pub fn explain(text: &str) -> ExplainReport {
    let text = bounded(text);
    let lowered = text.to_ascii_lowercase();
    let keys = keys_of(text);
    let mut matched: Vec<_> = table().filter_map(|entry| Some((entry, entry.recognised(&lowered)?))).collect();
    // What says no more than that it took too long is told only of a text that says nothing else.
    if matched.iter().any(|(entry, _)| !entry.vague) {
        matched.retain(|(entry, _)| !entry.vague);
    }
    let explanations: Vec<_> =
        matched.into_iter().map(|(entry, recognised)| entry.explanation(recognised, &keys)).collect();
    ExplainReport {
        schema_version: SCHEMA_VERSION,
        known: !explanations.is_empty(),
        collect: if explanations.is_empty() { COLLECT.to_vec() } else { Vec::new() },
        explanations,
        figures: figures_of(&lowered),
        keys,
    }
}

/// The explanation of a line of a log, the most specific one.
pub(super) fn of_log_line(lowered: &str) -> Option<&'static Entry> {
    let matched = || table().filter(|entry| entry.in_logs && entry.recognised(lowered).is_some());
    matched().find(|entry| !entry.vague).or_else(|| matched().next())
}

fn bounded(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

impl Entry {
    fn recognised(&self, lowered: &str) -> Option<String> {
        self.patterns.iter().find_map(|pattern| pattern.find(lowered))
    }

    fn explanation(&self, recognised: String, keys: &[String]) -> Explanation {
        Explanation {
            id: self.id,
            axis: self.axis,
            recognised,
            meaning: self.meaning,
            causes: self.causes.to_vec(),
            next: self.next(keys),
        }
    }

    pub(super) fn next(&self, keys: &[String]) -> Vec<String> {
        self.next.iter().map(|step| with_key(step, keys)).collect()
    }
}

/// Puts the key of the text into a command: `PREFIX` stands for it.
fn with_key(step: &str, keys: &[String]) -> String {
    match keys.first() {
        Some(key) => step.replace("--prefix PREFIX", &format!("--prefix {}", quoted(key))),
        None => step.replace("--prefix PREFIX", "--prefix /registry/…"),
    }
}

/// A key as a shell takes it. Keys come from a log, and whoever copies the command must not run what is in them.
fn quoted(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | ':');
    if key.chars().all(plain) { key.to_owned() } else { format!("'{}'", key.replace('\'', "'\\''")) }
}

/// etcd keys that a text names: absolute paths in quotes, or `key=…`.
pub(super) fn keys_of(text: &str) -> Vec<String> {
    const ENDS: [char; 10] = ['"', '\\', ',', ')', ' ', '\n', '\'', ';', '\t', '\r'];
    let mut keys: Vec<String> = Vec::new();
    for begin in ["/registry/", "/kubernetes.io/", "/openshift.io/"] {
        for (at, _) in text.match_indices(begin) {
            // In the middle of a path it is no key.
            if text
                .get(..at)
                .is_some_and(|before| before.ends_with(|c: char| c.is_alphanumeric() || c == '/' || c == '.'))
            {
                continue;
            }
            let rest = text.get(at..).unwrap_or_default();
            let key = rest.split(ENDS).next().unwrap_or_default().trim_end_matches([':', '.']);
            if key.len() > begin.len() && key.len() <= 1024 && !keys.iter().any(|other| other == key) {
                keys.push(key.chars().flat_map(char::escape_default).collect());
            }
            if keys.len() == MAX_KEYS {
                return keys;
            }
        }
    }
    keys
}

/// What a text counts.
fn figures_of(lowered: &str) -> Vec<Figure> {
    let number = |after: &str| -> Option<u64> {
        let rest = lowered.split_once(after)?.1.trim_start_matches([' ', ':', '=', '"', '\\']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    };
    let mut figures = Vec::new();
    let mut add = |what: &str, value: Option<u64>, bytes: bool| {
        if let Some(value) = value {
            figures.push(if bytes {
                figure::bytes(what, value, "the text")
            } else {
                figure::count(what, value, "the text")
            });
        }
    };
    add("position in the text that is no base64", number("illegal base64 data at input byte"), false);
    add("size of the message", number("larger than max ("), true);
    add("the most that is taken", number("vs."), true);
    add("revision that was asked for", number("too large resource version"), false);
    add("current revision", number("current"), false);
    add("revision that was asked for", number("too old resource version"), false);
    figures
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The explanations of a text, the most specific first.
    fn ids(text: &str) -> Vec<&'static str> {
        explain(text).explanations.iter().map(|explanation| explanation.id).collect()
    }

    #[test]
    fn texts_that_people_paste_are_known() {
        for (text, id) in [
            ("illegal base64 data at input byte 3", "encrypted-read-as-object"),
            (
                "error: resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
                "config-base64",
            ),
            ("illegal base64 data at input byte 0", "config-base64"),
            ("secret is not of the expected length, got 20, expected one of [16 24 32]", "config-key-size"),
            ("duplicate KMS config name foo, names must be unique", "config-duplicate-name"),
            (
                "endpoint.scheme: Invalid value: unsupported scheme \"tcp\" for KMS provider, only unix is supported",
                "config-endpoint-scheme",
            ),
            ("Internal error occurred: no matching prefix found", "no-matching-prefix"),
            ("Internal error occurred: invalid padding on input", "invalid-padding"),
            ("Internal error occurred: cipher: message authentication failed", "authentication-failed"),
            (
                "Internal error occurred: [cipher: message authentication failed, invalid padding on input]",
                "kms-v1-data",
            ),
            ("the stored data was shorter than the required size", "too-short"),
            ("output array was not large enough for encryption", "secretbox-failed"),
            ("identity transformer tried to read encrypted data", "identity-encrypted"),
            ("got unexpected nil transformer", "kms-never-healthy"),
            ("failed to decrypt DEK, error: rpc error: code = NotFound desc = no such key", "kms-decrypt"),
            ("unable to decrypt DEK: invalid key id", "kms-key-id"),
            ("failed to decrypt, error: rpc error: code = Internal", "kms-decrypt"),
            (
                "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing dial unix /run/kms.sock: connect: no such file or directory\"",
                "kms-socket",
            ),
            (
                "rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: PROTOCOL_ERROR",
                "kms-protocol-error",
            ),
            ("data from the storage is not transformable revision=17", "not-transformable"),
            ("object not decodable", "not-decodable"),
            ("saw a DELETED event, but object data is corrupt - x", "not-transformable"),
            ("etcdserver: request timed out", "server-timeout"),
            ("etcdserver: leader changed", "lost-leader"),
            ("etcdserver: no leader", "lost-leader"),
            ("etcdserver: mvcc: database space exceeded", "no-space"),
            ("etcdserver: request is too large", "request-too-large"),
            ("trying to send message larger than max (3145729 vs. 2097152)", "request-too-large"),
            ("etcdserver: mvcc: required revision has been compacted", "compacted"),
            ("etcdserver: mvcc: required revision is a future revision", "future-revision"),
            ("etcdserver: too many requests", "too-many-requests"),
            ("context deadline exceeded", "deadline"),
            ("etcdserver: invalid auth token", "auth-token"),
            ("etcdserver: permission denied", "permission-denied"),
            ("etcdserver: requested lease not found", "lease-not-found"),
            ("too old resource version: 5 (9)", "resource-version-too-old"),
            ("The resourceVersion for the provided list is too old.", "resource-version-too-old"),
            ("Timeout: Too large resource version: 900, current: 850", "resource-version-too-large"),
            (
                "Expired: The provided continue parameter is too old to display a consistent list result",
                "continue-expired",
            ),
            ("410", "status-410"),
            ("HTTP 429", "status-429"),
            ("storage is (re)initializing: x", "cache-initializing"),
            ("500", "status-500"),
            ("504 Gateway Timeout", "status-504"),
            ("the object has been modified; please apply your changes to the latest version and try again", "conflict"),
            ("etcd event received with PrevKv=nil (key=\"/registry/pods/a/b\", modRevision=5, type=PUT)", "prev-kv"),
            ("failed calling webhook \"x.example.com\": context deadline exceeded", "webhook"),
        ] {
            assert_eq!(ids(text).first(), Some(&id), "{text}: {:?}", ids(text));
        }
    }

    #[test]
    fn several_may_fit_and_the_key_goes_into_the_next_step() {
        let text = "Internal error occurred: unable to transform key \"/registry/secrets/team-a/db\": invalid padding on input";
        let report = explain(text);
        assert_eq!(ids(text), ["invalid-padding", "unable-to-transform"]);
        assert_eq!(report.keys, ["/registry/secrets/team-a/db"]);
        assert!(
            report.explanations[0].next[0]
                .starts_with("`atrest verify --encryption-provider-config FILE --prefix /registry/secrets/team-a/db`"),
            "{report:?}"
        );
        let escaped =
            explain("err=\"unable to transform key \\\"/registry/secrets/a/b\\\": no matching prefix found\"");
        assert_eq!(escaped.keys, ["/registry/secrets/a/b"]);
    }

    #[test]
    fn a_key_in_a_command_runs_nothing() {
        let report = explain("unable to transform key \"/registry/secrets/a/$(reboot)`x`\": invalid padding on input");
        assert!(
            report.explanations[0].next[0].contains("--prefix '/registry/secrets/a/$(reboot'"),
            "{:?}",
            report.explanations[0].next
        );
        assert_eq!(quoted("/registry/a'b"), "'/registry/a'\\''b'");
    }

    #[test]
    fn what_counts_in_a_text_is_told() {
        let report = explain("Timeout: Too large resource version: 900, current: 850");
        let figures: Vec<_> = report.figures.iter().map(|figure| (figure.what.as_str(), &figure.value)).collect();
        use crate::report::FigureValue::Count;
        assert_eq!(figures, [("revision that was asked for", &Count(900)), ("current revision", &Count(850))]);
    }

    #[test]
    fn an_unknown_text_says_what_to_collect_and_repeats_nothing() {
        let report = explain("the quick brown fox hunter2");
        assert!(!report.known && report.explanations.is_empty());
        assert_eq!(report.collect.len(), 4);
        assert!(!format!("{report:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,300}", tail in "(/registry/[^ ]{0,20}|illegal base64 data at input byte ?[0-9]*|vs\\.[0-9 ]*|ſK)*") {
            _ = explain(&format!("{text}{tail}"));
        }
    }
}
