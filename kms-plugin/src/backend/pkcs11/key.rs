//! The AES keys on a token: finding them by label, and their key IDs.
//!
//! A label can be given to another key later, so a key ID also has a fingerprint of the key:
//!
//! ```text
//! pkcs11:<label>:<method>:<32 hexadecimal digits>
//! ```
//!
//! | method | the digits are the beginning of the SHA-256 of |
//! |---|---|
//! | `ecb` | one block that AES-ECB made of [`BLOCK`] |
//! | `kw` | what AES key wrap made of [`BLOCK`] twice |
//! | `attr` | `CKA_CHECK_VALUE`, `CKA_UNIQUE_ID` and `CKA_ID` |
//!
//! The first that token and key allow is taken for new values. The first two depend on the key alone: they stay the same when it is moved
//! to another token, or gets another label. For the third, a check value tells keys apart by 24 bits, the others as well as who made them.
//!
//! What a token allows changes with its configuration and the key's attributes, and values keep the ID that they were encrypted under. So
//! each fingerprint that can be computed is compared with a stored ID; when that of its method cannot be, or depends on attributes that
//! can be edited, a key of its label is tried, and the ciphertext decides ([`TokenKey::is_likely`]).

use std::fmt;
use std::str::FromStr;

use cryptoki::error::Error as CryptokiError;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use sha2::{Digest as _, Sha256};

use super::failure::Failure;
use super::seal::wrap;
use super::token::has;
use crate::backend::Error;

/// Ends in a counter that AES-GCM reaches in no message of ours, and is not zero: nothing that AES-GCM keeps secret is an encryption of it.
const BLOCK: [u8; 16] = *b"atrest-kid-1\xff\xff\xff\xff";

/// A key ID is at most 1024 bytes.
const MAX_LABEL_BYTES: usize = 512;

/// How a fingerprint is made; the first that is possible is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Ecb,
    KeyWrap,
    Attributes,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Ecb => "ecb",
            Self::KeyWrap => "kw",
            Self::Attributes => "attr",
        }
    }
}

/// A fingerprint as it is in a key ID: `<method>:<digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    method: Method,
    digits: String,
}

impl Fingerprint {
    fn new(method: Method, material: &[u8]) -> Self {
        let hash = Sha256::digest([method.name().as_bytes(), b":", material].concat());
        Self { method, digits: hex::encode(hash.get(..16).unwrap_or_default()) }
    }
}

/// The parts of a key ID.
#[derive(Debug, PartialEq, Eq)]
struct KeyId<'t> {
    label: &'t str,
    fingerprint: Fingerprint,
}

impl<'t> KeyId<'t> {
    /// `None` when the text is none.
    fn parse(text: &'t str) -> Option<Self> {
        let mut parts = text.strip_prefix("pkcs11:")?.rsplitn(3, ':');
        let digits = parts.next()?;
        let name = parts.next()?;
        let method = [Method::Ecb, Method::KeyWrap, Method::Attributes].into_iter().find(|m| m.name() == name)?;
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let label = parts.next().filter(|_| digits.len() == 32 && digits.bytes().all(is_hex))?;
        Some(Self { label, fingerprint: Fingerprint { method, digits: digits.to_owned() } })
    }
}

/// Which key: `label`, or `label#0a0b` with its `CKA_ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    label: String,
    id: Option<Vec<u8>>,
}

/// An AES key on the token.
#[derive(Debug)]
pub(super) struct TokenKey {
    handle: ObjectHandle,
    label: String,
    /// Of the first fingerprint.
    key_id: String,
    /// All that can be computed now; one at least.
    fingerprints: Vec<Fingerprint>,
    /// `CKA_ENCRYPT` and `CKA_DECRYPT`
    encrypts: bool,
    /// `CKA_WRAP` and `CKA_UNWRAP`
    wraps: bool,
    extractable: bool,
}

impl TokenKey {
    pub(super) fn handle(&self) -> ObjectHandle {
        self.handle
    }

    pub(super) fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Whether that ID is one of this key's.
    pub(super) fn has_id(&self, key_id: &str) -> bool {
        KeyId::parse(key_id).is_some_and(|id| self.fingerprints.contains(&id.fingerprint))
    }

