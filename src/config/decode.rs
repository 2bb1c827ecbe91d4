//! A tree as the fields of the type, strictly: unknown fields, repeated ones and other types are errors.
//!
//! Decoding goes on after an error. What could not be decoded is `Field::Broken`, so that nothing is said about it twice.

use std::collections::{HashMap, HashSet};

use zeroize::Zeroizing;

use super::diagnostic::{Diagnostic, Position, shown};
use super::document::{Document, Entry, Node, Value};
use super::duration;
use super::fields::{Field, KeyFields, KeysFields, KmsFields, List, Path, ProviderFields, ResourceFields, Root};
use super::problem::{NodeType, Problem, shape};

/// Decodes a document; nothing if it is no `EncryptionConfiguration` at all.
pub(super) fn decode(document: Document, errors: &mut Vec<Diagnostic>) -> Option<Root> {
    let Node { position, value } = document.root;
    match value.node_type() {
        NodeType::Mapping => Decoder { errors }.root(Field::Given(value, position)),
        // Nothing but comments.
        NodeType::Null => {
            errors.push(Diagnostic::new("", position, Problem::MissingKindAndApiVersion));
            None
        }
        found => {
            errors.push(Diagnostic::new("", position, Problem::NotMapping { found }));
            None
        }
    }
}

/// The known fields of a mapping, each once.
struct Fields {
    position: Position,
    entries: Vec<Entry>,
}

impl Fields {
    fn take(&mut self, name: &str) -> Field<Value> {
        match self.entries.iter().position(|entry| entry.key.as_str() == name) {
            Some(index) => Field::from(self.entries.swap_remove(index).value),
            None => Field::Absent(self.position),
        }
    }
}

struct Decoder<'a> {
    errors: &'a mut Vec<Diagnostic>,
}

