use std::collections::{BTreeMap, HashMap};

use super::{Histogram, Labels, Metrics};

/// Identifies the process behind a scrape: no two start at the same fraction of a second.
const START: &str = "process_start_time_seconds";

/// Grows while a process lives, so that it tells which of two scrapes is the later.
const CPU: &str = "process_cpu_seconds_total";

/// One reading of a `/metrics`.
#[derive(Debug)]
pub struct Scrape {
    /// The URL or the file.
    pub name: String,
    /// What was read.
    pub metrics: Metrics,
    /// When, in seconds since 1970, where that is known.
    pub at: Option<f64>,
}

/// A server, read once or at two times.
#[derive(Debug)]
pub struct Target {
    /// The URL or the file that was read last.
    pub name: String,
    first: Option<Metrics>,
    last: Metrics,
    /// The time between the two readings, where it is known.
    pub seconds: Option<f64>,
}

/// Puts scrapes of the same process together: of those the first and the last count. All others stand alone.
#[must_use]
pub fn targets(scrapes: Vec<Scrape>) -> Vec<Target> {
    let mut processes: Vec<(Option<f64>, Vec<Scrape>)> = Vec::new();
    for scrape in scrapes {
        let start = scrape.metrics.value(START).filter(|start| start.is_finite());
        match processes.iter_mut().find(|(other, _)| start.is_some() && *other == start) {
            Some((_, scrapes)) => scrapes.push(scrape),
            None => processes.push((start, vec![scrape])),
        }
    }
    processes.into_iter().filter_map(|(_, scrapes)| target(scrapes)).collect()
}

fn target(mut scrapes: Vec<Scrape>) -> Option<Target> {
    let age = |scrape: &Scrape| scrape.at.or_else(|| scrape.metrics.value(CPU)).unwrap_or_default();
    scrapes.sort_by(|a, b| age(a).total_cmp(&age(b)));
    let last = scrapes.pop()?;
    let first = (!scrapes.is_empty()).then(|| scrapes.swap_remove(0));
    // The same reading twice is one: between the two nothing was counted, because there is nothing between them.
    let first = first.filter(|first| age(first) != age(&last) || first.metrics.value(CPU).is_none());
    let seconds = first.as_ref().and_then(|first| Some(last.at? - first.at?)).filter(|seconds| *seconds > 0.0);
    Some(Target { name: last.name, first: first.map(|first| first.metrics), last: last.metrics, seconds })
}

impl Target {
    /// Whether there are two readings, so that counters tell of the time between them.
    #[must_use]
    pub fn is_window(&self) -> bool {
        self.first.is_some()
    }

    /// The later reading.
    #[must_use]
    pub fn last(&self) -> &Metrics {
        &self.last
    }

    /// The earlier reading.
    #[must_use]
    pub fn first(&self) -> Option<&Metrics> {
        self.first.as_ref()
    }

    /// Where counters are from, in words.
    #[must_use]
    pub fn source(&self) -> String {
        match (&self.first, self.seconds) {
            (None, _) => format!("{}, since the server started", self.name),
            (Some(_), Some(seconds)) => format!("{}, within {seconds:.0} s", self.name),
            (Some(_), None) => format!("{}, between the two readings", self.name),
        }
    }

    /// Counters: what was counted between the two readings, or since the server started.
    pub fn counters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (Labels<'a>, f64)> {
        let before: HashMap<&str, f64> = match &self.first {
            Some(first) => first.samples(name).map(|(labels, value)| (labels.text(), value)).collect(),
            None => HashMap::new(),
        };
        self.last.samples(name).map(move |(labels, value)| {
            let before = before.get(labels.text()).copied().unwrap_or_default();
            // A counter that has fallen began anew.
            (labels, if value < before { value } else { value - before })
        })
    }

