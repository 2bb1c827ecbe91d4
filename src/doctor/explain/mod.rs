//! Error texts that people paste, and what they mean.

mod apiserver;
mod configuration;
mod entry;
mod etcd;
mod kms;
mod reach;
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

/// The explanation of an alarm that was taken away, which is no fault.
pub(super) const DISARMED: &str = "alarm-disarmed";

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

    pub(super) fn is_vague(&self) -> bool {
        self.vague
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
            let (before, rest) = (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default());
            // In quotes it is all of it, whatever stands there.
            let quote = ["\\\"", "\""].into_iter().find(|quote| before.ends_with(quote));
            let quoted = quote.and_then(|quote| Some(rest.split_once(quote)?.0)).filter(|key| !key.contains('\n'));
            let key =
                quoted.unwrap_or_else(|| rest.split(ENDS).next().unwrap_or_default().trim_end_matches([':', '.']));
            let shown: String = key.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let key = shown.as_str();
            if key.len() > begin.len() && key.len() <= 1024 && !keys.iter().any(|other| other == key) {
                keys.push(key.to_owned());
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

    /// Each was explained as another fault, or not known.
    #[test]
    fn texts_that_sound_alike_are_told_apart() {
        for (text, id) in [
            (
                "Error from server (BadRequest): Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 3",
                "request-not-decodable",
            ),
            (
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0",
                "request-not-decodable",
            ),
            ("illegal base64 data at input byte 3: x", "encrypted-read-as-object"),
            ("illegal base64 data at input byte 17", "illegal-base64"),
            ("illegal base64 data at input byte 31", "illegal-base64"),
            ("{\"msg\":\"alarm disarmed\",\"alarm\":\"NOSPACE\"}", "alarm-disarmed"),
            ("{\"msg\":\"alarm raised\",\"alarm\":\"NOSPACE\"}", "no-space"),
            (
                "Failed calling webhook, failing open x.example.com: failed calling webhook \"x.example.com\": dial tcp 10.0.0.1:443: connect: connection refused",
                "webhook-open",
            ),
            ("failed calling webhook \"x\": dial tcp 10.0.0.1:443: connect: connection refused", "webhook"),
            ("x509: certificate signed by unknown authority", "certificate-authority"),
            ("x509: certificate has expired or is not yet valid", "certificate-expired"),
            ("lookup etcd: dial tcp 10.96.0.10:53: connect: connection refused", "dns-refused"),
            ("dial tcp: lookup etcd-0 on 10.96.0.10:53: no such host", "host-unknown"),
            ("Get \"https://[::1]:6443/api\": dial tcp [::1]:6443: connect: connection refused", "apiserver-refused"),
            (
                "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
                "apiserver-refused",
            ),
            ("dial tcp 10.0.0.1:6443: i/o timeout", "apiserver-refused"),
            ("dial tcp 127.0.0.1:2379: connect: connection refused", "etcd-refused"),
            ("dial tcp 10.0.0.1:9999: connect: connection refused", "transport"),
            ("Internal error occurred: resource quota evaluation timed out", "quota-evaluation"),
            (
                "Internal error occurred: unable to transform key \"/registry/secrets/a/b\": rpc error: code = Unknown desc = failed to decrypt: AccessDeniedException: x",
                "kms-access-denied",
            ),
            ("KMSInvalidStateException: arn:x is pending deletion.", "kms-key-disabled"),
            ("rpc error: code = Internal desc = DisabledException: arn:x is disabled", "kms-key-disabled"),
            ("rpc error: code = Unknown desc = Code: 403. Errors:\n\n* permission denied", "kms-access-denied"),
            ("rpc error: code = Unknown desc = Code: 503. Errors: * Vault is sealed", "kms-sealed"),
            ("rpc error: code = Unknown desc = pkcs11: 0xA0: CKR_PIN_INCORRECT", "kms-token"),
            ("rpc error: code = PermissionDenied desc = etcdserver: permission denied", "permission-denied"),
            (
                "rpc error: code = Unavailable desc = dial unix /run/k.sock: connect: permission denied",
                "kms-unavailable",
            ),
            ("etcdserver: corrupt cluster", "corrupt-cluster"),
            ("walpb: crc mismatch", "wal-corrupt"),
            (
                "tocommit(44) is out of range [lastIndex(43)]. Was the raft log corrupted, truncated, or lost?",
                "wal-corrupt",
            ),
            ("lost TCP streaming connection with remote peer", "peer-connection"),
            ("prober detected unhealthy status", "peer-connection"),
            ("waiting for ReadIndex response took too long, retrying", "read-index-slow"),
            ("write /var/lib/etcd/member/snap/db: no space left on device", "disk-full"),
            ("[-]etcd failed: reason withheld", "health-etcd"),
            ("[-]kms-providers failed: reason withheld", "health-kms"),
            (
                "The server was unable to return a response in the time allotted, but may still be processing the request",
                "no-time-left",
            ),
            ("net/http: TLS handshake timeout", "tls-timeout"),
            ("Trace[1793]: \"List etcd3\" key:/secrets (total time: 812ms):", "slow-trace"),
            ("apply request took too long", "slow-apply"),
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
        // A key was cut at the first odd letter, so that the command looked at other keys than this one.
        for (key, shell) in [
            ("/registry/secrets/a/$(reboot)`x`", "'/registry/secrets/a/$(reboot)`x`'"),
            ("/registry/secrets/a'b/c d", "'/registry/secrets/a'\\''b/c d'"),
            ("/registry/secrets/a/b", "/registry/secrets/a/b"),
        ] {
            let report = explain(&format!("unable to transform key \"{key}\": invalid padding on input"));
            assert_eq!(report.keys, [key]);
            let next = &report.explanations[0].next[0];
            assert!(next.contains(&format!("--prefix {shell}`")), "{next}");
        }
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
