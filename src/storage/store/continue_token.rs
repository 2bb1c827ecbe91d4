use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::key::clean;

/// Upstream's `continueToken`, field by field in its order.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default, rename = "v")]
    api_version: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

const API_VERSION: &str = "meta.k8s.io/v1";

/// Why a continue token cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("continue key is not valid: {0}")]
pub struct InvalidContinue(&'static str);

/// The token with which a list goes on at a key, at a revision (upstream `storage.EncodeContinue`). -1 is the latest revision.
///
/// # Errors
///
/// When the key does not begin with the prefix.
pub fn encode_continue(key: &[u8], key_prefix: &str, revision: i64) -> Result<String, InvalidContinue> {
    let start = key.strip_prefix(key_prefix.as_bytes()).filter(|start| !start.is_empty());
    let start = start.ok_or(InvalidContinue("the key and key prefix do not match"))?;
    let token =
        Token { api_version: API_VERSION.to_owned(), rv: revision, start: String::from_utf8_lossy(start).into_owned() };
    let json = serde_json::to_string(&token).map_err(|_| InvalidContinue("it cannot be written"))?;
    Ok(URL_SAFE_NO_PAD.encode(escaped_for_html(&json)))
}

/// Where a list goes on: the key, and the revision (upstream `storage.DecodeContinue`).
///
/// # Errors
///
/// When it is no token, or leads out of the prefix.
pub fn decode_continue(token: &str, key_prefix: &str) -> Result<(String, i64), InvalidContinue> {
    // Go's decoder passes over line ends.
    let token: String = token.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let json = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidContinue("it is not base64"))?;
    let token: Token = serde_json::from_slice(&json).map_err(|_| InvalidContinue("it is not JSON"))?;
    if token.api_version != API_VERSION {
        return Err(InvalidContinue("server does not recognize this encoded version"));
    }
    if token.rv == 0 {
        return Err(InvalidContinue("incorrect encoded start resourceVersion"));
    }
    if token.start.is_empty() {
        return Err(InvalidContinue("encoded start key empty"));
    }
    let key = if token.start.starts_with('/') { token.start } else { format!("/{}", token.start) };
    if clean(&key) != key {
        return Err(InvalidContinue("the start key leads elsewhere"));
    }
    Ok((format!("{key_prefix}{}", key.get(1..).unwrap_or_default()), token.rv))
}

/// As Go's `encoding/json` writes texts.
pub(super) fn escaped_for_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_are_upstream_s_byte_for_byte() {
        // As Go writes {"v":"meta.k8s.io/v1","rv":1,"start":"a\\u0000"}.
        let token = encode_continue(b"/registry/pods/a\0", "/registry/pods/", 1).unwrap();
        assert_eq!(token, "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0");
        assert_eq!(decode_continue(&token, "/registry/pods/").unwrap(), ("/registry/pods/a\0".to_owned(), 1));
    }

    #[test]
    fn a_token_that_leads_elsewhere_is_refused() {
        let token = |v: &str, rv: i64, start: &str| {
            URL_SAFE_NO_PAD.encode(format!(r#"{{"v":{v:?},"rv":{rv},"start":"{start}"}}"#))
        };
        let decode = |token: String| decode_continue(&token, "/test/").map_err(|error| error.to_string());
        let invalid = |why: &str| Err(format!("continue key is not valid: {why}"));
        assert_eq!(decode(token(API_VERSION, 1, "key")), Ok(("/test/key".to_owned(), 1)));
        assert_eq!(decode(token(API_VERSION, -1, "/key")), Ok(("/test/key".to_owned(), -1)));
        assert_eq!(decode(token(API_VERSION, 0, "key")), invalid("incorrect encoded start resourceVersion"));
        assert_eq!(decode(token(API_VERSION, 1, "")), invalid("encoded start key empty"));
        assert_eq!(decode(token("v1", 1, "key")), invalid("server does not recognize this encoded version"));
        for elsewhere in ["../../key", "/../../key", "a/../b", "a//b", "a/./b", "a/"] {
            assert_eq!(
                decode(token(API_VERSION, 1, elsewhere)),
                invalid("the start key leads elsewhere"),
                "{elsewhere}"
            );
        }
        assert_eq!(decode("%".to_owned()), invalid("it is not base64"));
        assert_eq!(decode(URL_SAFE_NO_PAD.encode("[")), invalid("it is not JSON"));
        encode_continue(b"/other/key", "/test/", 1).unwrap_err();
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(token in ".{0,80}") {
            _ = decode_continue(&token, "/registry/");
        }

        #[test]
        fn what_is_encoded_is_decoded(start in "[a-z<>&.:@-]{1,20}(/[a-z0-9-]{1,10})?", revision in 1..i64::MAX) {
            prop_assume!(start != "." && start != "..");
            let key = format!("/registry/pods/{start}\0");
            prop_assume!(!start.split('/').any(|part| part == "." || part == ".."));
            let token = encode_continue(key.as_bytes(), "/registry/pods/", revision).unwrap();
            prop_assert_eq!(decode_continue(&token, "/registry/pods/"), Ok((key, revision)));
        }
    }
}
