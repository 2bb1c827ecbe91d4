//! What is asked of a decoded object, and what is hidden of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{Map, Object, Value};

/// Where `kubectl apply` keeps a copy of the whole object.
pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What every Secret may show.
const NO_SECRETS: [&str; 5] = ["apiVersion", "immutable", "kind", "metadata", "type"];

impl Object {
    /// `group/version`, or `version` alone in the core group. Never empty.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.text(&["apiVersion"]).unwrap_or_default()
    }

    /// The kind. Never empty.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text(&["kind"]).unwrap_or_default()
    }

    /// The name, unless the object has none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.text(&["metadata", "name"])
    }

    /// The namespace, unless the object has none.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.text(&["metadata", "namespace"])
    }

    /// Labels and their values, in the order of the labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.value.at(&["metadata", "labels"]).and_then(Value::as_object);
        labels.into_iter().flat_map(Map::iter).filter_map(|(label, value)| Some((label, value.as_str()?)))
    }

    fn text(&self, path: &[&str]) -> Option<&str> {
        self.value.at(path)?.as_str().filter(|text| !text.is_empty())
    }

    /// Sets `metadata.resourceVersion`, which is not stored: it is the revision of the key's last change
    /// (`mod_revision`), as
    /// `storage.APIObjectVersioner` has it.
    pub fn set_resource_version(&mut self, mod_revision: i64) {
        let Some(root) = self.value.as_object_mut() else { return };
        if root.get("metadata").is_none_or(|metadata| *metadata == Value::Null) {
            root.insert("metadata", Value::Object(Map::default()));
        }
        if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion", Value::from(mod_revision.to_string()));
        }
    }

    /// Leaves out `metadata.managedFields`, as `kubectl get` does without `--show-managed-fields`.
    pub fn hide_managed_fields(&mut self) {
        if let Some(metadata) = self.value.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }

    /// Whether this is a Secret of the core group.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.kind() == "Secret" && !self.api_version().contains('/')
    }

    /// Replaces what a Secret keeps by how long it is: `[REDACTED, 12 bytes]`. Keys stay. What has no place in a
    /// Secret, unknown fields and the copy that `kubectl apply` keeps in an annotation become `[REDACTED]`. Other
    /// objects stay as they are.
    pub fn redact_secret_data(&mut self) {
        self.replace_secret_data(|content| match content {
            Content::Data(bytes) => format!("[REDACTED, {} bytes]", bytes.len()),
            Content::Other(_) => "[REDACTED]".to_owned(),
        });
    }

    /// Replaces what a Secret keeps by a hash: `hash:` and 16 hexadecimal digits. What has no place in a Secret, unknown fields and
    /// the copy that `kubectl apply` keeps in an annotation are hashed in the same way.
    ///
    /// A hash is for comparing, and only with others that were made with the same salt. Whoever has the salt can confirm a guess, so
    /// that it is to be drawn anew and kept from everybody.
    pub fn hash_secret_data(&mut self, salt: &[u8; 32]) {
        self.replace_secret_data(|content| match content {
            Content::Data(bytes) | Content::Other(bytes) => {
                let hash = Sha256::new().chain_update(salt).chain_update(bytes).finalize();
                format!("hash:{}", hex::encode(hash.get(..8).unwrap_or_default()))
            }
        });
    }

    fn replace_secret_data(&mut self, replacement: impl Fn(Content<'_>) -> String) {
        let (is_secret, is_list_of_secrets) = (self.is_secret(), self.kind() == "SecretList");
        let Some(root) = self.value.as_object_mut() else { return };
        if is_secret {
            replace_in_secret(root, &replacement);
        }
        // A list is no stored object; it may be what somebody has at hand.
        let Some(Value::Array(items)) = root.get_mut("items") else { return };
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            let is = |field, wanted| item.get(field).and_then(Value::as_str) == Some(wanted);
            if is_list_of_secrets || (is("kind", "Secret") && is("apiVersion", "v1")) {
                replace_in_secret(item, &replacement);
            }
        }
    }
}

fn replace_in_secret(root: &mut Map, replacement: &impl Fn(Content<'_>) -> String) {
    for (key, value) in root.iter_mut() {
        match (key, &mut *value) {
            ("data", Value::Object(entries)) => {
                for (_, value) in entries.iter_mut() {
                    let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok()).map(Zeroizing::new);
                    *value = Value::from(match decoded {
                        Some(bytes) => replacement(Content::Data(&bytes)),
                        None => replacement(Content::Other(&json(value))),
                    });
                }
            }
            ("stringData", Value::Object(entries)) => {
                for (_, value) in entries.iter_mut() {
                    *value = Value::from(match value.as_str() {
                        Some(text) => replacement(Content::Data(text.as_bytes())),
                        None => replacement(Content::Other(&json(value))),
                    });
                }
            }
            ("metadata", Value::Object(metadata)) => {
                let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
                if let Some(copy) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) {
                    let replaced = match copy.as_str() {
                        Some(text) => replacement(Content::Other(text.as_bytes())),
                        None => replacement(Content::Other(&json(copy))),
                    };
                    *copy = Value::from(replaced);
                }
            }
            (_, Value::Null) => {}
            (key, _) if NO_SECRETS.contains(&key) => {}
            (_, other) => *value = Value::from(replacement(Content::Other(&json(other)))),
        }
    }
}

