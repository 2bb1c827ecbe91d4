use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read as _};

use flate2::bufread::MultiGzDecoder;

use super::explain::{self, Entry, keys_of};
use crate::report::LogText;

/// The longest line that is looked at; the rest of a longer one is passed over.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// The most that is unpacked of a log that is compressed.
const MAX_UNPACKED_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// How many keys are kept of each text.
const MAX_KEYS: usize = 5;

/// What a log of an API server or of etcd has of known error texts.
#[derive(Debug, Default)]
pub struct LogSummary {
    /// The file, or the files.
    pub name: String,
    /// How many lines there are.
    pub lines: u64,
    /// How many of them have bytes that no log has.
    odd: u64,
    /// How many files were read before the last one.
    earlier: usize,
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
    /// The last of each file: the file, the line, and when it was written.
    ends: Vec<(usize, u64, Option<String>)>,
}

impl LogSummary {
    /// Reads a log, in the form of klog or of JSON, also as a container runtime keeps it, and also compressed by gzip.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is empty, or is no text.
    pub fn read(name: &str, log: &mut impl BufRead) -> io::Result<Self> {
        let summary = if log.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = BufReader::new(MultiGzDecoder::new(log).take(MAX_UNPACKED_BYTES));
            let summary = Self::read_lines(name, &mut unpacked)?;
            if unpacked.get_ref().limit() == 0 {
                return Err(io::Error::other(format!("more than {MAX_UNPACKED_BYTES} bytes when unpacked")));
            }
            summary
        } else {
            Self::read_lines(name, log)?
        };
        match (summary.lines, summary.odd) {
            (0, _) => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
            (lines, odd) if odd * 2 > lines => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no text")),
            _ => Ok(summary),
        }
    }

    fn read_lines(name: &str, log: &mut impl BufRead) -> io::Result<Self> {
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
            let is_odd = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r' | b'\x1b');
            summary.odd += u64::from(line.iter().any(is_odd));
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
            ends: Vec::new(),
        });
        found.count += 1;
        found.last = at.or_else(|| found.last.take());
        found.ends = vec![(0, self.lines, found.last.clone())];
        for key in keys_of(line) {
            if found.keys.len() < MAX_KEYS && !found.keys.contains(&key) {
                found.keys.push(key);
            }
        }
    }

    /// Takes another log in, as if it were one.
    pub fn take(&mut self, other: Self) {
        self.name = format!("{}, {}", self.name, other.name);
        (self.lines, self.odd) = (self.lines + other.lines, self.odd + other.odd);
        self.earlier += 1;
        for (id, mut theirs) in other.matches {
            theirs.ends.iter_mut().for_each(|(file, ..)| *file += self.earlier);
            match self.matches.get_mut(id) {
                None => {
                    self.matches.insert(id, theirs);
                }
                Some(ours) => {
                    ours.count += theirs.count;
                    ours.first = ours.first.take().or(theirs.first);
                    ours.last = theirs.last.or_else(|| ours.last.take());
                    ours.ends.extend(theirs.ends);
                    ours.keys.extend(theirs.keys);
                    ours.keys.truncate(MAX_KEYS);
                }
            }
        }
        self.earlier += other.earlier;
    }

    /// The alarm NOSPACE, and that it was disarmed, when that was after the last line of every file that has it.
    pub(super) fn disarmed(&self) -> Option<(&LogMatch, &LogMatch)> {
        let (full, disarmed) = (self.matches.get("no-space")?, self.matches.get(explain::DISARMED)?);
        // Of two files, only times that name the year can be compared.
        let time = |end: &(usize, u64, Option<String>)| end.2.clone().filter(|time| is_rfc3339(time));
        let is_later = |end: &(usize, u64, Option<String>), other: &(usize, u64, Option<String>)| match end.0 == other.0
        {
            true => other.1 > end.1,
            false => time(end).zip(time(other)).is_some_and(|(end, other)| other > end),
        };
        let is_over = full.ends.iter().all(|end| disarmed.ends.iter().any(|other| is_later(end, other)));
        is_over.then_some((full, disarmed))
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

    /// Whether it says that something failed, and not what.
    pub(super) fn is_vague(&self) -> bool {
        self.entry.is_vague()
    }

    /// When, in words.
    pub(super) fn when(&self) -> String {
        let line = self.ends.last().map_or(0, |(_, line, _)| *line);
        self.last.clone().unwrap_or_else(|| format!("line {line}"))
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

    /// An empty file, random bytes and a compressed log were read as logs without a fault in them.
    #[test]
    fn what_is_no_log_is_an_error_and_gzip_is_unpacked() {
        use std::io::Write as _;
        let error = |bytes: &[u8]| LogSummary::read("log", &mut &*bytes).unwrap_err().to_string();
        assert_eq!(error(b""), "it is empty");
        assert_eq!(error(b"\0\x01\xff\n\x02"), "it is no text");
        assert_eq!(read("a\n\0\nb\n").lines, 3);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"no matching prefix found\n\n").unwrap();
        let packed = packed.finish().unwrap();
        let log = LogSummary::read("log", &mut &*packed).unwrap();
        assert_eq!((log.lines, log.count(&["no-matching-prefix"])), (2, 1));
        assert_eq!(error(&packed[..packed.len() - 9]), "incomplete deflate stream");
    }

    /// `alarm disarmed` has NOSPACE in it, and was counted as a full etcd.
    #[test]
    fn an_alarm_that_was_disarmed_later_is_over() {
        let raised = "{\"ts\":\"2026-11-30T04:00:00.0Z\",\"msg\":\"alarm raised\",\"alarm\":\"NOSPACE\"}\n";
        let disarmed = "{\"ts\":\"2026-11-30T05:00:00.0Z\",\"msg\":\"alarm disarmed\",\"alarm\":\"NOSPACE\"}\n";
        let over = |log: &LogSummary| log.disarmed().map(|(raised, disarmed)| (raised.when(), disarmed.when()));
        let times = Some(("2026-11-30T04:00:00.0Z".to_owned(), "2026-11-30T05:00:00.0Z".to_owned()));
        assert_eq!(read(disarmed).count(&["no-space"]), 0);
        assert_eq!(over(&read(&format!("{raised}{disarmed}"))), times);
        assert_eq!(over(&read(&format!("{disarmed}{raised}"))), None);
        let mut both = read(disarmed);
        both.take(read(raised));
        assert_eq!((over(&both), both.lines, both.name.as_str()), (times, 2, "log, log"));
        // Of a third file nobody knows when it was.
        both.take(read("mvcc: database space exceeded\n"));
        assert_eq!(over(&both), None);
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
            _ = LogSummary::read("log", &mut text.as_bytes()).map(|log| log.texts());
        }
    }
}