    /// Whether that ID may have been this key's, when the token allowed another fingerprint or its attributes were others.
    pub(super) fn is_likely(&self, key_id: &str) -> bool {
        KeyId::parse(key_id).is_some_and(|id| {
            let method = id.fingerprint.method;
            let is_computed = self.fingerprints.iter().any(|known| known.method == method);
            id.label == self.label && (!is_computed || method == Method::Attributes)
        })
    }

    /// Why its ID is another than it would be on a token that allows everything: then the ID changes when the token does.
    pub(super) fn warning(&self) -> Option<String> {
        let method = self.fingerprints.first()?.method;
        let preferred = if self.encrypts || !self.wraps { Method::Ecb } else { Method::KeyWrap };
        (method != preferred).then(|| {
            format!(
                "the ID of the key that encrypts is made by {:?}, as the token does not allow {:?}: it is another one than before, if that \
                 was allowed before",
                method.name(),
                preferred.name()
            )
        })
    }

    pub(super) fn encrypts(&self) -> bool {
        self.encrypts
    }

    pub(super) fn wraps(&self) -> bool {
        self.wraps
    }

    pub(super) fn extractable(&self) -> bool {
        self.extractable
    }
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (label, id) = match text.rsplit_once('#') {
            Some((label, id)) if !id.is_empty() => match hex::decode(id) {
                Ok(id) => (label, Some(id)),
                Err(_) => (text, None),
            },
            _ => (text, None),
        };
        if label.is_empty() || label.len() > MAX_LABEL_BYTES {
            let text = format!("a key's label has 1 to {MAX_LABEL_BYTES} bytes");
            return Err(Error::Configuration(text));
        }
        Ok(Self { label: label.to_owned(), id })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "labelled {:?}", self.label)?;
        match &self.id {
            Some(id) => write!(f, " with the CKA_ID {}", hex::encode(id)),
            None => Ok(()),
        }
    }
}

impl Selector {
    /// The key, `None` when there is none.
    pub(super) fn find(&self, session: &Session, mechanisms: &[MechanismType]) -> Result<Option<TokenKey>, Failure> {
        let mut template = vec![
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::KeyType(KeyType::AES),
            Attribute::Token(true),
            Attribute::Label(self.label.clone().into_bytes()),
        ];
        template.extend(self.id.clone().map(Attribute::Id));
        match session.find_objects(&template)?.as_slice() {
            [] => Ok(None),
            [handle] => self.read(session, mechanisms, *handle).map(Some),
            many => {
                let mut ids = Vec::new();
                for handle in many {
                    ids.push(match read_bytes(session, *handle, AttributeType::Id)? {
                        Some(id) => hex::encode(id),
                        None => "none".to_owned(),
                    });
                }
                ids.sort();
                let text = format!(
                    "{} AES keys are {self}: choose one by label#CKA_ID (CKA_IDs: {})",
                    many.len(),
                    ids.join(", ")
                );
                Err(Error::KeyUnusable(text).into())
            }
        }
    }

    fn read(&self, session: &Session, mechanisms: &[MechanismType], handle: ObjectHandle) -> Result<TokenKey, Failure> {
        let may = |attribute| read_flag(session, handle, attribute);
        let encrypts = may(AttributeType::Encrypt)? && may(AttributeType::Decrypt)?;
        let wraps = may(AttributeType::Wrap)? && may(AttributeType::Unwrap)?;
        let ecb = encrypts && has(mechanisms, MechanismType::AES_ECB);
        let kw = wraps && has(mechanisms, MechanismType::AES_KEY_WRAP);
        let ecb = allowed(ecb.then(|| session.encrypt(&Mechanism::AesEcb, handle, &BLOCK)))?;
        let kw = kw.then(|| wrap(session, handle, &[BLOCK, BLOCK].concat()));
        // Only where it is the key's ID does it matter that it cannot be computed now.
        let kw = if ecb.is_some() { kw.and_then(Result::ok) } else { allowed(kw)? };
        let computed = [(Method::Ecb, ecb), (Method::KeyWrap, kw)].into_iter();
        let mut fingerprints: Vec<_> =
            computed.filter_map(|(method, material)| Some(Fingerprint::new(method, &material?))).collect();
        if fingerprints.is_empty() {
            fingerprints.push(Fingerprint::new(Method::Attributes, &self.attributes(session, handle)?));
        }
        let first = fingerprints.first().map(|first| format!("{}:{}", first.method.name(), first.digits));
        Ok(TokenKey {
            handle,
            label: self.label.clone(),
            key_id: format!("pkcs11:{}:{}", self.label, first.unwrap_or_default()),
            fingerprints,
            encrypts,
            wraps,
            extractable: may(AttributeType::Extractable)?,
        })
    }

