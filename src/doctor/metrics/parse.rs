use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// The longest line that is looked at; a label with the text of a whole object in it is nobody's.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The most labels of a sample.
const MAX_LABELS: usize = 64;

/// The most samples that are kept: ten times those of a large API server.
const MAX_SAMPLES: usize = 4_000_000;

/// The samples of one scrape.
#[derive(Clone, Default)]
pub struct Metrics {
    text: String,
    families: HashMap<Box<str>, Vec<Sample>>,
    samples: usize,
    skipped: u64,
}

/// A sample; its labels are a part of the text.
#[derive(Clone)]
struct Sample {
    labels: Range<usize>,
    value: f64,
}

/// The labels of a sample.
#[derive(Clone, Copy)]
pub struct Labels<'a>(&'a str);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metrics({} samples of {} names)", self.samples, self.families.len())
    }
}

impl std::fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Metrics {
    /// Reads a scrape. What is no sample is left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut metrics = Self { text: String::from_utf8_lossy(text).into_owned(), ..Self::default() };
        let mut offset = 0;
        for line in metrics.text.split('\n') {
            let begin = offset;
            offset += line.len() + 1;
            if metrics.samples >= MAX_SAMPLES {
                metrics.skipped += 1;
                continue;
            }
            let trimmed = line.trim_start();
            if trimmed.trim_end().is_empty() || trimmed.starts_with('#') {
                continue;
            }
            match sample(line) {
                Some((name, labels, value)) => {
                    let labels = begin + labels.start..begin + labels.end;
                    let sample = Sample { labels, value };
                    match metrics.families.get_mut(name) {
                        Some(samples) => samples.push(sample),
                        None => _ = metrics.families.insert(name.into(), vec![sample]),
                    }
                    metrics.samples += 1;
                }
                None => metrics.skipped += 1,
            }
        }
        metrics
    }

    /// How many samples there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Whether there is no sample: it is not a scrape.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// How many lines were no samples.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The samples of a metric. Its name is taken with and without `_total`: OpenMetrics demands the suffix and old servers have none.
    pub fn samples(&self, name: &str) -> impl Iterator<Item = (Labels<'_>, f64)> {
        let other = || match name.strip_suffix("_total") {
            Some(bare) => self.families.get(bare),
            None => self.families.get(format!("{name}_total").as_str()),
        };
        let samples = self.families.get(name).or_else(other).map_or(&[][..], Vec::as_slice);
        samples.iter().map(|sample| (Labels(self.text.get(sample.labels.clone()).unwrap_or_default()), sample.value))
    }

    /// Whether the metric is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.samples(name).next().is_some()
    }

    /// Whether some metric's name begins so.
    #[must_use]
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.families.keys().any(|name| name.starts_with(prefix))
    }

    /// The value of a metric without labels.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.samples(name).map(|(_, value)| value).next()
    }
}

impl<'a> Labels<'a> {
    /// The labels as they stand in the text: the same in every scrape of a server.
    #[must_use]
    pub fn text(self) -> &'a str {
        self.0
    }

    /// The names and values.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
        self.raw().map(|(name, value)| (name, unescape(value)))
    }

    fn raw(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, value, after) = label(rest)?;
            rest = after;
            Some((name, value))
        })
    }

    /// The value of a label; empty when it is not there, which is the same to Prometheus.
    #[must_use]
    pub fn get(self, name: &str) -> Cow<'a, str> {
        self.raw().find(|(other, _)| *other == name).map(|(_, value)| unescape(value)).unwrap_or_default()
    }

    /// Whether a label has this value.
    #[must_use]
    pub fn is(self, name: &str, value: &str) -> bool {
        self.get(name) == value
    }
}

