//! A transit key's versions, and their key IDs.
//!
//! ```text
//! vault:<mount>/<name>/v<version>/<when the version was made, in seconds since 1970>
//! ```
//!
//! A key that was deleted and made anew under its name has the same versions; the time tells it from the first.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use serde::Deserialize;

use crate::backend::Error;

/// A key ID, which names one version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyId {
    pub(super) mount: String,
    pub(super) name: String,
    pub(super) version: u64,
    /// Seconds since 1970.
    pub(super) made: u64,
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vault:{}/{}/v{}/{}", self.mount, self.name, self.version, self.made)
    }
}

/// The text is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoKeyId;

impl FromStr for KeyId {
    type Err = NoKeyId;

    fn from_str(text: &str) -> Result<Self, NoKeyId> {
        let mut parts = text.strip_prefix("vault:").ok_or(NoKeyId)?.rsplitn(4, '/');
        let mut next = || parts.next().ok_or(NoKeyId);
        let made = next()?;
        let version = next()?.strip_prefix('v').ok_or(NoKeyId)?;
        let (name, mount) = (next()?.to_owned(), next()?.to_owned());
        let number = |digits: &str| canonical_number(digits).ok_or(NoKeyId);
        Ok(Self { mount, name, version: number(version)?, made: number(made)? })
    }
}

/// A positive number as it is printed.
pub(super) fn canonical_number(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|number: &u64| *number > 0 && number.to_string() == digits)
}

/// Whether it can be the name of a key, or a part of a mount's path: it goes into URLs as it is.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=200).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('.') && !text.ends_with('.')
}

/// A key as the server described it.
#[derive(Debug)]
pub(super) struct TransitKey {
    mount: String,
    name: String,
    latest: u64,
    min_decryption: u64,
    /// Of each version that may decrypt, when it was made, in seconds since 1970.
    made: BTreeMap<u64, u64>,
    /// Why it cannot be used.
    problem: Option<String>,
    read_at: Instant,
}

#[derive(Deserialize)]
struct Answer {
    data: Described,
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "type")]
    kind: String,
    latest_version: u64,
    #[serde(default)]
    min_decryption_version: u64,
    #[serde(default)]
    derived: bool,
    #[serde(default)]
    soft_deleted: bool,
    /// The value is a time, or an object for a key pair.
    keys: BTreeMap<u64, serde_json::Value>,
}

