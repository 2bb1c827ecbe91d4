use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::continue_token::escaped_for_html;
use crate::object::{self, Object};
use crate::secret::{Opened, Plaintext};

/// An error of whoever uses the store.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the store has to know of an object. Upstream: `storage.Versioner` and `meta.Accessor`.
pub trait StoredObject: Clone + Send + Sync + 'static {
    /// `metadata.resourceVersion`, empty when there is none.
    fn resource_version(&self) -> &str;

    /// Sets it; empty removes it.
    fn set_resource_version(&mut self, resource_version: String);

    /// Removes `metadata.selfLink`, which is never stored.
    fn clear_self_link(&mut self) {}

    /// `metadata.uid`, empty when there is none.
    fn uid(&self) -> Cow<'_, str>;
}

/// Turns objects into the bytes that are stored, before they are encrypted, and back. Upstream: `runtime.Codec` and `newFunc`.
///
/// Equal objects must give equal bytes: an update that changes nothing is known by that.
pub trait Codec: Send + Sync + 'static {
    /// The objects.
    type Object: StoredObject;

    /// An object without anything in it.
    fn new_object(&self) -> Self::Object;

    /// The bytes of an object.
    ///
    /// # Errors
    ///
    /// When it cannot be encoded.
    fn encode(&self, object: &Self::Object) -> Result<Vec<u8>, BoxError>;

    /// The object in some bytes.
    ///
    /// # Errors
    ///
    /// When there is none.
    fn decode(&self, data: &[u8]) -> Result<Self::Object, BoxError>;

    /// The same, of bytes that are needed no longer: a codec that keeps them need not copy what was decrypted.
    ///
    /// # Errors
    ///
    /// As [`Codec::decode`].
    fn decode_owned(&self, data: Plaintext<'_>) -> Result<Self::Object, BoxError> {
        self.decode(&data)
    }
}

/// Objects as JSON, byte for byte as API servers store custom resources: fields in the order of their names, texts escaped as Go does
/// it, and a line feed at the end. CustomResourceDefinitions and APIServices have their fields in another order.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonCodec;

/// An object of [`JsonCodec`]. `Debug` prints what it is, and nothing that is in it.
#[derive(Clone, Default, PartialEq)]
pub struct JsonObject(Map<String, Value>);

impl JsonObject {
    /// An object of these fields.
    #[must_use]
    pub const fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// The fields.
    #[must_use]
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The fields, to be changed.
    pub const fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    fn meta(&self, field: &str) -> &str {
        self.0.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
    }
}

impl From<Value> for JsonObject {
    /// Anything else than an object becomes an empty one.
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self(fields),
            _ => Self::default(),
        }
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonObject")
            .field("namespace", &self.meta("namespace"))
            .field("name", &self.meta("name"))
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

impl StoredObject for JsonObject {
    fn resource_version(&self) -> &str {
        self.meta("resourceVersion")
    }

    fn set_resource_version(&mut self, resource_version: String) {
        let metadata = self.0.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            if resource_version.is_empty() {
                metadata.remove("resourceVersion");
            } else {
                metadata.insert("resourceVersion".to_owned(), Value::String(resource_version));
            }
        }
    }

    fn clear_self_link(&mut self) {
        if let Some(Value::Object(metadata)) = self.0.get_mut("metadata") {
            metadata.remove("selfLink");
        }
    }

    fn uid(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.meta("uid"))
    }
}

impl Codec for JsonCodec {
    type Object = JsonObject;

    fn new_object(&self) -> JsonObject {
        JsonObject::default()
    }

    fn encode(&self, object: &JsonObject) -> Result<Vec<u8>, BoxError> {
        let mut json = escaped_for_html(&serde_json::to_string(&object.0)?);
        json.push('\n');
        Ok(json.into_bytes())
    }

    fn decode(&self, data: &[u8]) -> Result<JsonObject, BoxError> {
        // Where, but not what: it may be a secret.
        let fields = serde_json::from_slice(data).map_err(|error| NotJson { column: error.column() })?;
        Ok(JsonObject(fields))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not a JSON object (at column {column})")]
struct NotJson {
    column: usize,
}

/// Objects of any kind as the bytes that are stored: protobuf, JSON or CBOR. They are written as they are, so that nothing of an
/// object is lost that nobody here knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawCodec;

/// An object of [`RawCodec`]: its bytes, wiped when the last copy goes, and the revision that they do not have.
#[derive(Clone)]
pub struct RawObject {
    data: Arc<Opened>,
    resource_version: String,
}

impl RawObject {
    /// An object that is to be stored as these bytes.
    #[must_use]
    pub fn new(data: Vec<u8>) -> Self {
        Self { data: Arc::new(Opened::new(data)), resource_version: String::new() }
    }

    /// The bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// What the bytes say, with the resource version.
    ///
    /// # Errors
    ///
    /// When they are of no known form.
    pub fn decode(&self) -> Result<Object, object::Error> {
        let mut object = object::decode(&self.data)?;
        if let Ok(revision) = self.resource_version.parse() {
            object.set_resource_version(revision);
        }
        Ok(object)
    }
}

impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject").field("data", &self.data).field("resource_version", &self.resource_version).finish()
    }
}

impl StoredObject for RawObject {
    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn set_resource_version(&mut self, resource_version: String) {
        self.resource_version = resource_version;
    }

    fn uid(&self) -> Cow<'_, str> {
        let uid = object::decode(&self.data).ok().and_then(|object| {
            object.value.at(&["metadata", "uid"]).and_then(object::Value::as_str).map(str::to_owned)
        });
        Cow::Owned(uid.unwrap_or_default())
    }
}

impl Codec for RawCodec {
    type Object = RawObject;

    fn new_object(&self) -> RawObject {
        RawObject::new(Vec::new())
    }

    fn encode(&self, object: &RawObject) -> Result<Vec<u8>, BoxError> {
        Ok(object.data.to_vec())
    }

    fn decode(&self, data: &[u8]) -> Result<RawObject, BoxError> {
        object::identify(data)?;
        Ok(RawObject::new(data.to_vec()))
    }

    fn decode_owned(&self, data: Plaintext<'_>) -> Result<RawObject, BoxError> {
        match data {
            Plaintext::Stored(data) => self.decode(data),
            Plaintext::Opened(data) => {
                object::identify(&data)?;
                Ok(RawObject { data: Arc::new(data), resource_version: String::new() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the line feed and the escapes, an update that changes nothing wrote every custom resource anew.
    #[test]
    fn json_is_written_as_go_writes_it() {
        let object = JsonObject::from(serde_json::json!({"spec": {"text": "<a> & \u{2028}"}, "kind": "Widget"}));
        let json = JsonCodec.encode(&object).unwrap();
        assert_eq!(
            String::from_utf8(json.clone()).unwrap(),
            "{\"kind\":\"Widget\",\"spec\":{\"text\":\"\\u003ca\\u003e \\u0026 \\u2028\"}}\n"
        );
        assert_eq!(JsonCodec.decode(&json).unwrap(), object);
        assert_eq!(JsonCodec.decode(b"[1]").unwrap_err().to_string(), "not a JSON object (at column 0)");
    }

    #[test]
    fn objects_are_not_printed() {
        let json = JsonObject::from(serde_json::json!({"metadata": {"name": "a"}, "data": {"password": "hunter2"}}));
        let raw = RawObject::new(b"hunter2".to_vec());
        let printed = format!("{json:?} {raw:?}");
        assert!(printed.contains("name: \"a\"") && !printed.contains("hunter2"), "{printed}");
    }
}
