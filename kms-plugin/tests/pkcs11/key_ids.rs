//! A value keeps the ID that it was encrypted under, and the key can get another one.
//!
//! With AES-ECB off in the token's configuration, or `CKA_ENCRYPT`, `CKA_WRAP` or `CKA_ID` of the key edited, the fingerprint of the same
//! key was another. The plugin compared whole key IDs and found none: NotFound for every stored value, after a restart that changed no key.

use atrest_kms_plugin::backend::{Backend as _, Error};
use cryptoki::object::Attribute;

use crate::softhsm::{KeySpec, test, test_with};
use crate::support::key;

const RENAMED: &str = "values are stored under another ID of the key that encrypts: the token or the key's attributes were changed; store \
                       everything again by `atrest rekey`";

fn made_by(method: &str) -> String {
    format!(
        "the ID of the key that encrypts is made by {method:?}, as the token does not allow \"ecb\": it is another one than before, if that \
         was allowed before"
    )
}

#[test]
fn values_stay_readable_when_the_token_loses_a_mechanism_and_gets_it_back() {
    let name = "key_ids::values_stay_readable_when_the_token_loses_a_mechanism_and_gets_it_back";
    test(name, |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let mut stored = Vec::new();
        let everything = ["CKM_AES_ECB", "CKM_AES_KEY_WRAP", "CKM_AES_GCM", "CKM_AES_KEY_GEN"];
        for (lost, method) in [(0, "ecb"), (1, "kw"), (2, "attr"), (0, "ecb")] {
            hsm.set_mechanisms(&everything[lost..]);
            let backend = hsm.open(&["kek"]);
            let current = backend.current_key_id().await.expect("it is known");
            assert!(current.starts_with(&format!("pkcs11:kek:{method}:")), "{current}");
            assert_eq!(backend.warning(), (method != "ecb").then(|| made_by(method)));
            stored.push(backend.encrypt(&key(&[1; 32])).await.expect("it encrypts"));
            assert_eq!(backend.decrypt(&stored[stored.len() - 1]).await, Ok(key(&[1; 32])));
            assert_eq!(
                backend.warning(),
                (method != "ecb").then(|| made_by(method)),
                "nothing is stored under another"
            );
            for wrapped in &stored {
                assert_eq!(backend.decrypt(wrapped).await, Ok(key(&[1; 32])), "{} by {method}", wrapped.key_id);
            }
            let told: Vec<_> =
                (method != "ecb").then(|| made_by(method)).into_iter().chain(Some(RENAMED.to_owned())).collect();
            let expected = (stored.len() > 1).then(|| told.join("; "));
            assert_eq!(backend.warning(), expected);
        }
        assert_eq!(stored[3].key_id, stored[0].key_id);
    });
}

/// Of key wrap, which has no associated data, the integrity check of RFC 3394 decides.
#[test]
fn values_by_key_wrap_stay_readable_too() {
    let mechanisms = ["CKM_AES_KEY_GEN", "CKM_AES_ECB", "CKM_AES_KEY_WRAP"];
    test_with(&mechanisms, "key_ids::values_by_key_wrap_stay_readable_too", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let wrapped = hsm.open(&["kek"]).encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert_eq!(wrapped.ciphertext[0], 2);
        assert!(wrapped.key_id.starts_with("pkcs11:kek:ecb:"), "{}", wrapped.key_id);
        hsm.set_mechanisms(&["CKM_AES_KEY_GEN", "CKM_AES_KEY_WRAP"]);
        assert_eq!(hsm.open(&["kek"]).decrypt(&wrapped).await, Ok(key(&[1; 32])));

        hsm.delete_keys("kek");
        hsm.make_key(&KeySpec::new("kek", 1));
        let key_id_hash = atrest::report::key_id_hash(&wrapped.key_id);
        assert_eq!(hsm.open(&["kek"]).decrypt(&wrapped).await, Err(Error::UnknownKey { key_id_hash }), "another key");
    });
}

#[test]
fn values_stay_readable_when_attributes_of_the_key_are_edited() {
    let name = "key_ids::values_stay_readable_when_attributes_of_the_key_are_edited";
    test_with(&["CKM_AES_KEY_GEN", "CKM_AES_GCM"], name, |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let by_attributes = hsm.open(&["kek"]).encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert!(by_attributes.key_id.starts_with("pkcs11:kek:attr:"), "{}", by_attributes.key_id);
        hsm.set_attributes("kek", &[Attribute::Id(vec![9])]);
        let edited = hsm.open(&["kek"]);
        assert_ne!(edited.current_key_id().await.as_ref(), Ok(&by_attributes.key_id));
        assert_eq!(edited.decrypt(&by_attributes).await, Ok(key(&[1; 32])));

        // The fingerprint by AES-ECB needs CKA_ENCRYPT.
        hsm.set_mechanisms(&["CKM_AES_KEY_GEN", "CKM_AES_ECB", "CKM_AES_KEY_WRAP"]);
        let wrapped = hsm.open(&["kek"]).encrypt(&key(&[2; 32])).await.expect("it encrypts");
        assert!(wrapped.key_id.starts_with("pkcs11:kek:ecb:"), "{}", wrapped.key_id);
        hsm.set_attributes("kek", &[Attribute::Encrypt(false)]);
        let edited = hsm.open(&["kek"]);
        let current = edited.current_key_id().await.expect("it is known");
        assert!(current.starts_with("pkcs11:kek:kw:"), "{current}");
        assert_eq!(edited.decrypt(&wrapped).await, Ok(key(&[2; 32])));
        assert_eq!(edited.warning().as_deref(), Some(RENAMED));
    });
}

/// The label is what people use, and is given to the next key when the old one is renamed; the fingerprint finds it all the same.
#[test]
fn values_stay_readable_when_the_key_gets_another_label() {
    test("key_ids::values_stay_readable_when_the_key_gets_another_label", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let wrapped = hsm.open(&["kek"]).encrypt(&key(&[1; 32])).await.expect("it encrypts");
        hsm.set_attributes("kek", &[Attribute::Label(b"kek-2025".to_vec())]);
        hsm.make_key(&KeySpec::new("kek", 2));
        let both = hsm.open(&["kek", "kek-2025"]);
        assert_eq!(both.decrypt(&wrapped).await, Ok(key(&[1; 32])));
        assert_eq!(both.warning(), None, "another key encrypts");
        let key_id_hash = atrest::report::key_id_hash(&wrapped.key_id);
        assert_eq!(hsm.open(&["kek"]).decrypt(&wrapped).await, Err(Error::UnknownKey { key_id_hash }));
    });
}
