//! Wrapping and unwrapping by the keys of a file.

use std::collections::BTreeMap;

use atrest::report::key_id_hash;
use atrest::secret::Key;
use atrest_kms_plugin::backend::{Backend as _, Error, Wrapped};
use zeroize::Zeroizing;

use crate::folder::{Folder, backend, keyring, states};

pub(crate) fn secret(bytes: &[u8]) -> Key {
    Key::new(Zeroizing::new(bytes.to_vec()))
}

#[tokio::test]
async fn the_current_key_encrypts_and_its_id_comes_with_it() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let backend = backend(&path);
    assert_eq!(backend.name(), "keyring");
    let id = states(&keyring(&path))[0].0.clone();
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    let wrapped = backend.encrypt(&secret(&[5; 32])).await.unwrap();
    assert_eq!((wrapped.key_id.as_str(), wrapped.ciphertext.len(), wrapped.annotations.len()), (&*id, 24 + 32 + 16, 0));
    assert_eq!(backend.decrypt(&wrapped).await.unwrap(), secret(&[5; 32]));
    let again = backend.encrypt(&secret(&[5; 32])).await.unwrap();
    assert_ne!(again.ciphertext, wrapped.ciphertext);
}

#[tokio::test]
async fn what_is_damaged_does_not_open_and_the_error_says_no_more() {
    let folder = Folder::new();
    let backend = backend(&folder.keygen("k"));
    let wrapped = backend.encrypt(&secret(b"data key")).await.unwrap();
    let mut wrong: Vec<_> = (0..wrapped.ciphertext.len()).map(|len| wrapped.ciphertext[..len].to_vec()).collect();
    for at in 0..wrapped.ciphertext.len() {
        let mut changed = wrapped.ciphertext.clone();
        changed[at] ^= 0x80;
        wrong.push(changed);
    }
    wrong.push([wrapped.ciphertext.as_slice(), &[0]].concat());
    for ciphertext in wrong {
        let error = backend.decrypt(&Wrapped { ciphertext, ..wrapped.clone() }).await.unwrap_err();
        assert!(matches!(error, Error::AuthenticationFailed), "{error}");
        assert_eq!(error.to_string(), "the ciphertext is not of this key, or it is damaged");
    }
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named_by_its_hash() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let backend = backend(&path);
    let wrapped = backend.encrypt(&secret(b"data key")).await.unwrap();
    for key_id in ["", "other", "kr-20260131-0123456789abcdef", &"x".repeat(1024)] {
        let error = backend.decrypt(&Wrapped { key_id: key_id.to_owned(), ..wrapped.clone() }).await.unwrap_err();
        assert!(matches!(&error, Error::UnknownKey { key_id_hash: hash } if *hash == key_id_hash(key_id)), "{error}");
    }
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    let retired =
        folder.run(&["retire", &wrapped.key_id, "--yes", "--force", "--keyring", "k", "-o", "json"]).exits(0).json();
    backend.reload().await.unwrap();
    let error = backend.decrypt(&wrapped).await.unwrap_err();
    let (hash, when) = (key_id_hash(&wrapped.key_id), retired["retired"][0]["retired"].as_str().unwrap());
    assert_eq!(error.to_string(), format!("the key cannot be used: {hash} was retired on {when}"));
}

#[tokio::test]
async fn sizes() {
    let folder = Folder::new();
    let backend = backend(&folder.keygen("k"));
    let largest = secret(&[9; 984]);
    let wrapped = backend.encrypt(&largest).await.unwrap();
    assert_eq!(wrapped.ciphertext.len(), 1024);
    assert_eq!(backend.decrypt(&wrapped).await.unwrap(), largest);
    for (len, text) in
        [(985, "invalid request: more than 984 bytes to encrypt"), (0, "invalid request: there is nothing to encrypt")]
    {
        assert_eq!(backend.encrypt(&secret(&vec![1; len])).await.unwrap_err().to_string(), text);
    }
}

/// Two control-plane nodes, each with a copy: at every step of the rotation each opens what the other wraps.
#[tokio::test]
async fn a_rotation_on_two_nodes() {
    let folder = Folder::new();
    let one = folder.keygen("one");
    let old = states(&keyring(&one))[0].0.clone();
    let copy = || {
        std::fs::copy(folder.path("one"), folder.path("two.tmp")).unwrap();
        std::fs::rename(folder.path("two.tmp"), folder.path("two")).unwrap();
    };
    copy();
    let nodes = [backend(&one), backend(&folder.path("two"))];
    let check = async |current: [&str; 2]| {
        for (node, current) in nodes.iter().zip(current) {
            assert_eq!(node.current_key_id().await.unwrap(), current);
            let wrapped = node.encrypt(&secret(b"seed")).await.unwrap();
            assert_eq!(wrapped.key_id, current);
            for other in &nodes {
                assert_eq!(other.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
            }
        }
    };
    check([&old, &old]).await;
    let new = folder.run(&["rotate", "--stage", "--keyring", "one", "-o", "json"]).exits(0).key_id();
    check([&old, &old]).await;
    copy();
    check([&old, &old]).await;
    folder.run(&["rotate", "--activate", "--keyring", "two"]).exits(0);
    check([&old, &new]).await;
    folder.run(&["rotate", "--activate", "--keyring", "one"]).exits(0);
    check([&new, &new]).await;
    for name in ["one", "two"] {
        folder.run(&["retire", &old, "--yes", "--force", "--keyring", name]).exits(0);
        check([&new, &new]).await;
    }
    assert!(nodes.iter().all(|node| node.warning().is_none()));
}

#[tokio::test]
async fn annotations_of_others_change_nothing() {
    let folder = Folder::new();
    let backend = backend(&folder.keygen("k"));
    let mut wrapped = backend.encrypt(&secret(b"seed")).await.unwrap();
    wrapped.annotations = BTreeMap::from([("a.example.com".to_owned(), b"x".to_vec())]);
    assert_eq!(backend.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
}
