//! Everything that can be wrong with a file.

use std::fmt;

use serde::Serialize;

use super::diagnostic::Position;
use super::duration::InvalidDuration;
use super::endpoint::InvalidEndpoint;

/// The type of a value in JSON or YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are JSON's")]
pub enum NodeType {
    Null,
    Bool,
    Number,
    String,
    List,
    Mapping,
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeType::Null => "null",
            NodeType::Bool => "a bool",
            NodeType::Number => "a number",
            NodeType::String => "a string",
            NodeType::List => "a list",
            NodeType::Mapping => "a mapping",
        })
    }
}

/// The language of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// The first character is `{`.
    Json,
    /// Everything else.
    Yaml,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Json => "JSON",
            Format::Yaml => "YAML",
        })
    }
}

/// Text that stands where a key should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Placeholder {
    /// `${ENCRYPTION_KEY}` or `$ENCRYPTION_KEY`.
    Variable,
    /// `{{ key }}`.
    Template,
    /// `<BASE 64 ENCODED SECRET>`.
    AngleBrackets,
    /// `REDACTED`, `changeme` and the like.
    Word,
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placeholder::Variable => "an unexpanded variable",
            Placeholder::Template => "an unexpanded template",
            Placeholder::AngleBrackets => "a placeholder in angle brackets",
            Placeholder::Word => "a placeholder word",
        })
    }
}

