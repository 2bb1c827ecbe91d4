//! An object as JSON: one document of UTF-8, read to its end.

use std::borrow::Cow;
use std::{fmt, str};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Error, Format, Found, Metadata};

/// Reads a document.
///
/// Go replaces bytes that are not UTF-8 instead of refusing them, but it never writes any, so here they are damage.
pub(super) fn read(plaintext: &[u8]) -> Result<Found<'_>, Error> {
    let format = Format::Json;
    let text = str::from_utf8(plaintext).map_err(|error| match error.error_len() {
        Some(_) => Error::Malformed { format, offset: error.valid_up_to() },
        None => Error::Truncated { format, offset: error.valid_up_to() },
    })?;
    // The message of serde_json may quote the document, so only the place survives.
    serde_json::from_str(text).map_err(|error| {
        let offset = offset_of(text, error.line(), error.column());
        if error.is_eof() { Error::Truncated { format, offset } } else { Error::Malformed { format, offset } }
    })
}

/// serde_json counts lines, and bytes in a line, from one.
pub(super) fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    before.saturating_add(column.saturating_sub(1)).min(text.len())
}

/// A string that is borrowed from the document unless it has escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// A value of a map that is being read: a string, or null, which Go takes for none.
fn next_text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    Ok(map.next_value::<Option<Text<'de>>>()?.map(|text| text.0))
}

impl<'de> Deserialize<'de> for Found<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FoundVisitor;

        // Derived code would refuse a field that occurs twice. Here the last one counts, as in Go.
        impl<'de> Visitor<'de> for FoundVisitor {
            type Value = Found<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Found::default();
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        "apiVersion" => found.api_version = next_text(&mut map)?,
                        "kind" => found.kind = next_text(&mut map)?,
                        "metadata" => found.metadata = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(found)
            }
        }

        deserializer.deserialize_map(FoundVisitor)
    }
}

impl<'de> Deserialize<'de> for Metadata<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;

        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object's metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut metadata = Metadata::default();
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        "namespace" => metadata.namespace = next_text(&mut map)?,
                        "name" => metadata.name = next_text(&mut map)?,
                        "uid" => metadata.uid = next_text(&mut map)?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(metadata)
            }
        }

        deserializer.deserialize_map(MetadataVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::identify;
    use super::*;

    fn show(text: &str) -> Result<String, Error> {
        let identity = identify(text.as_bytes())?;
        let part = |text: Option<Cow<'_, str>>| text.map_or("-".to_owned(), Cow::into_owned);
        let (namespace, name, uid) = (part(identity.namespace), part(identity.name), part(identity.uid));
        Ok(format!("{} {} {namespace} {name} {uid}", identity.api_version, identity.kind))
    }

    #[test]
    fn documents_are_identified() {
        for (text, expected) in [
            (r#"{"apiVersion":"v1","kind":"K"}"#, "v1 K - - -"),
            (r#"{"metadata":{"uid":"u","name":"n"},"kind":"K","apiVersion":"v1"}"#, "v1 K - n u"),
            (" \r\n\t{\"apiVersion\" : \"v1\", \"kind\":\"K\"}\n ", "v1 K - - -"),
            (r#"{"apiVersion":"v1","kind":"K","metadata":{"namespace":"","name":null}}"#, "v1 K - - -"),
            (r#"{"apiVersion":"v1","kind":"K","metadata":null}"#, "v1 K - - -"),
            (
                r#"{"apiVersion":"v1","kind":"\u004b","k\u0069nd2":1,"metadata":{"\u006eame":"\u00e9"}}"#,
                "v1 K - \u{e9} -",
            ),
        ] {
            assert_eq!(show(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let text = r#"{"apiVersion":"v0","kind":"K","kind":"L","apiVersion":"v1","a":1,"a":2,
            "metadata":{"name":"m","namespace":"a"},"metadata":{"name":"m","name":"n"}}"#;
        assert_eq!(show(text).as_deref(), Ok("v1 L - n -"));
    }

    #[test]
    fn names_are_borrowed() {
        let identity = identify(br#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n"}}"#).unwrap();
        assert!(matches!(identity.name, Some(Cow::Borrowed("n"))));
    }

    #[test]
    fn deep_documents_do_not_exhaust_the_stack() {
        let deep = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        let text = format!(r#"{{"apiVersion":"v1","kind":"K","spec":{deep}}}"#);
        assert_eq!(show(&text).as_deref(), Ok("v1 K - - -"));
    }

    #[test]
    fn documents_are_read_to_their_end() {
        let format = Format::Json;
        let malformed = |offset| Error::Malformed { format, offset };
        let truncated = |offset| Error::Truncated { format, offset };
        for (text, error) in [
            (r#"{"apiVersion":"v1","kind":"K"}x"#.as_bytes(), malformed(30)),
            (br#"{"apiVersion":"v1","kind":"K"}{}"#, malformed(30)),
            (b"{\"kind\":\"K\",\n\"a\":tru,\n\"b\":1}", malformed(20)),
            (b"{\"a\":\"\xff\"}", malformed(6)),
            (b"{\"a\":\"\xc3", truncated(6)),
            (b"{\"a\":\"", truncated(5)),
            (br#"{"kind":"K"}"#, Error::MissingApiVersion { format }),
            (br#"{"apiVersion":"v1"}"#, Error::MissingKind { format }),
            (br#"{"apiVersion":"v1","kind":null}"#, Error::MissingKind { format }),
            (b"{}", Error::MissingKind { format }),
        ] {
            assert_eq!(identify(text), Err(error), "{}", text.escape_ascii());
        }
        for text in [r#"{"kind":1}"#, r#"{"metadata":[]}"#, r#"{"metadata":{"name":{}}}"#] {
            assert!(matches!(show(text), Err(Error::Malformed { .. })), "{text}");
        }
    }
}
