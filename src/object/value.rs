//! The content of an object as a tree, whatever encoding it was stored in.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use zeroize::Zeroize as _;

/// What JSON has, with integers told from other numbers as Kubernetes' unstructured objects do.
///
/// `Debug` shows the type only, and strings are wiped when dropped; `Serialize` is the way out.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number that Go prints without a fraction and that an `int64` holds.
    Int(i64),
    /// An integer above the largest `int64`.
    UInt(u64),
    /// Any other number: finite.
    Float(f64),
    /// A string.
    String(Text),
    /// A list.
    Array(Vec<Value>),
    /// An object, by its keys in their order.
    Object(Map),
}

/// A string that is wiped when dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(String);

/// An object's keys, each once and in the order of their bytes, with their values.
#[derive(Clone, Default, PartialEq)]
pub struct Map(Vec<(Key, Value)>);

/// A key of the schema, which is no secret and need not be copied, or one of the data.
#[derive(Clone)]
pub(super) enum Key {
    Field(&'static str),
    Data(Text),
}

impl Value {
    /// A number as JSON has them, where `1.0` and `1` are the same.
    ///
    /// What is neither finite nor a number has no place in JSON, and becomes the text that Go prints for it.
    pub(super) fn number(number: f64) -> Self {
        /// Up to here each integer has a float of its own.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.is_nan() {
            Self::from("NaN")
        } else if number.is_infinite() {
            Self::from(if number > 0.0 { "+Inf" } else { "-Inf" })
        } else if number.fract() == 0.0 && number.abs() <= EXACT && (number != 0.0 || number.is_sign_positive()) {
            #[expect(clippy::cast_possible_truncation, reason = "an integer, and small enough")]
            Self::Int(number as i64)
        } else {
            Self::Float(number)
        }
    }

    /// The value of a key, unless this is no object or has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The value of a key, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Takes a key out of an object.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.as_object_mut()?.remove(key)
    }

    /// What is at the end of a path of keys, and of positions in lists, counted from zero.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, step| match value {
            Self::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => value.get(step),
        })
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// A truth value.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// An integer that an `int64` holds.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The keys and values of an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The keys and values of an object, to be changed.
    #[must_use]
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(Text::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(Text(text))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::UInt(value), Self::Int)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::UInt(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(map) => map.serialize(serializer),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "Null",
            Self::Bool(_) => "Bool([REDACTED])",
            Self::Int(_) => "Int([REDACTED])",
            Self::UInt(_) => "UInt([REDACTED])",
            Self::Float(_) => "Float([REDACTED])",
            Self::String(_) => "String([REDACTED])",
            Self::Array(_) => "Array([REDACTED])",
            Self::Object(_) => "Object([REDACTED])",
        })
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_bytes().as_mut_slice().zeroize();
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text([REDACTED], {} bytes)", self.0.len())
    }
}

impl Map {
    /// Puts entries in order; of those with equal keys the last counts, as in Go.
    pub(super) fn from_entries(mut entries: Vec<(Key, Value)>) -> Self {
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self(entries)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(self.find(key).ok()?).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let index = self.find(key).ok()?;
        self.0.get_mut(index).map(|(_, value)| value)
    }

    /// Sets the value of a key, and gives back the one that it had.
    pub fn insert(&mut self, key: &str, value: Value) -> Option<Value> {
        match self.find(key) {
            Ok(index) => self.0.get_mut(index).map(|(_, old)| std::mem::replace(old, value)),
            Err(index) => {
                self.0.insert(index, (Key::from(key), value));
                None
            }
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.find(key).ok().map(|index| self.0.remove(index).1)
    }

    /// All keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// All keys with their values to be changed, in the order of the keys.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_entries(self) -> Vec<(Key, Value)> {
        self.0
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(this, _)| this.as_str().cmp(key))
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map([REDACTED], {} keys)", self.len())
    }
}

impl Key {
    fn as_str(&self) -> &str {
        match self {
            Self::Field(name) => name,
            Self::Data(text) => text,
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self::Data(Text::from(key))
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self::Data(Text(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, i64)]) -> Map {
        Map::from_entries(entries.iter().map(|(key, value)| (Key::from(*key), Value::Int(*value))).collect())
    }

    #[test]
    fn keys_are_in_order_and_the_last_of_equal_ones_counts() {
        let json = |map: &Map| serde_json::to_string(map).unwrap();
        let mut map = map(&[("b", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5), ("", 6)]);
        assert_eq!(json(&map), r#"{"":6,"a":4,"b":5}"#);
        assert_eq!(map.insert("aa", Value::Null), None);
        assert_eq!(map.insert("b", Value::from("x")), Some(Value::Int(5)));
        assert_eq!(map.remove("a"), Some(Value::Int(4)));
        assert_eq!(map.remove("a"), None);
        assert_eq!(json(&map), r#"{"":6,"aa":null,"b":"x"}"#);
    }

    #[test]
    fn paths_lead_through_objects_and_lists() {
        let list = Value::Array(vec![Value::Null, Value::Object(map(&[("a/b", 7)]))]);
        assert_eq!(list.at(&["1", "a/b"]), Some(&Value::Int(7)));
        assert_eq!(list.at(&[]), Some(&list));
        assert_eq!((list.at(&["2"]), list.at(&["x"]), list.at(&["1", "a/b", "c"])), (None, None, None));
    }

    #[test]
    fn numbers_are_integers_when_go_prints_them_so() {
        let json = |number| serde_json::to_string(&Value::number(number)).unwrap();
        for (number, expected) in [
            (1.0, "1"),
            (-3.0, "-3"),
            (0.0, "0"),
            (-0.0, "-0.0"),
            (0.5, "0.5"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (f64::NAN, r#""NaN""#),
            (f64::NEG_INFINITY, r#""-Inf""#),
        ] {
            assert_eq!(json(number), expected);
        }
        assert_eq!(Value::from(u64::MAX), Value::UInt(u64::MAX));
        assert_eq!(Value::from(5_u64), Value::Int(5));
    }

    #[test]
    fn debug_shows_no_content() {
        let secret = Value::from("hunter2");
        assert_eq!(format!("{secret:?}"), "String([REDACTED])");
        assert_eq!(format!("{:?}", Text::from("hunter2")), "Text([REDACTED], 7 bytes)");
        let map = Map::from_entries(vec![(Key::from("hunter2"), secret)]);
        assert_eq!(format!("{map:?} {:?}", Value::Object(map.clone())), "Map([REDACTED], 1 keys) Object([REDACTED])");
    }
}