impl TransitKey {
    /// Reads the answer to `GET transit/keys/NAME`.
    pub(super) fn parse(mount: &str, name: &str, answer: &[u8], read_at: Instant) -> Result<Self, Error> {
        let answer: Answer = serde_json::from_slice(answer)
            .map_err(|_| Error::Unavailable("the description of the key is not what Vault answers".to_owned()))?;
        let described = answer.data;
        let problem = if !matches!(
            described.kind.as_str(),
            "aes128-gcm96" | "aes256-gcm96" | "chacha20-poly1305" | "xchacha20-poly1305"
        ) {
            Some(format!("a key of the type {:?} cannot authenticate the key ID", described.kind))
        } else if described.derived {
            Some("it is derived, and nothing gives the context".to_owned())
        } else if described.soft_deleted {
            Some("it is deleted, and can be restored".to_owned())
        } else {
            None
        };
        Ok(Self {
            mount: mount.to_owned(),
            name: name.to_owned(),
            latest: described.latest_version,
            min_decryption: described.min_decryption_version,
            made: described.keys.into_iter().filter_map(|(n, made)| Some((n, made.as_u64()?))).collect(),
            problem: problem.map(|problem| format!("key {name:?}: {problem}")),
            read_at,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn read_at(&self) -> Instant {
        self.read_at
    }

    /// The ID of the version that encrypts.
    pub(super) fn current(&self) -> Result<KeyId, Error> {
        if let Some(problem) = &self.problem {
            return Err(Error::KeyUnusable(problem.clone()));
        }
        self.id(self.latest)
            .ok_or_else(|| Error::KeyUnusable(format!("key {:?}: its latest version is gone", self.name)))
    }

    /// Whether that version is the one that has this ID, and may decrypt.
    pub(super) fn has(&self, id: &KeyId) -> Result<bool, Error> {
        if let Some(problem) = &self.problem {
            return Err(Error::KeyUnusable(problem.clone()));
        }
        if id.version < self.min_decryption {
            let text = format!(
                "key {:?}: version {} is below min_decryption_version, which is {}",
                self.name, id.version, self.min_decryption
            );
            return Err(Error::KeyUnusable(text));
        }
        Ok(self.id(id.version).as_ref() == Some(id))
    }

    fn id(&self, version: u64) -> Option<KeyId> {
        let made = *self.made.get(&version)?;
        Some(KeyId { mount: self.mount.clone(), name: self.name.clone(), version, made })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn described(change: &str) -> Result<TransitKey, Error> {
        let text = format!(
            r#"{{"data":{{"type":"aes256-gcm96","latest_version":3,"min_decryption_version":2,"keys":{{"2":1700000002,"3":1700000003}}{change}}}}}"#
        );
        TransitKey::parse("transit", "kek", text.as_bytes(), Instant::now())
    }

    fn id(text: &str) -> KeyId {
        text.parse().expect("it is one")
    }

    #[test]
    fn the_latest_version_encrypts() {
        let current = described("").expect("it is right").current();
        assert_eq!(current, Ok(id("vault:transit/kek/v3/1700000003")));
    }

    #[test]
    fn a_version_is_known_by_its_number_and_time() {
        let key = described("").expect("it is right");
        assert_eq!(key.has(&id("vault:transit/kek/v2/1700000002")), Ok(true));
        assert_eq!(key.has(&id("vault:transit/kek/v2/1700000003")), Ok(false));
        assert_eq!(key.has(&id("vault:transit/kek/v4/1700000003")), Ok(false));
        let text = "key \"kek\": version 1 is below min_decryption_version, which is 2";
        assert_eq!(key.has(&id("vault:transit/kek/v1/1700000001")), Err(Error::KeyUnusable(text.to_owned())));
    }

    #[test]
    fn a_key_that_cannot_be_used_says_why() {
        let problem = |change| described(change).expect("it is right").current();
        let unusable = |text: &str| Err(Error::KeyUnusable(text.to_owned()));
        let derived = "key \"kek\": it is derived, and nothing gives the context";
        assert_eq!(problem(r#","derived":true"#), unusable(derived));
        let deleted = "key \"kek\": it is deleted, and can be restored";
        assert_eq!(problem(r#","soft_deleted":true"#), unusable(deleted));
        let rsa = r#"{"data":{"type":"rsa-2048","latest_version":1,"keys":{"1":{"public_key":"x"}}}}"#;
        let rsa = TransitKey::parse("transit", "kek", rsa.as_bytes(), Instant::now()).expect("it is right");
        assert_eq!(
            rsa.current(),
            unusable("key \"kek\": a key of the type \"rsa-2048\" cannot authenticate the key ID")
        );
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        for name in ["kek", "k", "a.b-c_d", "2024"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a?b", "a#b", "a b", "é", "%2e", "a."] {
            assert!(!is_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed(
            mount in "[a-z][a-z0-9-]{0,9}(/[a-z0-9]{1,9}){0,2}", name in "[a-zA-Z0-9_]{1,20}",
            version in 1..u64::MAX, made in 1..u64::MAX,
        ) {
            let id = KeyId { mount, name, version, made };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn what_is_parsed_is_printed_the_same(text in "(vault:)?[a-z/v0-9:]{0,40}") {
            if let Ok(id) = text.parse::<KeyId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn any_answer_is_parsed_or_refused(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let refused = TransitKey::parse("transit", "kek", &answer, Instant::now()).map(drop);
            prop_assert_eq!(refused, Err(Error::Unavailable("the description of the key is not what Vault answers".to_owned())));
        }
    }
}