    /// What else tells this key from one that gets its label later.
    fn attributes(&self, session: &Session, handle: ObjectHandle) -> Result<Vec<u8>, Failure> {
        let mut material = Vec::new();
        for attribute in [AttributeType::CheckValue, AttributeType::UniqueId, AttributeType::Id] {
            // One byte that says whether it is there, and a length: no two keys give the same bytes by other bounds.
            match read_bytes(session, handle, attribute)?.filter(|value| !value.is_empty()) {
                Some(value) => {
                    material.push(1);
                    material.extend((value.len() as u64).to_be_bytes());
                    material.extend(value);
                }
                None => material.push(0),
            }
        }
        if material == [0; 3] {
            let text =
                format!("nothing distinguishes the key {self} from one that gets its label later: set its CKA_ID");
            return Err(Error::KeyUnusable(text).into());
        }
        Ok(material)
    }
}

/// `None` when the token forbids it for this key. Any other failure must not give the key another ID for a while.
fn allowed(answer: Option<Result<Vec<u8>, CryptokiError>>) -> Result<Option<Vec<u8>>, Failure> {
    match answer.transpose().map_err(Failure::from) {
        Err(Failure::Other(Error::KeyUnusable(_))) => Ok(None),
        other => other,
    }
}

fn read_flag(session: &Session, handle: ObjectHandle, attribute: AttributeType) -> Result<bool, Failure> {
    Ok(session.get_attributes(handle, &[attribute])?.into_iter().any(|value| {
        matches!(
            value,
            Attribute::Encrypt(true)
                | Attribute::Decrypt(true)
                | Attribute::Wrap(true)
                | Attribute::Unwrap(true)
                | Attribute::Extractable(true)
        )
    }))
}

fn read_bytes(session: &Session, handle: ObjectHandle, attribute: AttributeType) -> Result<Option<Vec<u8>>, Failure> {
    let values = session.get_attributes(handle, &[attribute])?;
    Ok(values.into_iter().find_map(|value| match value {
        Attribute::CheckValue(bytes) | Attribute::UniqueId(bytes) | Attribute::Id(bytes) => Some(bytes),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> (String, Option<Vec<u8>>) {
        let selector: Selector = text.parse().expect("it is one");
        (selector.label, selector.id)
    }

    #[test]
    fn a_key_is_named_by_its_label_or_by_label_and_id() {
        assert_eq!(selector("kek"), ("kek".to_owned(), None));
        assert_eq!(selector("kek#0aFF"), ("kek".to_owned(), Some(vec![0x0a, 0xff])));
        assert_eq!(selector("a#b#01"), ("a#b".to_owned(), Some(vec![1])));
    }

    #[test]
    fn a_key_id_is_taken_apart() {
        let digits = "0123456789abcdef0123456789abcdef";
        let id = format!("pkcs11:a:b:kw:{digits}");
        let fingerprint = Fingerprint { method: Method::KeyWrap, digits: digits.to_owned() };
        assert_eq!(KeyId::parse(&id), Some(KeyId { label: "a:b", fingerprint }));
        for none in
            ["", "pkcs11:", "pkcs11:a:kw", "pkcs11:a:kw:00", &id.replace(":kw:", ":des:"), &id.to_uppercase(), &id[7..]]
        {
            assert_eq!(KeyId::parse(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_id_belongs_to_the_label() {
        assert_eq!(selector("kek#one"), ("kek#one".to_owned(), None));
        assert_eq!(selector("kek#"), ("kek#".to_owned(), None));
        assert_eq!(selector("kek#123"), ("kek#123".to_owned(), None));
    }

    #[test]
    fn a_label_is_neither_empty_nor_longer_than_a_key_id_has_room_for() {
        let refused = Error::Configuration("a key's label has 1 to 512 bytes".to_owned());
        assert_eq!("".parse::<Selector>(), Err(refused.clone()));
        assert_eq!("#01".parse::<Selector>(), Err(refused.clone()));
        assert_eq!("x".repeat(513).parse::<Selector>(), Err(refused));
        assert_eq!(selector(&"x".repeat(512)).0.len(), 512);
    }
}
