//! AES-GCM and AES key wrap.

use atrest_kms_plugin::backend::pkcs11::{GcmIv, Mechanism, Pkcs11};
use atrest_kms_plugin::backend::{Backend as _, Error};

use crate::softhsm::{KeySpec, SoftHsm, test, test_with};
use crate::support::{conformance, key};

fn hsm_with_two_keys(hsm: &SoftHsm) {
    hsm.make_token("atrest");
    hsm.make_key(&KeySpec::new("old", 1));
    hsm.make_key(&KeySpec::new("new", 2));
}

fn open(hsm: &SoftHsm, mechanism: Mechanism) -> Pkcs11 {
    let mut options = hsm.options(&["new", "old"]);
    options.pkcs11_mechanism = mechanism;
    Pkcs11::open(&options).expect("the options are right")
}

#[test]
fn aes_gcm_conforms() {
    test("mechanisms::aes_gcm_conforms", |hsm| async move {
        hsm_with_two_keys(&hsm);
        let older = hsm.open(&["old"]).encrypt(&key(b"older")).await.expect("it encrypts");
        assert_eq!(older.ciphertext[0], 1);
        assert_eq!(older.ciphertext.len(), 1 + 12 + 5 + 16);
        conformance::check(&open(&hsm, Mechanism::AesGcm), &older).await;
    });
}

#[test]
fn aes_key_wrap_conforms() {
    test("mechanisms::aes_key_wrap_conforms", |hsm| async move {
        hsm_with_two_keys(&hsm);
        let mut options = hsm.options(&["old"]);
        options.pkcs11_mechanism = Mechanism::AesKeyWrap;
        let old = Pkcs11::open(&options).expect("the options are right");
        let older = old.encrypt(&key(b"older")).await.expect("it encrypts");
        assert_eq!(older.ciphertext[0], 2);
        assert_eq!(older.ciphertext.len(), 1 + 8 + 16);
        conformance::check(&open(&hsm, Mechanism::AesKeyWrap), &older).await;
    });
}

#[test]
fn each_mechanism_decrypts_what_the_other_encrypted() {
    test("mechanisms::each_mechanism_decrypts_what_the_other_encrypted", |hsm| async move {
        hsm_with_two_keys(&hsm);
        let gcm = open(&hsm, Mechanism::AesGcm);
        let wrap = open(&hsm, Mechanism::AesKeyWrap);
        let by_gcm = gcm.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        let by_wrap = wrap.encrypt(&key(&[2; 32])).await.expect("it encrypts");
        assert_eq!((by_gcm.ciphertext[0], by_wrap.ciphertext[0]), (1, 2));
        assert_eq!(by_gcm.key_id, by_wrap.key_id, "the key ID does not depend on the mechanism");
        assert_eq!(wrap.decrypt(&by_gcm).await, Ok(key(&[1; 32])));
        assert_eq!(gcm.decrypt(&by_wrap).await, Ok(key(&[2; 32])));
    });
}

#[test]
fn a_key_that_only_wraps_is_used_so() {
    test("mechanisms::a_key_that_only_wraps_is_used_so", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec { encrypt: false, ..KeySpec::new("old", 1) });
        hsm.make_key(&KeySpec { encrypt: false, ..KeySpec::new("new", 2) });
        let older = hsm.open(&["old"]).encrypt(&key(b"older")).await.expect("it encrypts");
        assert_eq!(older.ciphertext[0], 2);
        assert!(older.key_id.starts_with("pkcs11:old:kw:"), "{}", older.key_id);
        conformance::check(&hsm.open(&["new", "old"]), &older).await;
    });
}

