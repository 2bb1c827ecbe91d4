//! How figures of the evidence are made.

use std::time::Duration;

use super::metrics::Quantile;
use crate::report::{Figure, FigureValue, Unit};

fn figure(what: impl Into<String>, value: FigureValue, unit: Unit, source: impl Into<String>) -> Figure {
    Figure { what: what.into(), value, unit, at_least: false, source: source.into() }
}

/// A number that JSON has: what is not finite is told as a word.
fn number(value: f64) -> FigureValue {
    if value.is_finite() { FigureValue::Number(value) } else { FigureValue::Text(value.to_string()) }
}

pub(super) fn count(what: impl Into<String>, value: u64, source: impl Into<String>) -> Figure {
    figure(what, FigureValue::Count(value), Unit::Count, source)
}

/// A count of a metric, which is a float there.
pub(super) fn counted(what: impl Into<String>, value: f64, source: impl Into<String>) -> Figure {
    figure(what, whole(value), Unit::Count, source)
}

/// Whole numbers are shown as such.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was looked at")]
fn whole(value: f64) -> FigureValue {
    // Above 2^53 a float has no ones any more.
    if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
        FigureValue::Count(value as u64)
    } else {
        number(value)
    }
}

pub(super) fn bytes(what: impl Into<String>, value: u64, source: impl Into<String>) -> Figure {
    figure(what, FigureValue::Count(value), Unit::Bytes, source)
}

pub(super) fn bytes_of(what: impl Into<String>, value: f64, source: impl Into<String>) -> Figure {
    figure(what, whole(value), Unit::Bytes, source)
}

pub(super) fn seconds(what: impl Into<String>, value: f64, source: impl Into<String>) -> Figure {
    figure(what, number(value), Unit::Seconds, source)
}

pub(super) fn duration(what: impl Into<String>, value: Duration, source: impl Into<String>) -> Figure {
    seconds(what, value.as_secs_f64(), source)
}

pub(super) fn quantile(what: impl Into<String>, value: Quantile, source: impl Into<String>) -> Figure {
    Figure { at_least: value.at_least, ..seconds(what, value.value, source) }
}

pub(super) fn text(what: impl Into<String>, value: impl Into<String>, source: impl Into<String>) -> Figure {
    figure(what, FigureValue::Text(value.into()), Unit::Text, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_does_not_have_is_a_word() {
        assert_eq!(seconds("x", f64::NAN, "s").value, FigureValue::Text("NaN".to_owned()));
        assert_eq!(counted("x", 3.0, "s").value, FigureValue::Count(3));
        assert_eq!(counted("x", -1.0, "s").value, FigureValue::Number(-1.0));
        assert_eq!(counted("x", 1e300, "s").value, FigureValue::Number(1e300));
        assert_eq!(counted("x", f64::INFINITY, "s").value, FigureValue::Text("inf".to_owned()));
    }
}
