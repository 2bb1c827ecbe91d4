//! What every backend keeps.

use std::collections::BTreeSet;

use atrest_kms_plugin::backend::{Backend, Error, Wrapped};

use super::key;

/// Checks it. `older` is an encryption of `b"older"` by another key that the backend knows.
pub(crate) async fn check(backend: &dyn Backend, older: &Wrapped) {
    check_with(backend, older, &Refusals { key_name_bytes: 0, other_key: Error::AuthenticationFailed }).await;
}

/// What a ciphertext is refused with that names its own key.
pub(crate) struct Refusals {
    /// So many bytes at its beginning are the name.
    pub(crate) key_name_bytes: usize,
    /// When they name another key than the request.
    pub(crate) other_key: Error,
}

/// Checks it.
pub(crate) async fn check_with(backend: &dyn Backend, older: &Wrapped, refusals: &Refusals) {
    let key_id = backend.current_key_id().await.expect("the key is known");
    assert!((1..=1024).contains(&key_id.len()), "the length of a key ID: {}", key_id.len());
    assert_ne!(older.key_id, key_id);

    round_trips(backend, &key_id).await;
    assert_eq!(backend.decrypt(older).await.expect("older keys decrypt"), key(b"older"));

    let wrapped = backend.encrypt(&key(&[7; 32])).await.expect("it encrypts");
    tampered(backend, &wrapped, refusals).await;

    let swapped = Wrapped { key_id: older.key_id.clone(), ..wrapped.clone() };
    assert_eq!(backend.decrypt(&swapped).await, Err(refusals.other_key.clone()), "the key ID of another key");
    let unknown = Wrapped { key_id: format!("{key_id}0"), ..wrapped.clone() };
    let key_id_hash = atrest::report::key_id_hash(&unknown.key_id);
    assert_eq!(backend.decrypt(&unknown).await, Err(Error::UnknownKey { key_id_hash }), "a key ID of no key");

    concurrently(backend, &key_id).await;
    assert_eq!(backend.current_key_id().await.expect("the key is known"), key_id, "the key ID is stable");
}

async fn round_trips(backend: &dyn Backend, key_id: &str) {
    for len in [4, 16, 32, 64] {
        let plaintext = key(&vec![0xa5; len]);
        let wrapped = backend.encrypt(&plaintext).await.expect("it encrypts");
        assert_eq!(wrapped.key_id, key_id);
        assert!((1..=1024).contains(&wrapped.ciphertext.len()), "{} bytes", wrapped.ciphertext.len());
        assert!(!wrapped.ciphertext.windows(len).any(|part| part == plaintext.expose()));
        for (name, value) in &wrapped.annotations {
            assert!(is_domain_name(name), "{name}");
            assert!(name.len() + value.len() <= 32 * 1024);
        }
        assert_eq!(backend.decrypt(&wrapped).await.expect("it decrypts"), plaintext, "{len} bytes");
        let again = backend.encrypt(&plaintext).await.expect("it encrypts");
        assert_eq!(backend.decrypt(&again).await.expect("it decrypts"), plaintext);
    }
}

async fn tampered(backend: &dyn Backend, wrapped: &Wrapped, refusals: &Refusals) {
    let damaged = |ciphertext: Vec<u8>| Wrapped { ciphertext, ..wrapped.clone() };
    for at in 0..wrapped.ciphertext.len() {
        let mut ciphertext = wrapped.ciphertext.clone();
        ciphertext[at] ^= 0x01;
        let opened = backend.decrypt(&damaged(ciphertext)).await;
        let in_the_name = at < refusals.key_name_bytes;
        let expected = if in_the_name { refusals.other_key.clone() } else { Error::AuthenticationFailed };
        assert_eq!(opened, Err(expected), "byte {at} is another");
    }
    for len in [0, 1, wrapped.ciphertext.len() / 2, wrapped.ciphertext.len() - 1] {
        let opened = backend.decrypt(&damaged(wrapped.ciphertext[..len].to_vec())).await;
        assert_eq!(opened, Err(Error::AuthenticationFailed), "{len} bytes of it");
    }
    let longer = [wrapped.ciphertext.as_slice(), b"\0"].concat();
    assert_eq!(backend.decrypt(&damaged(longer)).await, Err(Error::AuthenticationFailed), "one more byte");
    let huge = vec![b'1'; 1 << 20];
    assert_eq!(backend.decrypt(&damaged(huge)).await, Err(Error::AuthenticationFailed), "a megabyte");
    assert_eq!(backend.decrypt(wrapped).await.expect("it still decrypts"), key(&[7; 32]));
}

async fn concurrently(backend: &dyn Backend, key_id: &str) {
    let calls = (0..64_u8).map(|number| async move {
        let wrapped = backend.encrypt(&key(&[number; 32])).await.expect("it encrypts");
        assert_eq!(wrapped.key_id, key_id);
        assert_eq!(backend.decrypt(&wrapped).await.expect("it decrypts"), key(&[number; 32]));
        wrapped.ciphertext
    });
    let ciphertexts: BTreeSet<_> = futures::future::join_all(calls).await.into_iter().collect();
    assert_eq!(ciphertexts.len(), 64);
}

/// As kube-apiserver has it: at least two labels, lower case.
fn is_domain_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        inner && !label.starts_with('-') && !label.ends_with('-') && (1..=63).contains(&label.len())
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(label)
}