#[test]
fn a_key_that_may_not_do_what_is_asked_is_refused() {
    test("mechanisms::a_key_that_may_not_do_what_is_asked_is_refused", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec { encrypt: false, ..KeySpec::new("new", 1) });
        hsm.make_key(&KeySpec { wrap: false, ..KeySpec::new("old", 1) });
        let refused = |needs: &str| Err(Error::KeyUnusable(format!("it needs {needs}")));
        let gcm = open(&hsm, Mechanism::AesGcm).current_key_id().await;
        assert_eq!(gcm, refused("CKM_AES_GCM, with CKA_ENCRYPT and CKA_DECRYPT of the key"));

        let mut options = hsm.options(&["old"]);
        options.pkcs11_mechanism = Mechanism::AesKeyWrap;
        let wrap = Pkcs11::open(&options).expect("the options are right").current_key_id().await;
        assert_eq!(wrap, refused("CKM_AES_KEY_WRAP, with CKA_WRAP and CKA_UNWRAP of the key"));
    });
}

/// Twelve zeros as the nonce of every encryption would give the authentication key away.
#[test]
fn a_token_that_makes_no_nonces_is_not_left_to_make_them() {
    test("mechanisms::a_token_that_makes_no_nonces_is_not_left_to_make_them", |hsm| async move {
        hsm_with_two_keys(&hsm);
        let mut options = hsm.options(&["new"]);
        options.pkcs11_gcm_iv = GcmIv::Token;
        let backend = Pkcs11::open(&options).expect("the options are right");
        let text = "the token makes no nonces of its own: use --pkcs11-gcm-iv random";
        assert_eq!(backend.encrypt(&key(&[1; 32])).await, Err(Error::KeyUnusable(text.to_owned())));
    });
}

#[test]
fn a_plaintext_has_limits() {
    test("mechanisms::a_plaintext_has_limits", |hsm| async move {
        hsm_with_two_keys(&hsm);
        for mechanism in [Mechanism::AesGcm, Mechanism::AesKeyWrap] {
            let backend = open(&hsm, mechanism);
            assert_eq!(backend.encrypt(&key(b"")).await, Err(Error::InvalidRequest("the plaintext is empty")));
            assert_eq!(backend.encrypt(&key(&[1; 961])).await, Err(Error::InvalidRequest("the plaintext is too long")));
            let wrapped = backend.encrypt(&key(&[1; 960])).await.expect("it encrypts");
            assert!(wrapped.ciphertext.len() <= 1024);
            assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 960])));
        }
    });
}

#[test]
fn a_token_without_aes_gcm_is_used_by_key_wrap() {
    test_with(
        &["CKM_AES_KEY_GEN", "CKM_AES_ECB", "CKM_AES_KEY_WRAP"],
        "mechanisms::a_token_without_aes_gcm_is_used_by_key_wrap",
        |hsm| async move {
            hsm_with_two_keys(&hsm);
            let older = hsm.open(&["old"]).encrypt(&key(b"older")).await.expect("it encrypts");
            assert_eq!(older.ciphertext[0], 2);
            conformance::check(&hsm.open(&["new", "old"]), &older).await;
        },
    );
}

/// What the token cannot compute of the key, its attributes say.
#[test]
fn a_token_that_only_has_aes_gcm_tells_keys_apart_by_their_attributes() {
    let name = "mechanisms::a_token_that_only_has_aes_gcm_tells_keys_apart_by_their_attributes";
    test_with(&["CKM_AES_KEY_GEN", "CKM_AES_GCM"], name, |hsm| async move {
        hsm_with_two_keys(&hsm);
        let older = hsm.open(&["old"]).encrypt(&key(b"older")).await.expect("it encrypts");
        assert!(older.key_id.starts_with("pkcs11:old:attr:"), "{}", older.key_id);
        conformance::check(&hsm.open(&["new", "old"]), &older).await;

        hsm.delete_keys("old");
        hsm.make_key(&KeySpec::new("old", 1));
        let key_id_hash = atrest::report::key_id_hash(&older.key_id);
        let anew = hsm.open(&["old"]).decrypt(&older).await;
        assert_eq!(anew, Err(Error::UnknownKey { key_id_hash }), "the same label and CKA_ID, another key");
    });
}
