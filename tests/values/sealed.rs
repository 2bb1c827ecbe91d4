//! What we write, taken apart byte by byte and opened with other code than ours.

use aes::cipher::{BlockCipherDecrypt as _, KeyInit as _};
use aes_gcm::aead::{Aead as _, Payload};
use poly1305::Poly1305;
use salsa20::cipher::consts::U10;
use salsa20::cipher::{KeyIvInit as _, StreamCipher as _};

use crate::setup::{KEY, SECRET, for_secrets, open, provider, seal, secrets};

/// Around the blocks of each cipher, and around what is made of several at once: a secretbox begins 32 bytes into its stream.
const LENGTHS: [usize; 20] = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 479, 480, 481, 511, 512, 513, 992, 1024, 5000];

fn sealed(kind: &str, secret: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let transformers = secrets(&[provider(kind, &[("k1", secret)])]);
    let value = seal(for_secrets(&transformers), plaintext, KEY);
    assert_eq!(open(for_secrets(&transformers), &value, KEY).expect("our own value"), (plaintext.to_vec(), false));
    let prefix = format!("k8s:enc:{kind}:v1:k1:");
    value.strip_prefix(prefix.as_bytes()).expect("the prefix").to_vec()
}

fn text(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// SP 800-38A, section 6.2, on the bare block cipher.
fn cbc_decrypt(secret: &[u8], payload: &[u8]) -> Vec<u8> {
    let block = |bytes: &[u8]| {
        let mut block = aes::Block::try_from(bytes).expect("a block");
        match secret.len() {
            16 => aes::Aes128::new_from_slice(secret).expect("a key").decrypt_block(&mut block),
            24 => aes::Aes192::new_from_slice(secret).expect("a key").decrypt_block(&mut block),
            _ => aes::Aes256::new_from_slice(secret).expect("a key").decrypt_block(&mut block),
        }
        block
    };
    let (blocks, rest) = payload.as_chunks::<16>();
    assert_eq!(rest, b"");
    let chained = blocks.iter().zip(blocks.iter().skip(1));
    chained.flat_map(|(before, this)| block(this).iter().zip(before).map(|(a, b)| a ^ b).collect::<Vec<_>>()).collect()
}

#[test]
fn cbc_is_an_iv_and_padded_blocks() {
    for secret in [&SECRET[..16], &SECRET[..24], &SECRET[..]] {
        for len in LENGTHS {
            let payload = sealed("aescbc", secret, &text(len));
            let padding = 16 - len % 16;
            assert_eq!(payload.len(), 16 + len + padding);
            let expected = [text(len), vec![u8::try_from(padding).expect("a byte"); padding]].concat();
            assert_eq!(cbc_decrypt(secret, &payload), expected, "{} {len}", secret.len());
        }
    }
}

#[test]
fn gcm_is_a_nonce_ciphertext_and_tag() {
    for secret in [&SECRET[..16], &SECRET[..24], &SECRET[..]] {
        for len in LENGTHS {
            let payload = sealed("aesgcm", secret, &text(len));
            assert_eq!(payload.len(), 12 + len + 16);
            let nonce = payload[..12].try_into().expect("a nonce");
            let message = Payload { msg: &payload[12..], aad: KEY };
            let opened = match secret.len() {
                16 => aes_gcm::Aes128Gcm::new_from_slice(secret).expect("a key").decrypt(&nonce, message),
                24 => {
                    aes_gcm::AesGcm::<aes::Aes192, _>::new_from_slice(secret).expect("a key").decrypt(&nonce, message)
                }
                _ => aes_gcm::Aes256Gcm::new_from_slice(secret).expect("a key").decrypt(&nonce, message),
            };
            assert_eq!(opened.expect("a value"), text(len), "{} {len}", secret.len());
        }
    }
}

/// NaCl's `crypto_secretbox_open` from its parts (Bernstein, "Cryptography in NaCl", sections 7 to 10).
fn secretbox_open(secret: &[u8; 32], payload: &[u8]) -> Option<Vec<u8>> {
    let (nonce, boxed) = payload.split_first_chunk::<24>()?;
    let (tag, ciphertext) = boxed.split_first_chunk::<16>()?;
    let input: [u8; 16] = nonce[..16].try_into().expect("half a nonce");
    let subkey = salsa20::hsalsa::<U10>(secret.into(), &input.into());
    let rest: [u8; 8] = nonce[16..].try_into().expect("the rest of a nonce");
    let mut stream = vec![0; 32 + ciphertext.len()];
    salsa20::Salsa20::new(&subkey, &rest.into()).apply_keystream(&mut stream);
    let (authenticator, pad) = stream.split_at(32);
    let expected = Poly1305::new_from_slice(authenticator).expect("a key").compute_unpadded(ciphertext);
    (expected.as_slice() == tag).then(|| ciphertext.iter().zip(pad).map(|(a, b)| a ^ b).collect())
}

#[test]
fn secretbox_is_a_nonce_tag_and_ciphertext() {
    for len in LENGTHS {
        let payload = sealed("secretbox", SECRET, &text(len));
        assert_eq!(payload.len(), 24 + 16 + len);
        assert_eq!(secretbox_open(SECRET, &payload), Some(text(len)), "{len}");
        for at in [0, 24, payload.len() - 1] {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            assert_eq!(secretbox_open(SECRET, &damaged), None, "{len}");
        }
    }
}
