//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) with a random nonce: the nonce of 24 bytes, the ciphertext, the tag of 16.
//!
//! A nonce of 192 bits may be random for as many messages as one key will ever see.

use chacha20poly1305::{AeadInOut as _, Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::Error;

/// The bytes of a key.
pub(super) const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 24;
/// How much longer than the plaintext a sealed message is, in bytes.
pub(super) const OVERHEAD: usize = NONCE_LEN + 16;

pub(super) fn cipher(key: &[u8; KEY_LEN]) -> XChaCha20Poly1305 {
    // Through a reference: a copy of the key would stay behind.
    let key: &Key = key.into();
    XChaCha20Poly1305::new(key)
}

pub(super) fn seal(cipher: &XChaCha20Poly1305, associated_data: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, Error> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|_| Error::Random)?;
    seal_with(cipher, nonce, associated_data, plaintext)
}

fn seal_with(
    cipher: &XChaCha20Poly1305,
    nonce: [u8; NONCE_LEN],
    associated_data: &[u8],
    plaintext: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut message = Vec::with_capacity(plaintext.len().saturating_add(OVERHEAD));
    message.extend_from_slice(&nonce);
    message.extend_from_slice(plaintext);
    let (_, body) = message.split_at_mut(NONCE_LEN);
    // Only a message of 256 GiB is too long.
    let tag = cipher
        .encrypt_inout_detached(&XNonce::from(nonce), associated_data, body.into())
        .map_err(|_| Error::Invalid("it is too large"))?;
    message.extend_from_slice(&tag);
    Ok(message)
}

/// `None` for whatever was not sealed by this key with this associated data.
pub(super) fn open(cipher: &XChaCha20Poly1305, associated_data: &[u8], message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, rest) = message.split_first_chunk::<NONCE_LEN>()?;
    let (body, tag) = rest.split_last_chunk::<16>()?;
    let mut plaintext = Zeroizing::new(body.to_vec());
    let opened = cipher.decrypt_inout_detached(
        &XNonce::from(*nonce),
        associated_data,
        plaintext.as_mut_slice().into(),
        &(*tag).into(),
    );
    opened.ok().map(|()| plaintext)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// draft-irtf-cfrg-xchacha-03, section A.3.1.
    #[test]
    fn the_message_of_the_draft() {
        let key: [u8; KEY_LEN] = std::array::from_fn(|at| 0x80 + u8::try_from(at).unwrap());
        let nonce: [u8; NONCE_LEN] = std::array::from_fn(|at| 0x40 + u8::try_from(at).unwrap());
        let associated_data = hex::decode("50515253c0c1c2c3c4c5c6c7").unwrap();
        let plaintext = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                          sunscreen would be it.";
        let expected = hex::decode(concat!(
            "404142434445464748494a4b4c4d4e4f5051525354555657",
            "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb",
            "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452",
            "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9",
            "21f9664c97637da9768812f615c68b13b52e",
            "c0875924c1c7987947deafd8780acf49",
        ))
        .unwrap();
        let cipher = cipher(&key);
        assert_eq!(seal_with(&cipher, nonce, &associated_data, plaintext).unwrap(), expected);
        assert_eq!(open(&cipher, &associated_data, &expected).unwrap().as_slice(), plaintext);
    }

    #[test]
    fn what_is_changed_or_cut_does_not_open() {
        let cipher = cipher(&[7; KEY_LEN]);
        let sealed = seal(&cipher, b"name", b"text").unwrap();
        assert_eq!(open(&cipher, b"name", &sealed).unwrap().as_slice(), b"text");
        assert_eq!(open(&cipher, b"eman", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&cipher, b"name", &changed), None, "byte {at}");
            assert_eq!(open(&cipher, b"name", &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn no_two_messages_are_equal() {
        let cipher = cipher(&[7; KEY_LEN]);
        assert_ne!(seal(&cipher, b"name", b"text").unwrap(), seal(&cipher, b"name", b"text").unwrap());
    }
}