/// Everything that can be wrong with a file, or strange in one that loads.
///
/// The one who wrote the file can fix each of them. No variant holds text that may be key material.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Problem {
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The bytes are not text.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// A character that YAML does not allow.
    #[error("control characters are not allowed")]
    ControlCharacter,
    /// The text does not parse.
    #[error("invalid {format}: {reason}")]
    Syntax {
        /// The language that was tried.
        format: Format,
        /// The parser's words; they quote nothing.
        reason: String,
        /// What the innermost block looks like when it is right.
        #[serde(skip)]
        shape: &'static str,
    },
    /// Lists and mappings nest too deeply.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The deepest level allowed.
        limit: usize,
    },
    /// More values than any real file has, usually by aliases of aliases.
    #[error("more than {limit} values once aliases are expanded")]
    TooLarge {
        /// The most values allowed.
        limit: usize,
    },
    /// An alias stands inside the value that it names.
    #[error("the alias refers to a value that contains it")]
    RecursiveAlias,
    /// `<<` with something that has no keys.
    #[error("a merge key needs a mapping or a list of mappings")]
    MergeNotMapping,
    /// A YAML tag that contradicts the value, or one that is not supported.
    #[error("the tag does not fit the value")]
    Tag,
    /// A mapping's key is a list or a mapping.
    #[error("a key must be a string")]
    KeyNotString,
    /// The document is no mapping.
    #[error("the document must be a mapping, found {found}")]
    NotMapping {
        /// What it is.
        found: NodeType,
    },
    /// Neither `kind` nor `apiVersion` is set.
    #[error("kind and apiVersion are missing")]
    MissingKindAndApiVersion,
    /// `kind` is not set.
    #[error("kind is missing")]
    MissingKind,
    /// `apiVersion` is not set.
    #[error("apiVersion is missing")]
    MissingApiVersion,
    /// Another object, or another version of it.
    #[error(
        "no kind {kind:?} in version {api_version:?}; accepted are EncryptionConfiguration in \
         apiserver.config.k8s.io/v1 and EncryptionConfig in v1"
    )]
    UnsupportedVersion {
        /// `apiVersion` of the file.
        api_version: String,
        /// `kind` of the file.
        kind: String,
    },
    /// A field that the type does not have.
    #[error("unknown field {name:?}{}", Suggestion(.suggestion, .belongs_in))]
    UnknownField {
        /// The field's name.
        name: String,
        /// The field that differs in upper and lower case only.
        #[serde(skip_serializing_if = "Option::is_none")]
        suggestion: Option<&'static str>,
        /// Where a field of this name belongs.
        #[serde(skip_serializing_if = "Option::is_none")]
        belongs_in: Option<&'static str>,
    },
    /// A field that is set twice.
    #[error("duplicate field {name:?}, first set at {first}")]
    DuplicateField {
        /// The field's name.
        name: String,
        /// Where it was set before.
        first: Position,
    },
    /// A value of another type.
    #[error("expected {expected}, found {found}")]
    WrongType {
        /// The type of the field.
        expected: NodeType,
        /// The type of the value.
        found: NodeType,
        /// What the block looks like when it is right.
        #[serde(skip)]
        shape: Option<&'static str>,
    },
    /// A number that is no 32-bit integer.
    #[error("expected an integer of 32 bits")]
    NotInt32,
    /// A duration that Go does not parse.
    #[error("invalid duration {text:?}: {reason}")]
    InvalidDuration {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: InvalidDuration,
    },
    /// `resources` is empty.
    #[error("at least one entry in resources is required")]
    NoEntries,
    /// An entry covers nothing.
    #[error("at least one resource is required")]
    NoResources,
    /// A resource is twice in one entry.
    #[error("{resource:?} is listed more than once")]
    DuplicateResource {
        /// The resource.
        resource: String,
    },
    /// A wildcard and something that it covers are in one entry.
    #[error("{wildcard:?} covers other resources of the same list; give them an entry of their own, before it")]
    OverlappingResources {
        /// The wildcard.
        wildcard: String,
    },
    /// A resource with capital letters, most often a kind.
    #[error("resource {resource:?} must not have capital letters; use the lower-case plural")]
    CapitalLetters {
        /// The resource.
        resource: String,
    },
    /// A `*` alone.
    #[error("use \"*.\" for all resources of the core group, or \"*.*\" for all resources")]
    BareWildcard,
    /// A resource that is stored without passing through encryption.
    #[error("{resource:?} has no REST API and cannot be encrypted")]
    NoRestApi {
        /// The resource.
        resource: String,
    },
    /// The group `events.k8s.io`.
    #[error("events are stored under the core group; use \"events\"")]
    EventsGroup,
    /// The group `extensions`.
    #[error("the group \"extensions\" is gone; use the group that stores the resource now, such as \"apps\"")]
    ExtensionsGroup,
    /// One resource in any group.
    #[error("{resource:?} names one resource in all groups, which is not supported")]
    AcrossGroups {
        /// The resource.
        resource: String,
    },
    /// An entry has no providers.
    #[error("at least one provider is required")]
    NoProviders,
    /// A list element that is no provider.
    #[error("expected one of kms, aesgcm, aescbc, secretbox and identity")]
    NoProvider,
    /// A list element that is more than one provider.
    #[error("{} in one element; split them into different list elements", .providers.join(" and "))]
    SeveralProviders {
        /// Their names.
        providers: Vec<&'static str>,
    },
    /// A provider without keys.
    #[error("at least one key is required")]
    NoKeys,
    /// A key without a name.
    #[error("the name of a key is required")]
    NoKeyName,
    /// A key without a secret.
    #[error("the secret of a key is required")]
    NoSecret,
    /// A key that was never filled in.
    #[error("looks like {placeholder}, not like a key in base64")]
    Placeholder {
        /// Its form.
        placeholder: Placeholder,
    },
    /// A character outside of the alphabet.
    #[error("illegal base64 data at input byte {offset}: {character:?}")]
    IllegalBase64 {
        /// The byte in the text of the secret, counted from 0.
        offset: usize,
        /// The character.
        character: char,
    },
    /// Base64 that stops in the middle, or whose padding is wrong.
    #[error("illegal base64 data: the length or the padding `=` at the end is wrong")]
    Base64Padding,
    /// A key of a length that the cipher does not have.
    #[error("the key is {} bytes long, expected {}", .got, Lengths(.expected))]
    KeyLength {
        /// Its length in bytes.
        got: usize,
        /// The lengths that the cipher has.
        expected: &'static [usize],
    },
    /// A KMS without a name.
    #[error("the name of a KMS is required")]
    NoKmsName,
    /// A colon in the name of a KMS v2.
    #[error("KMS name {name:?} must not contain ':'")]
    ColonInKmsName {
        /// The name.
        name: String,
    },
    /// A name that an earlier KMS has.
    #[error("duplicate KMS name {name:?}, first used at {first}")]
    DuplicateKmsName {
        /// The name.
        name: String,
        /// Where it was used before.
        first: Position,
    },
    /// A timeout of zero or less.
    #[error("the timeout must be positive")]
    TimeoutNotPositive,
    /// A KMS without an endpoint.
    #[error("the endpoint of a KMS is required")]
    NoEndpoint,
    /// An endpoint that is not a URL of a Unix socket.
    #[error("invalid endpoint: {reason}")]
    InvalidEndpoint {
        /// What is wrong with it.
        reason: InvalidEndpoint,
    },
    /// A cache size for KMS v2.
    #[error("cachesize is not supported in KMS v2")]
    CacheSizeInV2,
    /// A cache size of zero.
    #[error("cachesize must be positive, or negative to disable the cache")]
    CacheSizeZero,
    /// An `apiVersion` of a KMS that does not exist.
    #[error("unsupported apiVersion {api_version:?} of a KMS, expected v1 or v2")]
    UnsupportedKmsVersion {
        /// The version.
        api_version: String,
    },
    /// An entry that an earlier wildcard hides.
    #[error("resource {resource:?} is masked by the earlier rule {by:?}; move its entry before that one")]
    Masked {
        /// The resource.
        resource: String,
        /// The wildcard.
        by: String,
    },
    /// Warning: text follows the first document.
    #[error("only the first document is used; everything from here on is ignored")]
    LaterDocument,
    /// Warning: the header from before Kubernetes 1.13.
    #[error("legacy header; use kind EncryptionConfiguration and apiVersion apiserver.config.k8s.io/v1")]
    LegacyHeader,
    /// Warning: the secret holds line breaks, which kube-apiserver skips.
    #[error("the secret holds line breaks; kube-apiserver skips them, other tools may not")]
    SecretLineBreaks,
    /// Warning: a part of the endpoint that is ignored, most often by a missing slash.
    #[error("the host {host:?} of the endpoint is ignored: {address:?} is dialled")]
    EndpointHostIgnored {
        /// The part that is ignored.
        host: String,
        /// The socket.
        address: String,
    },
    /// Warning: an endpoint that parses and names no socket.
    #[error("the endpoint names no socket and can never be reached")]
    EndpointWithoutSocket,
}

