use super::Labels;

/// A histogram of Prometheus, of one label set or summed over several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The upper ends of the buckets, and how many observations are not above them.
    buckets: Vec<(f64, f64)>,
    /// The sum of the observations.
    pub sum: f64,
}

/// A quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// Its value.
    pub value: f64,
    /// Whether it lies above the last bucket, so that it is at least so much.
    pub at_least: bool,
}

impl Histogram {
    /// Adds what a bucket holds.
    pub(super) fn add_bucket(&mut self, labels: Labels<'_>, count: f64) {
        let Ok(end) = labels.get("le").parse::<f64>() else { return };
        if end.is_nan() || end == f64::NEG_INFINITY || !count.is_finite() {
            return;
        }
        match self.buckets.iter_mut().find(|(other, _)| *other == end) {
            Some((_, sum)) => *sum += count,
            None => self.buckets.push((end, count)),
        }
    }

    /// Puts the buckets in order. Counts that fall are those of a scrape under load, and are raised as Prometheus does.
    pub(super) fn finish(mut self) -> Self {
        self.buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut highest = 0.0_f64;
        for (_, count) in &mut self.buckets {
            highest = highest.max(*count);
            *count = highest;
        }
        self
    }

    /// How many observations there are.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// The mean; nothing without observations.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let mean = self.sum / self.count();
        mean.is_finite().then_some(mean)
    }

    /// A quantile between 0 and 1, as `histogram_quantile` of Prometheus has it: linear within the bucket.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let total = self.count();
        if total <= 0.0 || self.buckets.len() < 2 {
            return None;
        }
        let rank = q * total;
        let at = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (end, count) = *self.buckets.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.buckets.get(before)).copied();
        if end == f64::INFINITY {
            return before.map(|(end, _)| Quantile { value: end, at_least: true });
        }
        let (start, below) = before.unwrap_or((0.0, 0.0));
        if before.is_none() && end <= 0.0 {
            return Some(Quantile { value: end, at_least: false });
        }
        let inside = count - below;
        let part = if inside > 0.0 { (rank - below) / inside } else { 1.0 };
        Some(Quantile { value: start * (1.0 - part) + end * part, at_least: false })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    fn of(text: &str) -> Histogram {
        let metrics = Metrics::parse(text.as_bytes());
        let mut histogram = Histogram::default();
        metrics.samples("h_bucket").for_each(|(labels, count)| histogram.add_bucket(labels, count));
        histogram.sum = metrics.value("h_sum").unwrap_or_default();
        histogram.finish()
    }

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let histogram = of(
            "h_bucket{le=\"0.1\"} 50\nh_bucket{le=\"0.2\"} 90\nh_bucket{le=\"1\"} 98\nh_bucket{le=\"+Inf\"} 100\nh_sum 12\n",
        );
        assert_eq!(histogram.count(), 100.0);
        assert_eq!(histogram.mean(), Some(0.12));
        let value = |q| histogram.quantile(q).unwrap();
        assert_eq!(value(0.5), Quantile { value: 0.1, at_least: false });
        assert!((value(0.7).value - 0.15).abs() < 1e-12);
        assert!((value(0.94).value - 0.6).abs() < 1e-12);
        assert_eq!(value(0.99), Quantile { value: 1.0, at_least: true });
    }

    #[test]
    fn label_sets_are_summed_and_counts_that_fall_are_raised() {
        let histogram = of(
            "h_bucket{a=\"1\",le=\"+Inf\"} 2\nh_bucket{a=\"1\",le=\"1\"} 2\nh_bucket{a=\"2\",le=\"1\"} 3\nh_bucket{a=\"2\",le=\"+Inf\"} 1\n",
        );
        assert_eq!(histogram.buckets, [(1.0, 5.0), (f64::INFINITY, 5.0)]);
        assert_eq!(histogram.quantile(0.5), Some(Quantile { value: 0.5, at_least: false }));
    }

    #[test]
    fn without_observations_there_is_no_quantile() {
        assert_eq!(of("").quantile(0.5), None);
        assert_eq!(of("h_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 0\n").quantile(0.5), None);
        assert_eq!(of("h_bucket{le=\"x\"} 3\nh_bucket{le=\"NaN\"} 3\n").quantile(0.5), None);
        assert_eq!(of("h_bucket{le=\"+Inf\"} 3\n").quantile(0.5), None);
        assert_eq!(of("").mean(), None);
    }
}