    /// A histogram over the label sets that are wanted.
    #[must_use]
    pub fn histogram(&self, name: &str, wanted: impl Fn(Labels<'_>) -> bool) -> Histogram {
        self.histograms(name, |labels| wanted(labels).then(String::new)).into_values().next().unwrap_or_default()
    }

    /// A histogram for each group of label sets.
    #[must_use]
    pub fn histograms(&self, name: &str, group: impl Fn(Labels<'_>) -> Option<String>) -> BTreeMap<String, Histogram> {
        let mut groups: BTreeMap<String, Histogram> = BTreeMap::new();
        for (labels, count) in self.counters(&format!("{name}_bucket")) {
            if let Some(group) = group(labels) {
                groups.entry(group).or_default().add_bucket(labels, count);
            }
        }
        for (labels, sum) in self.counters(&format!("{name}_sum")) {
            if let Some(histogram) = group(labels).and_then(|group| groups.get_mut(&group)) {
                histogram.sum += sum;
            }
        }
        groups.into_iter().map(|(group, histogram)| (group, histogram.finish())).collect()
    }

    /// Whether the histogram is there at all.
    #[must_use]
    pub fn has_histogram(&self, name: &str) -> bool {
        self.last.has(&format!("{name}_bucket"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(name: &str, text: &str) -> Scrape {
        Scrape { name: name.to_owned(), metrics: Metrics::parse(text.as_bytes()), at: None }
    }

    #[test]
    fn two_readings_of_a_process_make_a_window_in_their_own_order() {
        let later = "process_start_time_seconds 1.5\nprocess_cpu_seconds_total 9\nc{a=\"x\"} 7\nc{a=\"new\"} 2\nr 1\n";
        let earlier = "process_start_time_seconds 1.5\nprocess_cpu_seconds_total 3\nc{a=\"x\"} 5\nr 4\n";
        let found = targets(vec![scrape("later", later), scrape("earlier", earlier)]);
        let [target] = &found[..] else { panic!("{found:?}") };
        assert_eq!((target.name.as_str(), target.is_window()), ("later", true));
        assert_eq!(target.source(), "later, between the two readings");
        let counted: Vec<_> =
            target.counters("c").map(|(labels, value)| (labels.get("a").into_owned(), value)).collect();
        assert_eq!(counted, [("x".to_owned(), 2.0), ("new".to_owned(), 2.0)]);
        // It began anew, and what it has now was counted since.
        assert_eq!(target.counters("r").map(|(_, value)| value).collect::<Vec<_>>(), [1.0]);
    }

    #[test]
    fn other_processes_and_scrapes_without_a_start_stand_alone() {
        let found = targets(vec![
            scrape("a", "process_start_time_seconds 1\n"),
            scrape("b", "process_start_time_seconds 2\n"),
            scrape("c", "x 1\n"),
            scrape("d", "x 1\n"),
        ]);
        assert_eq!(found.iter().map(Target::source).collect::<Vec<_>>().len(), 4);
        assert!(found.iter().all(|target| !target.is_window()));
        assert_eq!(found[0].source(), "a, since the server started");
    }

    #[test]
    fn the_same_reading_twice_is_one() {
        let text = "process_start_time_seconds 1.5\nprocess_cpu_seconds_total 9\nc 7\n";
        let found = targets(vec![scrape("a", text), scrape("b", text)]);
        assert_eq!((found.len(), found[0].is_window()), (1, false));
        assert_eq!(found[0].counters("c").map(|(_, value)| value).collect::<Vec<_>>(), [7.0]);
    }

    #[test]
    fn a_window_has_a_histogram_of_its_own() {
        let text = |a: u32, b: u32, cpu: u32| {
            format!(
                "process_start_time_seconds 1\nprocess_cpu_seconds_total {cpu}\nh_bucket{{le=\"1\"}} {a}\nh_bucket{{le=\"+Inf\"}} {b}\nh_sum {b}\n"
            )
        };
        let found = targets(vec![scrape("a", &text(90, 100, 1)), scrape("b", &text(90, 110, 2))]);
        let histogram = found[0].histogram("h", |_| true);
        assert_eq!(histogram.count(), 10.0);
        assert_eq!(histogram.sum, 10.0);
        assert!(histogram.quantile(0.5).unwrap().at_least);
    }
}
