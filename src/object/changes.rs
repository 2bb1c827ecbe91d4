//! What differs between two states of an object.

use super::{Map, Value};

/// A place at which two objects differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where, as kubectl's JSONPath has it: `.spec.ports[0].port`.
    pub path: String,
    /// What was there.
    pub from: Option<Value>,
    /// What is there now.
    pub to: Option<Value>,
}

/// Decoded objects are not nested deeper.
const MAX_DEPTH: usize = 128;

/// Compares two trees, place by place: the smallest parts that differ, in the order of their paths.
#[must_use]
pub fn changes(from: &Value, to: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(from, to, String::new(), 0, &mut found);
    found
}

fn compare(from: &Value, to: &Value, path: String, depth: usize, found: &mut Vec<Change>) {
    if from == to {
        return;
    }
    match (from, to) {
        (Value::Object(from), Value::Object(to)) if depth < MAX_DEPTH => compare_maps(from, to, &path, depth, found),
        (Value::Array(from), Value::Array(to)) if depth < MAX_DEPTH => {
            for index in 0..from.len().max(to.len()) {
                let path = format!("{path}[{index}]");
                compare_places(from.get(index), to.get(index), path, depth, found);
            }
        }
        _ => found.push(Change { path, from: Some(from.clone()), to: Some(to.clone()) }),
    }
}

fn compare_maps(from: &Map, to: &Map, path: &str, depth: usize, found: &mut Vec<Change>) {
    let only_to = to.iter().filter(|(key, _)| from.get(key).is_none());
    let mut keys: Vec<_> = from.iter().chain(only_to).map(|(key, _)| key).collect();
    keys.sort_unstable();
    for key in keys {
        compare_places(from.get(key), to.get(key), member(path, key), depth, found);
    }
}

fn compare_places(from: Option<&Value>, to: Option<&Value>, path: String, depth: usize, found: &mut Vec<Change>) {
    match (from, to) {
        (Some(from), Some(to)) => compare(from, to, path, depth + 1, found),
        (from, to) => found.push(Change { path, from: from.cloned(), to: to.cloned() }),
    }
}

/// Names with a dot, and what is no name, are quoted.
fn member(path: &str, key: &str) -> String {
    let is_plain =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if is_plain { format!("{path}.{key}") } else { format!("{path}['{}']", key.escape_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Value {
        let json = format!(r#"{{"apiVersion":"v1","kind":"X",{json}}}"#);
        super::super::decode(json.as_bytes()).unwrap().value
    }

    fn paths(from: &str, to: &str) -> Vec<(String, String, String)> {
        let shown =
            |value: Option<Value>| value.map_or_else(|| "-".to_owned(), |value| serde_json::to_string(&value).unwrap());
        let changes = changes(&object(from), &object(to)).into_iter();
        changes.map(|change| (change.path, shown(change.from), shown(change.to))).collect()
    }

    #[test]
    fn the_smallest_parts_that_differ_are_found() {
        let change = |path: &str, from: &str, to: &str| (path.to_owned(), from.to_owned(), to.to_owned());
        assert_eq!(paths(r#""a":1"#, r#""a":1"#), []);
        assert_eq!(
            paths(r#""a":{"b":1,"c":[1,2]},"d":"x","e.f":null"#, r#""a":{"b":2,"c":[1,2,{"k":3}]},"e.f":true,"g":[]"#),
            [
                change(".a.b", "1", "2"),
                change(".a.c[2]", "-", r#"{"k":3}"#),
                change(".d", r#""x""#, "-"),
                change("['e.f']", "null", "true"),
                change(".g", "-", "[]"),
            ]
        );
        assert_eq!(paths(r#""a":{"b":1}"#, r#""a":[1]"#), [change(".a", r#"{"b":1}"#, "[1]")]);
    }
}
