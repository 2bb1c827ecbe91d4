//! Key material and plaintext: wiped when dropped, never printed.
//!
//! Nothing here implements `Serialize` or `Display`, and `Debug` prints the type and its length only. The bytes leave
//! through one door, [`Key::expose`] or [`Plaintext`]'s `Deref`, so that a search for either finds every use.

use std::fmt;
use std::ops::{Deref, DerefMut};

use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

/// The raw bytes of an encryption key.
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// Takes ownership of key bytes; the buffer is wiped when the key is dropped.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The key's bytes, for the constructor of a cipher and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Compares in constant time.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key([REDACTED], {} bytes)", self.0.len())
    }
}

/// What a stored value holds once it is opened: the serialized object.
///
/// A value that was stored in the clear is borrowed, so reading it copies nothing.
pub enum Plaintext<'a> {
    /// The stored bytes themselves.
    Stored(&'a [u8]),
    /// Bytes that were decrypted, wiped when dropped.
    Opened(Opened),
}

/// Decrypted bytes, wiped when dropped.
///
/// `Zeroizing<Vec<u8>>` does the same byte by byte, which takes half as long as decrypting.
pub struct Opened(Vec<u8>);

impl Opened {
    /// Takes ownership of a buffer.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Drops what follows the first `len` bytes; it is wiped with the rest.
    pub(crate) fn truncate(&mut self, len: usize) {
        if let Some(dropped) = self.0.get_mut(len..) {
            dropped.zeroize();
        }
        self.0.truncate(len);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.as_mut_slice().zeroize();
    }
}

impl Deref for Opened {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened([REDACTED], {} bytes)", self.0.len())
    }
}

impl Deref for Plaintext<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Plaintext::Stored(bytes) => bytes,
            Plaintext::Opened(bytes) => bytes,
        }
    }
}

impl Plaintext<'_> {
    /// Whether both hold the same bytes, compared in constant time.
    #[must_use]
    pub fn same_as(&self, other: &[u8]) -> bool {
        // Whole words: a byte at a time, as `subtle` does it, takes longer than sealing.
        let (words, rest) = self.as_chunks::<8>();
        let (other_words, other_rest) = other.as_chunks::<8>();
        let differing = words
            .iter()
            .zip(other_words)
            .fold(0, |differing, (word, other)| differing | (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(*other)));
        let same_length = self.len() == other.len();
        same_length && bool::from(differing.ct_eq(&0) & rest.ct_eq(other_rest))
    }
}

impl fmt::Debug for Plaintext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plaintext([REDACTED], {} bytes)", self.len())
    }
}

/// A password, as it is sent to etcd.
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes ownership of a password; it is wiped when dropped.
    #[must_use]
    pub fn new(password: String) -> Self {
        Self(Zeroizing::new(password))
    }

    /// The password, for the request that authenticates and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password([REDACTED])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_key_prints_its_length_only() {
        let key = Key::new(Zeroizing::new(b"0123456789abcdef".to_vec()));
        assert_eq!(format!("{key:?}"), "Key([REDACTED], 16 bytes)");
        assert_eq!(format!("{key:#?}"), "Key([REDACTED], 16 bytes)");
    }

    #[test]
    fn debug_of_a_plaintext_prints_its_length_only() {
        assert_eq!(format!("{:?}", Plaintext::Stored(b"s3cr3t")), "Plaintext([REDACTED], 6 bytes)");
        let opened = Plaintext::Opened(Opened::new(b"s3cr3t!".to_vec()));
        assert_eq!(format!("{opened:?}"), "Plaintext([REDACTED], 7 bytes)");
    }

    #[test]
    fn debug_of_a_password_prints_nothing_of_it() {
        assert_eq!(format!("{:?}", Password::new("hunter2".into())), "Password([REDACTED])");
    }

    #[test]
    fn keys_compare_by_their_bytes() {
        let key = |bytes: &[u8]| Key::new(Zeroizing::new(bytes.to_vec()));
        assert_eq!(key(b"abc"), key(b"abc"));
        assert_ne!(key(b"abc"), key(b"abd"));
        assert_ne!(key(b"abc"), key(b"ab"));
    }
}