/// What a Secret keeps.
#[derive(Clone, Copy)]
enum Content<'a> {
    /// The bytes of a value.
    Data(&'a [u8]),
    /// Text, or the JSON of anything else.
    Other(&'a [u8]),
}

fn json(value: &Value) -> Zeroizing<Vec<u8>> {
    // It fails only if a key is no string, and all are.
    Zeroizing::new(serde_json::to_vec(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;

    const SECRET: &str = r#"{"apiVersion":"v1","kind":"Secret","type":"Opaque","immutable":true,
        "metadata":{"name":"s","namespace":"ns","labels":{"b":"2","a":"1"},"managedFields":[{}],
            "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2","note":"kept"}},
        "data":{"password":"aHVudGVyMg==","empty":"","odd":["hunter2"],"broken":"hunter2!"},
        "stringData":{"a":"hunter2"},
        "(unknown fields)":{"9":"hunter2"},"more":"hunter2","none":null}"#;

    fn secret() -> Object {
        decode(SECRET.as_bytes()).unwrap()
    }

    fn show(object: &Object) -> String {
        serde_json::to_string(&object.value).unwrap()
    }

    #[test]
    fn names_and_labels_are_found() {
        let secret = secret();
        assert_eq!((secret.api_version(), secret.kind()), ("v1", "Secret"));
        assert_eq!((secret.name(), secret.namespace()), (Some("s"), Some("ns")));
        assert_eq!(secret.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        let bare = decode(br#"{"apiVersion":"v1","kind":"K","metadata":{"name":"","labels":{"a":1}}}"#).unwrap();
        assert_eq!((bare.name(), bare.namespace(), bare.labels().count()), (None, None, 0));
    }

    #[test]
    fn the_resource_version_is_that_of_the_key() {
        for (metadata, shown) in [
            ("", r#"{"resourceVersion":"42"}"#),
            (r#","metadata":null"#, r#"{"resourceVersion":"42"}"#),
            (r#","metadata":{"resourceVersion":"7","uid":"u"}"#, r#"{"resourceVersion":"42","uid":"u"}"#),
            (r#","metadata":[]"#, "[]"),
        ] {
            let mut object = decode(format!(r#"{{"apiVersion":"v1","kind":"K"{metadata}}}"#).as_bytes()).unwrap();
            object.set_resource_version(42);
            assert_eq!(serde_json::to_string(object.value.get("metadata").unwrap()).unwrap(), shown);
        }
    }

    #[test]
    fn managed_fields_are_left_out() {
        let mut secret = secret();
        secret.hide_managed_fields();
        assert!(!show(&secret).contains("managedFields"));
        assert_eq!(secret.value.at(&["metadata"]).and_then(Value::as_object).map(Map::len), Some(4));
    }

    #[test]
    fn redacted_secrets_hold_no_secret() {
        let mut secret = secret();
        secret.redact_secret_data();
        secret.hide_managed_fields();
        assert_eq!(
            show(&secret),
            concat!(
                r#"{"(unknown fields)":"[REDACTED]","apiVersion":"v1","data":{"broken":"[REDACTED]","#,
                r#""empty":"[REDACTED, 0 bytes]","odd":"[REDACTED]","password":"[REDACTED, 7 bytes]"},"#,
                r#""immutable":true,"kind":"Secret","metadata":{"annotations":{"#,
                r#""kubectl.kubernetes.io/last-applied-configuration":"[REDACTED]","note":"kept"},"#,
                r#""labels":{"a":"1","b":"2"},"name":"s","namespace":"ns"},"more":"[REDACTED]","none":null,"#,
                r#""stringData":{"a":"[REDACTED, 7 bytes]"},"type":"Opaque"}"#
            )
        );
    }

    #[test]
    fn hashes_are_of_the_decoded_bytes() {
        let mut secret = secret();
        secret.hash_secret_data(&[7; 32]);
        let digest = Sha256::digest([&[7; 32][..], b"hunter2"].concat());
        let hunter2 = &*format!("hash:{}", hex::encode(&digest[..8]));
        for path in [
            ["data", "password"].as_slice(),
            &["stringData", "a"],
            &["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"],
        ] {
            assert_eq!(secret.value.at(path).and_then(Value::as_str), Some(hunter2), "{path:?}");
        }
        assert!(!show(&secret).contains("hunter2"));
    }

    /// `kubectl get secrets -o json` is a list.
    #[test]
    fn secrets_in_a_list_are_redacted() {
        for list in [
            format!(r#"{{"apiVersion":"v1","kind":"List","items":[{SECRET}]}}"#),
            r#"{"apiVersion":"v1","kind":"SecretList","items":[{"data":{"a":"aHVudGVyMg=="}}]}"#.to_owned(),
        ] {
            let mut object = decode(list.as_bytes()).unwrap();
            object.redact_secret_data();
            let shown = show(&object);
            assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg"), "{shown}");
            assert!(shown.contains("[REDACTED, 7 bytes]"), "{shown}");
        }
    }

    #[test]
    fn other_kinds_are_no_secrets() {
        for text in [SECRET.replace(r#""Secret""#, r#""ConfigMap""#), SECRET.replace(r#""v1""#, r#""example.com/v1""#)]
        {
            let object = decode(text.as_bytes()).unwrap();
            let mut redacted = object.clone();
            redacted.redact_secret_data();
            redacted.hash_secret_data(&[7; 32]);
            assert!(redacted == object);
        }
    }
}
