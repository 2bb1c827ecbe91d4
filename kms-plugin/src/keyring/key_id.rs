use std::fmt;

use atrest::report::key_id_hash;
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;
use time::macros::format_description;

use super::Error;

/// The name of a key, like `kr-20260131-0123456789abcdef`: kept with each value in etcd, in the clear, and never given twice.
///
/// 1 to 63 bytes of ASCII letters, digits, `-`, `_` and `.`. `Debug` shows the hash, since names are not for logs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    /// The longest, in bytes.
    pub const MAX_LEN: usize = 63;

    /// Takes a name that somebody gave.
    ///
    /// # Errors
    ///
    /// [`Error::KeyIdForm`] when it is empty, too long, or has other characters.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(is_allowed) {
            return Err(Error::KeyIdForm);
        }
        Ok(Self(text.to_owned()))
    }

    /// A new name: the date, and 64 random bits.
    pub(super) fn generate(now: OffsetDateTime) -> Result<Self, Error> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| Error::Random)?;
        let date = now.format(format_description!("[year][month][day]")).map_err(|_| Error::Clock)?;
        Self::parse(&format!("kr-{date}-{}", hex::encode(random)))
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As Kubernetes' logs and metrics have it: `sha256:` and the hash.
    #[must_use]
    pub fn hash(&self) -> String {
        key_id_hash(&self.0)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({})", self.hash())
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_name_has_the_date_and_64_random_bits() {
        let now = datetime!(2026-01-31 23:59:59 UTC);
        let id = KeyId::generate(now).unwrap();
        let digits = id.as_str().strip_prefix("kr-20260131-").unwrap();
        assert_eq!(digits.len(), 16);
        assert!(digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{digits}");
        assert_ne!(KeyId::generate(now).unwrap(), id);
    }

    #[test]
    fn what_is_no_name() {
        let long = "x".repeat(64);
        for text in ["", " ", "a b", "a\n", "schlüssel", "a/b", "sha256:00", &long] {
            assert!(matches!(KeyId::parse(text), Err(Error::KeyIdForm)), "{text}");
        }
        assert_eq!(KeyId::parse(&long[1..]).unwrap().as_str(), &long[1..]);
    }

    #[test]
    fn debug_shows_the_hash_that_kubernetes_shows() {
        let id = KeyId::parse("1").unwrap();
        let hash = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
        assert_eq!(id.hash(), hash);
        assert_eq!(format!("{id:?}"), format!("KeyId({hash})"));
    }
}
