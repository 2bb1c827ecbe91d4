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
//! The first that token and key allow is taken. The first two depend on the key alone: they stay the same when it is moved to another
//! token. For the third, a check value tells keys apart by 24 bits, the others as well as who made them.

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
    key_id: String,
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
        let (method, material) = match ecb {
            Some(block) => ("ecb", block),
            None => match allowed(kw.then(|| wrap(session, handle, &[BLOCK, BLOCK].concat())))? {
                Some(wrapped) => ("kw", wrapped),
                None => ("attr", self.attributes(session, handle)?),
            },
        };
        let fingerprint = Sha256::digest([method.as_bytes(), b":", &material].concat());
        let digits = hex::encode(fingerprint.get(..16).unwrap_or_default());
        Ok(TokenKey {
            handle,
            key_id: format!("pkcs11:{}:{method}:{digits}", self.label),
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