/// The name, where the labels are in the line, and the value. A timestamp and an exemplar may follow and are not used.
fn sample(line: &str) -> Option<(&str, Range<usize>, f64)> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let begin = line.len() - line.trim_start().len();
    let body = line.get(begin..)?;
    let name_end = body.find(|c: char| !is_name(c)).filter(|end| *end > 0)?;
    let name = body.get(..name_end)?;
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = body.get(name_end..)?;
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        None => (0..0, rest),
        Some(inside) => {
            let start = line.len() - inside.len();
            let mut left = inside;
            for _ in 0..=MAX_LABELS {
                match label(left) {
                    Some((_, _, after)) => left = after,
                    None => break,
                }
            }
            let end = line.len() - left.len();
            (start..end, left.trim_start_matches([' ', '\t', ',']).strip_prefix('}')?)
        }
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':')
}

/// A label at the beginning of the text: its name, its value with the escapes, and what follows.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start_matches([' ', '\t', ',']);
    let end = text.find(|c: char| !is_name(c)).filter(|end| *end > 0)?;
    let name = text.get(..end)?;
    let quoted = text.get(end..)?.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let close = quoted.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((name, quoted.get(..close)?, quoted.get(close + 1..)?))
}

fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => out.push(c),
            _ => match chars.next() {
                Some('n') => out.push('\n'),
                Some(c @ ('\\' | '"')) => out.push(c),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scrape_is_read_with_escapes_timestamps_and_exemplars() {
        let metrics = Metrics::parse(
            b"# HELP a_total help\n# TYPE a_total counter\na_total{x=\"1\",path=\"C:\\\\d\\\"q\\\"\\n\",} 3 1700000000000\n\
              b 1e3\r\nc_bucket{le=\"+Inf\"} 17 # {trace_id=\"x\"} 0.67 1520879607.789\nd NaN\ne{} +Inf\n  f{a=\"}\"} -1\n# EOF\n",
        );
        assert_eq!((metrics.len(), metrics.skipped()), (6, 0));
        let (labels, value) = metrics.samples("a_total").next().unwrap();
        assert_eq!(value, 3.0);
        assert_eq!(labels.get("path"), "C:\\d\"q\"\n");
        assert_eq!(labels.get("absent"), "");
        assert_eq!(metrics.value("b"), Some(1000.0));
        assert_eq!(
            metrics.samples("c_bucket").map(|(labels, _)| labels.get("le").into_owned()).next().unwrap(),
            "+Inf"
        );
        assert!(metrics.value("d").unwrap().is_nan());
        assert_eq!(metrics.value("e"), Some(f64::INFINITY));
        assert_eq!(metrics.samples("f").next().unwrap().0.get("a"), "}");
    }

    #[test]
    fn a_name_is_found_with_and_without_total() {
        let metrics = Metrics::parse(b"a_total 1\nb 2\n");
        assert_eq!((metrics.value("a"), metrics.value("a_total")), (Some(1.0), Some(1.0)));
        assert_eq!((metrics.value("b"), metrics.value("b_total")), (Some(2.0), Some(2.0)));
        assert_eq!(metrics.value("c"), None);
    }

    #[test]
    fn what_is_no_sample_is_counted() {
        let metrics = Metrics::parse(
            b"<html>\nname\nname{a=\"b} 1\nname{a=b} 1\n1a 2\nname{a=\"b\"} x\n{a=\"b\"} 1\n\xff\xfe 1\nok 1\n",
        );
        assert_eq!((metrics.len(), metrics.skipped()), (1, 8));
        let long = format!("a{{x=\"{}\"}} 1\n", "y".repeat(MAX_LINE_BYTES));
        assert_eq!(Metrics::parse(long.as_bytes()).skipped(), 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..400),
            "([a-z_]{1,4}(\\{([a-z]{1,2}=\"[a-z\\\\\"n]{0,3}\",?){0,3}\\}?)? ?[0-9.e+-]{0,4}( #)?[\n ]){0,8}"
                .prop_map(String::into_bytes),
        ]) {
            let metrics = Metrics::parse(&text);
            for name in metrics.families.keys() {
                for (labels, _) in metrics.samples(name) {
                    _ = labels.iter().count();
                }
            }
            prop_assert!(metrics.len() as u64 + metrics.skipped() <= 1 + text.iter().filter(|byte| **byte == b'\n').count() as u64);
        }
    }
}
