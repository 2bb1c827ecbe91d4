use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};

use super::explain::{self, Entry, keys_of};
use crate::report::LogText;

/// The longest line that is looked at; the rest of a longer one is passed over.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// How many keys are kept of each text.
const MAX_KEYS: usize = 5;

/// What a log of an API server or of etcd has of known error texts.
#[derive(Debug, Default)]
pub struct LogSummary {
    /// The file.
    pub name: String,
    /// How many lines there are.
    pub lines: u64,
    /// Each text that is there, by its explanation.
    pub matches: BTreeMap<&'static str, LogMatch>,
}

/// A known text, and how often it is there.
#[derive(Debug)]
pub struct LogMatch {
    entry: &'static Entry,
    /// How many lines have it.
    pub count: u64,
    /// When the first was written, as the log has it.
    pub first: Option<String>,
    /// When the last was written.
    pub last: Option<String>,
    /// etcd keys in these lines.
    pub keys: Vec<String>,
}

impl LogSummary {
    /// Reads a log, in the form of klog or of JSON, also as a container runtime keeps it.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn read(name: &str, log: &mut impl BufRead) -> io::Result<Self> {
        let mut summary = Self { name: name.to_owned(), ..Self::default() };
        let mut line = Vec::new();
        loop {
            line.clear();
            if log.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                return Ok(summary);
            }
            if !line.ends_with(b"\n") {
                pass_over(log)?;
            }
            summary.add(&String::from_utf8_lossy(&line));
        }
    }

    fn add(&mut self, line: &str) {
        self.lines += 1;
        let Some(entry) = explain::of_log_line(&line.to_ascii_lowercase()) else { return };
        let at = time_of(line);
        let found = self.matches.entry(entry.id).or_insert_with(|| LogMatch {
            entry,
            count: 0,
            first: at.clone(),
            last: None,
            keys: Vec::new(),
        });
        found.count += 1;
        found.last = at.or_else(|| found.last.take());
        for key in keys_of(line) {
            if found.keys.len() < MAX_KEYS && !found.keys.contains(&key) {
                found.keys.push(key);
            }
        }
    }

    /// How many lines have one of these texts.
    #[must_use]
    pub fn count(&self, ids: &[&str]) -> u64 {
        ids.iter().filter_map(|id| self.matches.get(id)).map(|found| found.count).sum()
    }

    /// The texts for a report, the most frequent first.
    #[must_use]
    pub fn texts(&self) -> Vec<LogText> {
        let mut texts: Vec<_> = self.matches.values().map(LogMatch::text).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.count));
        texts
    }
}

impl LogMatch {
    /// What to do next.
    pub(super) fn next(&self) -> Vec<String> {
        self.entry.next(&self.keys)
    }

    fn text(&self) -> LogText {
        LogText {
            explanation: self.entry.id,
            axis: self.entry.axis,
            meaning: self.entry.meaning,
            count: self.count,
            first: self.first.clone(),
            last: self.last.clone(),
            keys: self.keys.clone(),
        }
    }
}

fn pass_over(log: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = log.fill_buf()?;
        let (used, ends) = match memchr::memchr(b'\n', buffer) {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        log.consume(used);
        if ends {
            return Ok(());
        }
    }
}

/// When a line was written: RFC 3339 in front of it, or in `ts`, or klog's month, day and time.
fn time_of(line: &str) -> Option<String> {
    let first = line.split([' ', '\t']).next().unwrap_or_default();
    if is_rfc3339(first) {
        return Some(first.to_owned());
    }
    if line.starts_with('{') {
        let rest = line.split_once("\"ts\":")?.1.trim_start();
        let value = match rest.strip_prefix('"') {
            Some(text) => text.split('"').next()?,
            None => rest.split([',', '}', ' ']).next()?,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '+');
        return (!value.is_empty() && value.len() < 40 && value.chars().all(plain)).then(|| value.to_owned());
    }
    let (severity, day) = first.split_at_checked(1)?;
    let time = line.split(' ').filter(|part| !part.is_empty()).nth(1)?;
    let is_klog = "IWEF".contains(severity)
        && day.len() == 4
        && day.bytes().all(|byte| byte.is_ascii_digit())
        && time.len() < 20
        && time.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'));
    is_klog.then(|| format!("{day} {time}"))
}

fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    (20..40).contains(&bytes.len())
        && bytes.get(4) == Some(&b'-')
        && bytes.get(10) == Some(&b'T')
        && bytes.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b':' | b'.' | b'T' | b'Z' | b'+'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> LogSummary {
        LogSummary::read("log", &mut text.as_bytes()).unwrap()
    }

    #[test]
    fn known_texts_are_counted_with_their_times_and_keys() {
        let summary = read(
            "I1130 04:01:20.000000       1 server.go:1] \"starting\"\n\
             E1130 04:01:21.123456       1 cacher.go:470] cacher (secrets): unexpected ListAndWatch error: failed to list: unable to transform key \"/registry/secrets/a/b\": x; reinitializing...\n\
             2026-11-30T04:01:22.5Z stderr F E1130 04:01:22.500000 1 cacher.go:470] unexpected ListAndWatch error: x\n\
             {\"level\":\"warn\",\"ts\":\"2026-11-30T04:01:23.000Z\",\"msg\":\"failed to apply request\",\"error\":\"etcdserver: mvcc: database space exceeded\"}\n\
             {\"level\":\"warn\",\"ts\":1700000000.5,\"msg\":\"alarm:NOSPACE\"}\n",
        );
        assert_eq!(summary.lines, 5);
        let texts = summary.texts();
        let seen: Vec<_> = texts
            .iter()
            .map(|text| (text.explanation, text.count, text.first.as_deref(), text.last.as_deref()))
            .collect();
        assert!(seen.contains(&("no-space", 2, Some("2026-11-30T04:01:23.000Z"), Some("1700000000.5"))), "{seen:?}");
        assert_eq!(summary.count(&["unable-to-transform", "cache-initializing", "absent"]), 2);
        let keys: Vec<_> = texts.iter().flat_map(|text| &text.keys).collect();
        assert_eq!(keys, ["/registry/secrets/a/b"]);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let text = format!("{}no matching prefix found\nno matching prefix found", "x".repeat(200_000));
        let summary = read(&text);
        assert_eq!((summary.lines, summary.count(&["no-matching-prefix"])), (2, 1));
    }

    #[test]
    fn numbers_in_a_log_are_no_status() {
        assert!(read("I1130 04:01:20.000000 1 a.go:1] took 504 ms, 500 objects, 410 429\n").matches.is_empty());
    }

    #[test]
    fn times_are_those_of_the_line() {
        for (line, time) in [
            ("E1130 04:01:21.1 1 x.go:1] m", Some("1130 04:01:21.1")),
            ("2026-11-30T04:01:22.5Z stderr F x", Some("2026-11-30T04:01:22.5Z")),
            ("{\"ts\":17,\"msg\":\"\"}", Some("17")),
            ("{\"ts\":\"\\u001b\"}", None),
            ("Error: x", None),
            ("", None),
            ("ſ", None),
        ] {
            assert_eq!(time_of(line).as_deref(), time, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_log_makes_it_panic(text in "(E1130 |\\{\"ts\":|[^\n]{0,40}|no leader|\n)*") {
            _ = read(&text).texts();
        }
    }
}
