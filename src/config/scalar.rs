//! The type of a plain YAML scalar, by the rules of YAML 1.1 as go-yaml v2 has them.

use zeroize::Zeroizing;

use super::document::Value;

/// Resolves a scalar that is neither quoted nor tagged.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" | "n" | "N" | "no" | "No"
        | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool,
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => Value::Number(None),
        _ => number(text).unwrap_or_else(|| Value::String(Zeroizing::new(text.to_owned()))),
    }
}

fn number(text: &str) -> Option<Value> {
    let first = text.chars().next()?;
    if first == '.' {
        return float(text);
    }
    if !first.is_ascii_digit() && first != '+' && first != '-' {
        return None;
    }
    let plain = Zeroizing::new(text.replace('_', ""));
    integer(&plain).or_else(|| float(&plain))
}

/// An integer as Go's `strconv.ParseInt` reads it with base 0.
fn integer(text: &str) -> Option<Value> {
    let (negative, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, magnitude.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, magnitude.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, magnitude.get(2..)?),
        [b'0', _, ..] => (8, magnitude.get(1..)?),
        _ => (10, magnitude),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    // Beyond 64 bits it is still a number, of a size that no field takes.
    let value = i128::from_str_radix(digits, radix).ok().map(|value| if negative { -value } else { value });
    Some(Value::Number(value.and_then(|value| i64::try_from(value).ok())))
}

/// A decimal fraction; one without a fractional part counts as an integer, because JSON is written in between.
fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    if !is_mantissa || exponent.is_some_and(|exponent| exponent.is_empty() || !all_digits(exponent)) {
        return None;
    }
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
    // Text such as `10` is exact below 2^53, far above what any field takes.
    let integral = value.fract() == 0.0 && value.abs() < 9e15;
    Some(Value::Number(if integral { format!("{value:.0}").parse().ok() } else { None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_1_1_words_are_bools() {
        for text in ["y", "Y", "yes", "on", "On", "TRUE", "n", "no", "OFF", "False"] {
            assert!(matches!(resolve(text), Value::Bool), "{text}");
        }
    }

    #[test]
    fn nothing_and_tilde_are_null() {
        for text in ["", "~", "null", "NULL"] {
            assert!(matches!(resolve(text), Value::Null), "{text}");
        }
    }

    #[test]
    fn numbers_have_prefixes_underscores_and_fractions() {
        for (text, expected) in [
            ("10", Some(10)),
            ("+10", Some(10)),
            ("-10", Some(-10)),
            ("1_000", Some(1000)),
            ("0x1F", Some(31)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0b101", Some(5)),
            ("-0b101", Some(-5)),
            ("08", Some(8)),
            ("10.0", Some(10)),
            ("1e3", Some(1000)),
            ("-0.0", Some(0)),
            ("1.5", None),
            (".5", None),
            ("1.", Some(1)),
            (".inf", None),
            ("99999999999999999999999999999999999999999999", None),
        ] {
            let Value::Number(value) = resolve(text) else { panic!("{text} is no number") };
            assert_eq!(value, expected, "{text}");
        }
    }

    #[test]
    fn the_rest_are_strings() {
        for text in [
            "key1",
            "2001-12-14",
            "1:30",
            "0xg",
            "-",
            "+",
            ".",
            "1e",
            "e1",
            "Null1",
            "yEs",
            "1e999",
            "nan",
            "inf",
            "-inf",
        ] {
            assert!(matches!(resolve(text), Value::String(_)), "{text}");
        }
    }
}