impl Decoder<'_> {
    fn error(&mut self, path: &Path<'_>, position: Position, problem: Problem) {
        self.errors.push(Diagnostic::new(path, position, problem));
    }

    fn root(&mut self, value: Field<Value>) -> Option<Root> {
        let path = Path::Root;
        let mut fields = self.mapping(&path, value, &["apiVersion", "kind", "resources"])?;
        let resources = fields.take("resources");
        let position = fields.position;
        let api_version = self.string(&path.field("apiVersion"), fields.take("apiVersion"));
        let kind = self.string(&path.field("kind"), fields.take("kind"));
        let header = self.header(&api_version, &kind, position);
        if header.is_none() && matches!(resources, Field::Absent(_)) {
            // Another object altogether: its own fields are no errors.
            let is_foreign = |problem: &Problem| matches!(problem, Problem::UnknownField { suggestion: None, .. });
            self.errors.retain(|error| !is_foreign(&error.problem));
            return None;
        }
        let resources = self.list(&path.field("resources"), resources, Self::resource);
        Some(Root { resources, legacy_header: header.flatten() })
    }

    /// The place of a legacy header, `Some(None)` for the usual one, or `None` for any other, which is reported.
    fn header(
        &mut self,
        api_version: &Field<Zeroizing<String>>,
        kind: &Field<Zeroizing<String>>,
        position: Position,
    ) -> Option<Option<Position>> {
        if matches!(api_version, Field::Broken) || matches!(kind, Field::Broken) {
            return None;
        }
        let text = |field: &Field<Zeroizing<String>>| field.get().map_or(String::new(), |(text, _)| text.to_string());
        let at = |field: &Field<Zeroizing<String>>| field.get().map_or(position, |(_, position)| position);
        let (problem, at) = match (text(api_version).as_str(), text(kind).as_str()) {
            ("apiserver.config.k8s.io/v1", "EncryptionConfiguration") => return Some(None),
            ("v1", "EncryptionConfig") => return Some(Some(at(kind))),
            ("", "") => (Problem::MissingKindAndApiVersion, position),
            ("", _) => (Problem::MissingApiVersion, position),
            (_, "") => (Problem::MissingKind, position),
            (version, kind) => {
                (Problem::UnsupportedVersion { api_version: shown(version), kind: shown(kind) }, at(api_version))
            }
        };
        self.error(&Path::Root, at, problem);
        None
    }

    fn resource(&mut self, path: &Path<'_>, value: Field<Value>) -> Option<ResourceFields> {
        let mut fields = self.mapping(path, value, &["resources", "providers"])?;
        let resources = self.list(&path.field("resources"), fields.take("resources"), |decoder, path, value| {
            // Go leaves the string empty for a null.
            match decoder.text(path, value) {
                Field::Given(text, _) => Some(text),
                Field::Absent(_) => Some(String::new()),
                Field::Broken => None,
            }
        });
        let providers = self.list(&path.field("providers"), fields.take("providers"), Self::provider);
        Some(ResourceFields { resources, providers })
    }

    fn provider(&mut self, path: &Path<'_>, value: Field<Value>) -> Option<ProviderFields> {
        let mut fields = self.mapping(path, value, &["aesgcm", "aescbc", "secretbox", "identity", "kms"])?;
        let mut has_broken = false;
        let mut keys = |decoder: &mut Self, name| match fields.take(name) {
            Field::Absent(_) => None,
            value => {
                let keys = decoder.keys(&path.field(name), value);
                has_broken |= keys.is_none();
                keys
            }
        };
        let (aesgcm, aescbc, secretbox) = (keys(self, "aesgcm"), keys(self, "aescbc"), keys(self, "secretbox"));
        let identity = match fields.take("identity") {
            Field::Absent(_) => false,
            value => {
                let identity = self.mapping(&path.field("identity"), value, &[]);
                has_broken |= identity.is_none();
                identity.is_some()
            }
        };
        let kms = match fields.take("kms") {
            Field::Absent(_) => None,
            value => {
                let kms = self.kms(&path.field("kms"), value);
                has_broken |= kms.is_none();
                kms
            }
        };
        Some(ProviderFields { aesgcm, aescbc, secretbox, identity, kms, has_broken })
    }

    fn keys(&mut self, path: &Path<'_>, value: Field<Value>) -> Option<KeysFields> {
        let mut fields = self.mapping(path, value, &["keys"])?;
        let keys = self.list(&path.field("keys"), fields.take("keys"), |decoder, path, value| {
            let mut fields = decoder.mapping(path, value, &["name", "secret"])?;
            let name = decoder.string(&path.field("name"), fields.take("name"));
            let secret = decoder.string(&path.field("secret"), fields.take("secret"));
            Some(KeyFields { name, secret })
        });
        Some(KeysFields { keys })
    }

    fn kms(&mut self, path: &Path<'_>, value: Field<Value>) -> Option<KmsFields> {
        let known = ["apiVersion", "name", "endpoint", "timeout", "cachesize"];
        let mut fields = self.mapping(path, value, &known)?;
        Some(KmsFields {
            api_version: self.text(&path.field("apiVersion"), fields.take("apiVersion")),
            name: self.text(&path.field("name"), fields.take("name")),
            endpoint: self.text(&path.field("endpoint"), fields.take("endpoint")),
            timeout: self.duration(&path.field("timeout"), fields.take("timeout")),
            cache_size: self.int32(&path.field("cachesize"), fields.take("cachesize")),
        })
    }

    fn mapping(&mut self, path: &Path<'_>, value: Field<Value>, known: &[&'static str]) -> Option<Fields> {
        let (entries, position) = match value {
            Field::Absent(position) => (Vec::new(), position),
            Field::Broken => return None,
            Field::Given(Value::Mapping(entries), position) => (entries, position),
            Field::Given(value, position) => {
                return self.wrong_type(path, position, NodeType::Mapping, &value);
            }
        };
        // The last of several counts, and is checked as well.
        let mut last: HashMap<&str, (usize, Position)> = HashMap::new();
        for (index, Entry { key, position, .. }) in entries.iter().enumerate() {
            let name = shown(key);
            let path = path.field(&name);
            if let Some((_, first)) = last.insert(key, (index, *position)) {
                self.error(&path, *position, Problem::DuplicateField { name: name.clone(), first });
            } else if !known.contains(&key.as_str()) {
                let suggestion = known.iter().copied().find(|known| known.eq_ignore_ascii_case(key));
                let belongs_in = if suggestion.is_none() { parent_of(key) } else { None };
                let problem = Problem::UnknownField { name: name.clone(), suggestion, belongs_in };
                self.error(&path, *position, problem);
            }
        }
        let kept: HashSet<usize> = known.iter().filter_map(|name| last.get(name)).map(|(index, _)| *index).collect();
        let numbered = entries.into_iter().enumerate();
        let entries = numbered.filter(|(index, _)| kept.contains(index)).map(|(_, entry)| entry).collect();
        Some(Fields { position, entries })
    }

    fn list<T>(
        &mut self,
        path: &Path<'_>,
        value: Field<Value>,
        decode: impl Fn(&mut Self, &Path<'_>, Field<Value>) -> Option<T>,
    ) -> List<T> {
        value.and_then(|value, position| match value {
            Value::List(nodes) => {
                let mut elements = Vec::with_capacity(nodes.len());
                for (index, node) in nodes.into_iter().enumerate() {
                    let position = node.position;
                    let element = decode(self, &path.index(index), Field::from(node));
                    elements.push(element.map(|element| (element, position)));
                }
                Some(elements)
            }
            value => self.wrong_type(path, position, NodeType::List, &value),
        })
    }

    fn string(&mut self, path: &Path<'_>, value: Field<Value>) -> Field<Zeroizing<String>> {
        value.and_then(|value, position| match value {
            Value::String(text) => Some(text),
            value => self.wrong_type(path, position, NodeType::String, &value),
        })
    }

    /// A string that is no secret.
    fn text(&mut self, path: &Path<'_>, value: Field<Value>) -> Field<String> {
        self.string(path, value).and_then(|mut text, _| Some(std::mem::take(&mut *text)))
    }

    fn duration(&mut self, path: &Path<'_>, value: Field<Value>) -> Field<i64> {
        self.string(path, value).and_then(|text, position| match duration::parse(&text) {
            Ok(nanoseconds) => Some(nanoseconds),
            Err(reason) => {
                self.error(path, position, Problem::InvalidDuration { text: shown(&text), reason });
                None
            }
        })
    }

    fn int32(&mut self, path: &Path<'_>, value: Field<Value>) -> Field<i32> {
        value.and_then(|value, position| match value {
            Value::Number(number) => {
                let number = number.and_then(|number| i32::try_from(number).ok());
                if number.is_none() {
                    self.error(path, position, Problem::NotInt32);
                }
                number
            }
            value => self.wrong_type(path, position, NodeType::Number, &value),
        })
    }

    /// Reports a value of another type than expected; there is nothing to be made of it.
    fn wrong_type<T>(&mut self, path: &Path<'_>, position: Position, expected: NodeType, found: &Value) -> Option<T> {
        let is_block = matches!(expected, NodeType::List | NodeType::Mapping);
        let shape = is_block.then(|| shape(path.last_field()));
        self.error(path, position, Problem::WrongType { expected, found: found.node_type(), shape });
        None
    }
}

