//! Keys by label, and their key IDs.

use atrest_kms_plugin::backend::pkcs11::Pkcs11;
use atrest_kms_plugin::backend::{Backend as _, Error};

use crate::softhsm::{KeySpec, test};
use crate::support::key;

#[test]
fn the_first_key_encrypts_and_all_decrypt() {
    test("keys::the_first_key_encrypts_and_all_decrypt", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("2024", 1));
        hsm.make_key(&KeySpec::new("2025", 2));
        let old = hsm.open(&["2024"]).encrypt(&key(&[1; 32])).await.expect("it encrypts");
        let rotated = hsm.open(&["2025", "2024"]);
        let new = rotated.encrypt(&key(&[2; 32])).await.expect("it encrypts");
        assert!(new.key_id.starts_with("pkcs11:2025:ecb:"), "{}", new.key_id);
        assert_eq!(new.key_id.len(), "pkcs11:2025:ecb:".len() + 32);
        assert_eq!(rotated.current_key_id().await.as_ref(), Ok(&new.key_id));
        assert_eq!(rotated.decrypt(&old).await, Ok(key(&[1; 32])));
        assert_eq!(rotated.decrypt(&new).await, Ok(key(&[2; 32])));

        let retired = hsm.open(&["2025"]).decrypt(&old).await;
        let key_id_hash = atrest::report::key_id_hash(&old.key_id);
        assert_eq!(retired, Err(Error::UnknownKey { key_id_hash }));
    });
}

#[test]
fn another_key_of_the_same_label_has_another_key_id() {
    test("keys::another_key_of_the_same_label_has_another_key_id", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let backend = hsm.open(&["kek"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        hsm.delete_keys("kek");
        hsm.make_key(&KeySpec::new("kek", 1));
        backend.reload().await.expect("the keys can be read");
        assert_ne!(backend.current_key_id().await, Ok(wrapped.key_id.clone()));
        let key_id_hash = atrest::report::key_id_hash(&wrapped.key_id);
        assert_eq!(backend.decrypt(&wrapped).await, Err(Error::UnknownKey { key_id_hash }));
    });
}

#[test]
fn of_keys_with_one_label_one_must_be_chosen() {
    test("keys::of_keys_with_one_label_one_must_be_chosen", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 0x0b));
        hsm.make_key(&KeySpec::new("kek", 0x0a));
        let text = "2 AES keys are labelled \"kek\": choose one by label#CKA_ID (CKA_IDs: 0a, 0b)";
        assert_eq!(hsm.open(&["kek"]).current_key_id().await, Err(Error::KeyUnusable(text.to_owned())));
        let both = hsm.open(&["kek#0b", "kek#0a"]);
        let one = hsm.open(&["kek#0a"]).encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert_ne!(both.current_key_id().await, Ok(one.key_id.clone()));
        assert_eq!(both.decrypt(&one).await, Ok(key(&[1; 32])));
    });
}

#[test]
fn a_key_is_found_when_it_is_made_later() {
    test("keys::a_key_is_found_when_it_is_made_later", |hsm| async move {
        hsm.make_token("atrest");
        let backend = hsm.open(&["kek", "older"]);
        let text = "no AES key is labelled \"kek\"";
        assert_eq!(backend.current_key_id().await, Err(Error::KeyUnusable(text.to_owned())));
        hsm.make_key(&KeySpec::new("kek", 1));
        backend.reload().await.expect("the key is there");
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}

#[test]
fn a_reload_that_fails_leaves_the_keys_as_they_were() {
    test("keys::a_reload_that_fails_leaves_the_keys_as_they_were", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let backend = hsm.open(&["kek"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        hsm.make_key(&KeySpec::new("kek", 2));
        let text = "2 AES keys are labelled \"kek\": choose one by label#CKA_ID (CKA_IDs: 01, 02)";
        assert_eq!(backend.reload().await, Err(Error::KeyUnusable(text.to_owned())));
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}

#[test]
fn an_extractable_key_is_told() {
    test("keys::an_extractable_key_is_told", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        hsm.make_key(&KeySpec { extractable: true, ..KeySpec::new("loose", 2) });
        let good = hsm.open(&["kek"]);
        let loose = hsm.open(&["loose"]);
        good.current_key_id().await.expect("it is known");
        loose.current_key_id().await.expect("it is known");
        assert_eq!(good.warning(), None);
        let text = "the key that encrypts is extractable: it can be taken off the token";
        assert_eq!(loose.warning().as_deref(), Some(text));
    });
}

#[test]
fn a_token_is_found_by_its_serial_number() {
    test("keys::a_token_is_found_by_its_serial_number", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let info = hsm.raw().get_token_info(hsm.slot("atrest")).expect("a token");
        let mut options = hsm.options(&["kek"]);
        options.pkcs11_token_label = None;
        options.pkcs11_token_serial = Some(info.serial_number().to_owned());
        let backend = Pkcs11::open(&options).expect("the options are right");
        backend.current_key_id().await.expect("the token is found");
    });
}

#[test]
fn options_that_make_no_sense_are_refused_at_once() {
    test("keys::options_that_make_no_sense_are_refused_at_once", |hsm| async move {
        let open = |change: fn(&mut atrest_kms_plugin::backend::pkcs11::Options)| {
            let mut options = hsm.options(&["kek"]);
            change(&mut options);
            match Pkcs11::open(&options) {
                Err(Error::Configuration(text)) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(open(|o| o.pkcs11_module = None), "--pkcs11-module is required");
        assert_eq!(open(|o| o.pkcs11_key_label.clear()), "--pkcs11-key-label is required");
        let text = "--pkcs11-token-label or --pkcs11-token-serial is required";
        assert_eq!(open(|o| o.pkcs11_token_label = None), text);
        let text = "--pkcs11-token-label and --pkcs11-token-serial exclude each other";
        assert_eq!(open(|o| o.pkcs11_token_serial = Some("1".to_owned())), text);
    });
}