impl Problem {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Problem::Syntax { shape, .. } => Some(format!("expected:\n{shape}")),
            Problem::WrongType { shape: Some(shape), .. } => Some(format!("expected:\n{shape}")),
            Problem::UnknownField { belongs_in: Some(parent), .. } => {
                Some(format!("check the indentation; expected:\n{}", shape(parent)))
            }
            Problem::MissingKindAndApiVersion
            | Problem::MissingKind
            | Problem::MissingApiVersion
            | Problem::Empty
            | Problem::UnsupportedVersion { .. }
            | Problem::LegacyHeader => {
                Some("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration".to_owned())
            }
            Problem::NoSecret
            | Problem::Placeholder { .. }
            | Problem::IllegalBase64 { .. }
            | Problem::Base64Padding
            | Problem::KeyLength { .. } => Some("make a new key: head -c 32 /dev/urandom | base64".to_owned()),
            Problem::InvalidEndpoint { .. } | Problem::NoEndpoint | Problem::EndpointWithoutSocket => {
                Some("write unix:///path/of/the.sock, with three slashes".to_owned())
            }
            Problem::EndpointHostIgnored { .. } => Some("write three slashes after unix:".to_owned()),
            _ => None,
        }
    }
}

/// What a block looks like, by the field that it is the value of.
pub(super) fn shape(field: &str) -> &'static str {
    match field {
        "providers" => {
            "providers:\n- aescbc:\n    keys:\n    - name: key1\n      secret: <base64 of 32 bytes>\n- identity: {}"
        }
        "aesgcm" | "aescbc" | "secretbox" | "keys" | "name" | "secret" => {
            "keys:\n- name: key1\n  secret: <base64 of 32 bytes>"
        }
        "kms" | "endpoint" | "timeout" | "cachesize" => {
            "kms:\n  apiVersion: v2\n  name: my-kms\n  endpoint: unix:///run/kms.sock"
        }
        "identity" => "- identity: {}",
        _ => {
            "resources:\n- resources:\n  - secrets\n  providers:\n  - aescbc:\n      keys:\n      - name: key1\n        \
             secret: <base64 of 32 bytes>\n  - identity: {}"
        }
    }
}

struct Suggestion<'a>(&'a Option<&'static str>, &'a Option<&'static str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(name), _) => write!(f, ", did you mean {name:?}?"),
            (None, Some(parent)) => write!(f, ", which belongs in {parent}"),
            (None, None) => Ok(()),
        }
    }
}

struct Lengths<'a>(&'a [usize]);

impl fmt::Display for Lengths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, length) in self.0.iter().enumerate() {
            let separator = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{separator}{length}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_as_a_sentence() {
        let problem = Problem::KeyLength { got: 31, expected: &[16, 24, 32] };
        assert_eq!(problem.to_string(), "the key is 31 bytes long, expected 16, 24 or 32");
        let problem = Problem::KeyLength { got: 31, expected: &[32] };
        assert_eq!(problem.to_string(), "the key is 31 bytes long, expected 32");
    }
}
