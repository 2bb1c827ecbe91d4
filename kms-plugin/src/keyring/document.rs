//! The text of a keyring's file; [`super`] says what is in it.

use std::io::Cursor;

use atrest::secret::Key;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::aead::{self, KEY_LEN};
use super::ring::{Entry, Retired, Ring};
use super::seal::{Bytes, Seal};
use super::{Error, file};

const FORMAT: &str = "atrest-keyring";
const VERSION: u64 = 1;

/// The text of a file, well-formed and within bounds, and not yet opened.
#[derive(Debug)]
pub struct Document {
    seal: Seal,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Open(Content),
    Sealed(Bytes),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    keys: Vec<Entry>,
    retired: Vec<Retired>,
}

#[derive(Serialize)]
struct ContentToWrite<'r> {
    keys: &'r [Entry],
    retired: &'r [Retired],
}

/// What is read first, whatever else is there.
#[derive(Deserialize)]
struct Probe<'t> {
    #[serde(borrow)]
    format: Option<&'t str>,
    version: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parsed<'t> {
    #[serde(borrow, rename = "format")]
    _format: &'t str,
    #[serde(rename = "version")]
    _version: u64,
    seal: Seal,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    sealed: Option<Bytes>,
}

/// Authenticated with what is sealed: this JSON, without spaces, in this order.
#[derive(Serialize)]
struct Header<'s> {
    format: &'static str,
    version: u64,
    seal: &'s Seal,
}

#[derive(Serialize)]
struct Written<'w> {
    #[serde(flatten)]
    header: &'w Header<'w>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<ContentToWrite<'w>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<Bytes>,
}

impl Document {
    /// Reads the text of a keyring.
    ///
    /// # Errors
    ///
    /// When it is none. No part of the text is in the error.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        if text.len() > file::MAX_LEN {
            return Err(Error::TooLarge);
        }
        let probe: Probe<'_> = serde_json::from_slice(text).map_err(malformed)?;
        if probe.format != Some(FORMAT) {
            return Err(Error::NotAKeyring);
        }
        match probe.version {
            Some(VERSION) => {}
            Some(version) => return Err(Error::Version { version }),
            None => return Err(Error::Invalid("it has no format version")),
        }
        let parsed: Parsed<'_> = serde_json::from_slice(text).map_err(malformed)?;
        parsed.seal.check()?;
        let body = match (&parsed.seal, parsed.content, parsed.sealed) {
            (Seal::None, Some(content), None) => Body::Open(content),
            (Seal::Passphrase(_) | Seal::Tpm2(_), None, Some(sealed)) => Body::Sealed(sealed),
            _ => return Err(Error::Invalid("its seal and its content do not agree")),
        };
        Ok(Self { seal: parsed.seal, body })
    }

    /// The keys of a file that is not sealed.
    ///
    /// # Errors
    ///
    /// When it is sealed, or its keys contradict each other.
    pub fn open_unsealed(self) -> Result<Ring, Error> {
        self.open(None).map(|(_, ring)| ring)
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// The keys; for a sealed file by its key.
    pub(super) fn open(self, key: Option<&Key>) -> Result<(Seal, Ring), Error> {
        let content = match (self.body, key) {
            (Body::Open(content), None) => content,
            (Body::Sealed(sealed), Some(key)) => {
                let key = key.expose().first_chunk::<KEY_LEN>().ok_or(Error::Locked)?;
                let header = associated_data(&self.seal)?;
                let text = aead::open(&aead::cipher(key), &header, &sealed.0).ok_or(Error::Locked)?;
                serde_json::from_slice(&text).map_err(|_| Error::Invalid("what is sealed in it is no list of keys"))?
            }
            _ => return Err(Error::Invalid("its seal and its content do not agree")),
        };
        let ring = Ring::new(content.keys, content.retired)?;
        Ok((self.seal, ring))
    }
}

/// The text of a keyring, with `key` where it is sealed.
pub(super) fn write(ring: &Ring, seal: &Seal, key: Option<&Key>) -> Result<Zeroizing<Vec<u8>>, Error> {
    let header = Header { format: FORMAT, version: VERSION, seal };
    let content = ContentToWrite { keys: ring.entries(), retired: ring.retired() };
    let written = match key {
        None => Written { header: &header, content: Some(content), sealed: None },
        Some(key) => {
            let text = json(&content, false)?;
            let key = key.expose().first_chunk::<KEY_LEN>().ok_or(Error::Locked)?;
            let sealed = aead::seal(&aead::cipher(key), &associated_data(seal)?, &text)?;
            Written { header: &header, content: None, sealed: Some(Bytes(sealed)) }
        }
    };
    json(&written, true)
}

fn associated_data(seal: &Seal) -> Result<Vec<u8>, Error> {
    let header = Header { format: FORMAT, version: VERSION, seal };
    serde_json::to_vec(&header).map_err(|_| Error::Invalid("its header cannot be written"))
}

/// In a buffer that does not grow, since a part of the keys would stay in the smaller one.
fn json(value: &impl Serialize, for_people: bool) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut buffer = Zeroizing::new(vec![0; file::MAX_LEN]);
    let mut cursor = Cursor::new(buffer.as_mut_slice());
    let written = if for_people {
        serde_json::to_writer_pretty(&mut cursor, value)
            .and_then(|()| std::io::Write::write_all(&mut cursor, b"\n").map_err(serde_json::Error::io))
    } else {
        serde_json::to_writer(&mut cursor, value)
    };
    written.map_err(|_| Error::TooLarge)?;
    let len = usize::try_from(cursor.position()).map_err(|_| Error::TooLarge)?;
    buffer.truncate(len);
    Ok(buffer)
}

/// Where, and not what: the message of the library may quote a key.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: serde_json::Error) -> Error {
    Error::Malformed { line: error.line(), column: error.column() }
}
