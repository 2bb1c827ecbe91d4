//! Secrets in base64 as Go's `base64.StdEncoding` reads them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::problem::{Placeholder, Problem};

/// Padding is required, and bits after the last byte need not be zero.
const GO_STD_ENCODING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The bytes of a secret; line breaks anywhere inside are skipped.
///
/// The error never holds a character that could be a part of the key.
pub(super) fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let mut packed = Zeroizing::new(Vec::with_capacity(text.len()));
    packed.extend(text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')));
    let mut bytes = Zeroizing::new(vec![0; base64::decoded_len_estimate(packed.len())]);
    match GO_STD_ENCODING.decode_slice(packed.as_slice(), bytes.as_mut_slice()) {
        Ok(length) => {
            bytes.truncate(length);
            Ok(bytes)
        }
        Err(_) => Err(placeholder(text)
            .map(|placeholder| Problem::Placeholder { placeholder })
            .or_else(|| illegal_character(text))
            .unwrap_or(Problem::Base64Padding)),
    }
}

/// Whether there is a line break to skip.
pub(super) fn has_line_breaks(text: &str) -> bool {
    text.contains(['\r', '\n'])
}

fn illegal_character(text: &str) -> Option<Problem> {
    let in_alphabet = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '\r' | '\n');
    let (offset, character) = text.char_indices().find(|&(_, c)| !in_alphabet(c))?;
    Some(Problem::IllegalBase64 { offset, character })
}

/// What the text is, if someone forgot to put a key there. Some placeholders are base64 of a few bytes.
pub(super) fn placeholder(text: &str) -> Option<Placeholder> {
    let text = text.trim();
    if text.starts_with("{{") || text.starts_with("{%") {
        return Some(Placeholder::Template);
    }
    if text.starts_with('$') || (text.starts_with('%') && text.ends_with('%')) {
        return Some(Placeholder::Variable);
    }
    if text.starts_with('<') && text.ends_with('>') {
        return Some(Placeholder::AngleBrackets);
    }
    let word = text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let known = ["redacted", "[redacted]", "changeme", "replaceme", "todo", "secret", "yoursecret", "xxx", "base64"];
    known.contains(&word.as_str()).then_some(Placeholder::Word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn line_breaks_are_skipped() {
        for text in [KEY.to_owned(), format!("{KEY}\n"), KEY.replace("QEB", "Q\r\nE\nB"), KEY.replace('=', "\n=")] {
            assert_eq!(decode(&text).as_deref(), Ok(&vec![1; 32]), "{text:?}");
        }
    }

    #[test]
    fn bits_after_the_last_byte_are_ignored() {
        assert_eq!(decode("MDEyMzQ1Njc4OWFiY2RlZh==").as_deref(), Ok(&b"0123456789abcdef".to_vec()));
    }

    #[test]
    fn padding_is_required() {
        for text in ["MDEyMzQ1Njc4OWFiY2RlZg", "MDEyMzQ1Njc4OWFiY2RlZg=", "AQ==AQ==", "A===", "=", "AAAA=", "AAAA===="]
        {
            assert_eq!(decode(text), Err(Problem::Base64Padding), "{text}");
        }
    }

    #[test]
    fn the_character_and_its_place_are_named() {
        assert_eq!(decode("not*base64=="), Err(Problem::IllegalBase64 { offset: 3, character: '*' }));
        assert_eq!(decode("AQEBAQ== "), Err(Problem::IllegalBase64 { offset: 8, character: ' ' }));
        assert_eq!(decode("_wEBAQ=="), Err(Problem::IllegalBase64 { offset: 0, character: '_' }));
        assert_eq!(
            decode("not*base64==").map_err(|error| error.to_string()).err().as_deref(),
            Some("illegal base64 data at input byte 3: '*'")
        );
    }

    #[test]
    fn a_key_is_no_placeholder() {
        assert_eq!(placeholder(KEY), None);
    }

    #[test]
    fn placeholders_are_recognised() {
        for (text, expected) in [
            ("${ENCRYPTION_KEY}", Placeholder::Variable),
            ("${ENCRYPTION_KEY} ", Placeholder::Variable),
            ("$KEY", Placeholder::Variable),
            ("%KEY%", Placeholder::Variable),
            ("{{ key }}", Placeholder::Template),
            ("<BASE 64 ENCODED SECRET>", Placeholder::AngleBrackets),
            ("REDACTED", Placeholder::Word),
            ("changeme", Placeholder::Word),
        ] {
            assert_eq!(placeholder(text), Some(expected), "{text}");
        }
    }
}
