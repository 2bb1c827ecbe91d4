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
    /// The status of an HTTP answer.
    Status(&'static str),
}

impl Pattern {
    /// What of the text was recognised.
    pub(super) fn find(self, lowered: &str) -> Option<String> {
        match self {
            Self::Text(text) => lowered.contains(text).then(|| text.to_owned()),
            Self::All(texts) => texts.iter().all(|text| lowered.contains(text)).then(|| texts.join(" … ")),
            Self::Status(code) => is_status(lowered, code).then(|| code.to_owned()),
        }
    }
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