/// Where a field of this name belongs, for fields that lost their indentation.
fn parent_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "resources" | "providers" => "resources",
        "aesgcm" | "aescbc" | "secretbox" | "identity" | "kms" => "providers",
        "keys" => "aescbc",
        "secret" => "keys",
        "endpoint" | "timeout" | "cachesize" => "kms",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let mut errors = Vec::new();
        let document = document::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        decode(document, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn errors_of_provider(text: &str) -> Vec<String> {
        errors(&format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
             - resources: [secrets]\n  providers: [{text}]\n"
        ))
    }

    #[test]
    fn unknown_fields_have_path_and_place() {
        assert_eq!(
            errors_of_provider("{kms: {pandas: 1, cacheSize: 10}}"),
            [
                "5:22: resources[0].providers[0].kms.pandas: unknown field \"pandas\"",
                "5:33: resources[0].providers[0].kms.cacheSize: unknown field \"cacheSize\", did you mean \"cachesize\"?"
            ]
        );
    }

    #[test]
    fn identity_has_no_fields() {
        assert_eq!(
            errors_of_provider("{identity: {a: 1}}"),
            ["5:27: resources[0].providers[0].identity.a: unknown field \"a\""]
        );
    }

    #[test]
    fn duplicate_fields_name_the_first() {
        assert_eq!(
            errors_of_provider("{aescbc: {keys: [], keys: 1}}"),
            [
                "5:35: resources[0].providers[0].aescbc.keys: duplicate field \"keys\", first set at 5:25",
                "5:41: resources[0].providers[0].aescbc.keys: expected a list, found a number"
            ]
        );
    }

    #[test]
    fn a_merge_key_that_sets_a_field_again_is_a_duplicate() {
        assert_eq!(
            errors_of_provider("{aescbc: {keys: [&k {name: a, secret: QQ==}, {<<: *k, name: b}]}}"),
            ["5:69: resources[0].providers[0].aescbc.keys[1].name: duplicate field \"name\", first set at 5:36"]
        );
        assert_eq!(errors_of_provider("{aescbc: {keys: [&k {name: a}, {<<: *k, secret: QQ==}]}}"), [""; 0]);
    }

    #[test]
    fn wrong_types_are_named() {
        assert_eq!(
            errors_of_provider("{aescbc: {keys: [{name: 1, secret: yes}]}}, 5, {kms: {timeout: 5, cachesize: '10'}}"),
            [
                "5:39: resources[0].providers[0].aescbc.keys[0].name: expected a string, found a number",
                "5:50: resources[0].providers[0].aescbc.keys[0].secret: expected a string, found a bool",
                "5:59: resources[0].providers[1]: expected a mapping, found a number",
                "5:78: resources[0].providers[2].kms.timeout: expected a string, found a number",
                "5:92: resources[0].providers[2].kms.cachesize: expected a number, found a string"
            ]
        );
    }

    #[test]
    fn the_cache_size_is_an_integer_of_32_bits() {
        for text in ["10", "10.0", "-1", "2147483647", "0x10", "null"] {
            assert_eq!(errors_of_provider(&format!("{{kms: {{cachesize: {text}}}}}")), [""; 0], "{text}");
        }
        for text in ["1.5", "2147483648", ".inf"] {
            assert_eq!(
                errors_of_provider(&format!("{{kms: {{cachesize: {text}}}}}")),
                ["5:33: resources[0].providers[0].kms.cachesize: expected an integer of 32 bits"],
                "{text}"
            );
        }
    }

    #[test]
    fn a_duration_is_gos() {
        assert_eq!(
            errors_of_provider("{kms: {timeout: 1d}}, {kms: {timeout: ''}}"),
            [
                "5:31: resources[0].providers[0].kms.timeout: invalid duration \"1d\": unknown unit, expected ns, us, ms, \
                 s, m or h",
                "5:53: resources[0].providers[1].kms.timeout: invalid duration \"\": a number is missing"
            ]
        );
    }

    #[test]
    fn headers_are_told_apart() {
        let unsupported = |line, kind, version| {
            format!(
                "{line}: no kind {kind:?} in version {version:?}; accepted are EncryptionConfiguration in \
                 apiserver.config.k8s.io/v1 and EncryptionConfig in v1"
            )
        };
        assert_eq!(errors("{}"), ["1:1: kind and apiVersion are missing"]);
        assert_eq!(errors("# nothing\n"), ["1:1: kind and apiVersion are missing"]);
        assert_eq!(errors("kind: EncryptionConfiguration"), ["1:1: apiVersion is missing"]);
        assert_eq!(errors("apiVersion: v1"), ["1:1: kind is missing"]);
        assert_eq!(errors("hello"), ["1:1: the document must be a mapping, found a string"]);
        assert_eq!(
            errors("kind: EncryptionConfiguration\napiVersion: v1"),
            [unsupported("2:13", "EncryptionConfiguration", "v1")]
        );
        assert_eq!(errors("apiVersion: v1\nkind: Pod\nmetadata: {name: a}"), [unsupported("1:13", "Pod", "v1")]);
        assert_eq!(
            errors("apiVersion: apiserver.config.k8s.io/__internal\nkind: EncryptionConfiguration"),
            [unsupported("1:13", "EncryptionConfiguration", "apiserver.config.k8s.io/__internal")]
        );
    }

    #[test]
    fn the_rest_is_checked_under_a_wrong_header() {
        let errors = errors("apiVersion: v2\nkind: EncryptionConfiguration\nresources: 5");
        assert_eq!(errors.get(1).map(String::as_str), Some("3:12: resources: expected a list, found a number"));
    }

    #[test]
    fn a_field_name_that_may_be_a_key_is_not_repeated() {
        let secret = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
        assert_eq!(
            errors_of_provider(&format!("{{{secret}: 1}}")),
            ["5:16: resources[0].providers[0].[REDACTED]: unknown field \"[REDACTED]\""]
        );
    }
}
