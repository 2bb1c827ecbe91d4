use crate::report::Axis;

/// A text that is known.
#[derive(Debug)]
pub(in crate::doctor) struct Entry {
    pub(in crate::doctor) id: &'static str,
    pub(in crate::doctor) axis: Axis,
    /// How it is recognised: by any of these.
    pub(super) patterns: &'static [Pattern],
    /// Whether lines of a log are looked at for it: a bare number is too little there.
    pub(super) in_logs: bool,
    /// Whether it says that something failed, and not what: others that fit say more.
    pub(super) vague: bool,
    pub(in crate::doctor) meaning: &'static str,
    pub(super) causes: &'static [&'static str],
    /// `--prefix PREFIX` stands for the key in the text.
    pub(super) next: &'static [&'static str],
}

/// What is looked for, in lower case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// The text.
    Text(&'static str),
    /// All of these, anywhere.
    All(&'static [&'static str]),
    /// All of the first, and none of the second: those say something else.
    Without(&'static [&'static str], &'static [&'static str]),
    /// An address with one of these ports, one of the first texts, and none of the second.
    Port(&'static [&'static str], &'static [&'static str], &'static [&'static str]),
    /// The status of an HTTP answer.
    Status(&'static str),
}

impl Pattern {
    /// What of the text was recognised.
    pub(super) fn find(self, lowered: &str) -> Option<String> {
        match self {
            Self::Text(text) => lowered.contains(text).then(|| text.to_owned()),
            Self::All(texts) => texts.iter().all(|text| lowered.contains(text)).then(|| texts.join(" … ")),
            Self::Without(texts, others) => {
                let found = texts.iter().all(|text| lowered.contains(text));
                (found && !others.iter().any(|text| lowered.contains(text))).then(|| texts.join(" … "))
            }
            Self::Port(ports, texts, others) => {
                let of_others = others.iter().any(|text| lowered.contains(text));
                let port = ports.iter().find(|port| !of_others && has_port(lowered, port))?;
                let text = texts.iter().find(|text| lowered.contains(**text))?;
                Some(format!(":{port} … {text}"))
            }
            Self::Status(code) => is_status(lowered, code).then(|| code.to_owned()),
        }
    }
}

/// `10.96.0.10:53`, `[::1]:6443/…`; no time of the day, and no line of a source file.
fn has_port(lowered: &str, port: &str) -> bool {
    let number = format!(":{port}");
    lowered.match_indices(&number).any(|(at, _)| {
        let after = lowered.get(at + number.len()..).unwrap_or_default();
        let ends = after.is_empty() || after.starts_with([' ', '/', '"', '\'', '\\', ',', ';', ')', '?', '\n', '\r']);
        let before = lowered.get(..at).unwrap_or_default();
        let host = before.rsplit([' ', '"', '\'', '/', '(', '=', ',', '@']).next().unwrap_or_default();
        let is_host = host.contains('.') || host.contains(|c: char| c.is_ascii_alphabetic()) || host.ends_with(']');
        let goes_on = after.strip_prefix(':').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\n']));
        is_host && (ends || goes_on)
    })
}

/// A number alone, or where a status stands: `504`, `HTTP 504`, `code: 504`, `resp=504`, `504 Gateway Timeout`.
fn is_status(lowered: &str, code: &str) -> bool {
    if lowered.trim().trim_matches(|c: char| !c.is_ascii_alphanumeric()) == code {
        return true;
    }
    let is_digit = |c: char| c.is_ascii_digit();
    lowered.match_indices(code).any(|(at, _)| {
        let before = lowered.get(..at).unwrap_or_default();
        let after = lowered.get(at + code.len()..).unwrap_or_default();
        if before.ends_with(is_digit) || after.starts_with(is_digit) {
            return false;
        }
        let word = before.trim_end_matches([' ', ':', '=', '"', '\\', '(', '\'']);
        let names_status = ["http", "code", "status", "resp", "error", "http/1.1", "http/2", "http/2.0"];
        let names_reason = [" gone", " too many requests", " internal server error", " gateway timeout", " conflict"];
        names_status.iter().any(|name| word.ends_with(name))
            || names_reason.iter().any(|reason| after.starts_with(reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_that_of_an_address() {
        for (text, port) in [
            ("dial tcp 10.96.0.10:53: connect: connection refused", "53"),
            ("dial tcp [::1]:6443: connect", "6443"),
            ("https://10.0.0.1:6443/api", "6443"),
            ("the server etcd-0:2379 was", "2379"),
            ("on 10.96.0.10:53", "53"),
        ] {
            assert!(has_port(text, port), "{text}");
        }
        for (text, port) in
            [("at 04:00:53 connection refused", "53"), ("x.go:443] connection refused", "443"), ("a:5380 ", "53")]
        {
            assert!(!has_port(text, port), "{text}");
        }
    }

    #[test]
    fn a_status_is_a_number_where_a_status_stands() {
        for text in
            ["504", " 504\n", "http 504", "\"code\": 504", "resp=504", "(504)", "error 504", "504 gateway timeout"]
        {
            assert!(is_status(text, "504"), "{text}");
        }
        for text in ["5040", "1504", "took 504 ms", "port 504", "504ms", "\"size\":504", ""] {
            assert!(!is_status(text, "504"), "{text}");
        }
    }
}
