//! Durations as Go's `time.ParseDuration` reads them.

use serde::Serialize;

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum InvalidDuration {
    /// No number where one is due.
    #[error("a number is missing")]
    MissingNumber,
    /// A number without a unit.
    #[error("a unit is missing, such as \"s\"")]
    MissingUnit,
    /// A unit that Go does not have, days among them.
    #[error("unknown unit, expected ns, us, ms, s, m or h")]
    UnknownUnit,
    /// More than 292 years.
    #[error("out of range")]
    OutOfRange,
}

/// A timeout in Go's spelling, such as `2s` or `1m30s`; etcdctl's flags have the same.
///
/// # Errors
///
/// When it is no duration, or not more than zero.
pub fn parse_timeout(text: &str) -> Result<std::time::Duration, InvalidDuration> {
    let nanoseconds = u64::try_from(parse(text)?).map_err(|_| InvalidDuration::OutOfRange)?;
    if nanoseconds == 0 { Err(InvalidDuration::OutOfRange) } else { Ok(std::time::Duration::from_nanos(nanoseconds)) }
}

/// Nanoseconds of a duration such as `1h2m3.5s`; a fraction of a nanosecond is dropped.
pub(super) fn parse(text: &str) -> Result<i64, InvalidDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(InvalidDuration::MissingNumber);
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(InvalidDuration::MissingNumber);
        }
        let (unit, after) = after.split_at(after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len()));
        let term = nanoseconds(whole, fraction, unit)?;
        total = total.checked_add(term).ok_or(InvalidDuration::OutOfRange)?;
        rest = after;
    }
    let signed = if negative { -i128::from(total) } else { i128::from(total) };
    i64::try_from(signed).map_err(|_| InvalidDuration::OutOfRange)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanoseconds(whole: &str, fraction: &str, unit: &str) -> Result<u64, InvalidDuration> {
    let unit: u64 = match unit {
        "" => return Err(InvalidDuration::MissingUnit),
        "ns" => 1,
        // Both the micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(InvalidDuration::UnknownUnit),
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| InvalidDuration::OutOfRange)? };
    // Digits beyond these are less than a nanosecond of an hour.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let digits = u32::try_from(fraction.len()).map_err(|_| InvalidDuration::OutOfRange)?;
    let numerator: u128 = if fraction.is_empty() { 0 } else { fraction.parse().unwrap_or(0) };
    let part = numerator * u128::from(unit) / 10_u128.pow(digits);
    let total = u128::from(whole) * u128::from(unit) + part;
    u64::try_from(total).map_err(|_| InvalidDuration::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_is_read() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("3s", 3_000_000_000),
            ("+5s", 5_000_000_000),
            ("-1s", -1_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("10μs", 10_000),
            ("100ms", 100_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (text, expected) in [
            ("", InvalidDuration::MissingNumber),
            ("-", InvalidDuration::MissingNumber),
            ("soon", InvalidDuration::MissingNumber),
            (".s", InvalidDuration::MissingNumber),
            ("+-1s", InvalidDuration::MissingNumber),
            (" 1s", InvalidDuration::MissingNumber),
            ("5", InvalidDuration::MissingUnit),
            ("1d", InvalidDuration::UnknownUnit),
            ("1 s", InvalidDuration::UnknownUnit),
            ("1day", InvalidDuration::UnknownUnit),
            ("9223372036854775808ns", InvalidDuration::OutOfRange),
            ("99999999999999999999h", InvalidDuration::OutOfRange),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
