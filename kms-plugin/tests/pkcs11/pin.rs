//! The PIN: read from a file, tried once.

use std::time::Duration;

use atrest_kms_plugin::backend::pkcs11::Pkcs11;
use atrest_kms_plugin::backend::{Backend as _, Error};

use crate::softhsm::{KeySpec, PIN, test};

/// A token locks its PIN after a few attempts, and with it every other program that uses it.
#[test]
fn a_wrong_pin_is_tried_once_until_a_reload() {
    test("pin::a_wrong_pin_is_tried_once_until_a_reload", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let options = hsm.options(&["kek"]);
        let backend = Pkcs11::open(&options).expect("the options are right");
        hsm.pin_file("0000");
        let text = "the PIN is wrong; it is not tried again before a reload";
        assert_eq!(backend.current_key_id().await, Err(Error::Credentials(text.to_owned())));

        // Now it would work, if it were tried.
        hsm.pin_file(PIN);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(backend.current_key_id().await, Err(Error::Credentials(text.to_owned())));

        backend.reload().await.expect("the PIN is right");
        backend.current_key_id().await.expect("it is known");
    });
}

#[test]
fn a_missing_pin_file_is_named() {
    test("pin::a_missing_pin_file_is_named", |hsm| async move {
        hsm.make_token("atrest");
        let mut options = hsm.options(&["kek"]);
        options.pkcs11_pin_file = Some("/nonexistent/pin".into());
        let backend = Pkcs11::open(&options).expect("the options are right");
        let text = "cannot read /nonexistent/pin: No such file or directory (os error 2)";
        assert_eq!(backend.current_key_id().await, Err(Error::Credentials(text.to_owned())));
    });
}

#[test]
fn a_file_without_a_pin_is_not_tried() {
    test("pin::a_file_without_a_pin_is_not_tried", |hsm| async move {
        hsm.make_token("atrest");
        let backend = hsm.open(&["kek"]);
        let file = hsm.pin_file("");
        let text = format!("{} holds no PIN", file.display());
        for pin in ["", "\n", "8765\r", "8765\n4321\n"] {
            hsm.pin_file(pin);
            let refused = backend.reload().await;
            assert_eq!(refused, Err(Error::Credentials(text.clone())), "{pin:?}");
        }
    });
}

#[test]
fn without_a_file_the_systemd_credential_is_taken() {
    test("pin::without_a_file_the_systemd_credential_is_taken", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let mut options = hsm.options(&["kek"]);
        options.pkcs11_pin_file = None;
        let text = "the token requires a PIN: name its file by --pkcs11-pin-file";
        let backend = Pkcs11::open(&options).expect("the options are right");
        assert_eq!(backend.current_key_id().await, Err(Error::Configuration(text.to_owned())));

        let file = hsm.pin_file(PIN);
        std::fs::rename(&file, file.with_file_name("pkcs11-pin")).expect("it can be renamed");
        let backend = Pkcs11::open(&options).expect("the options are right");
        backend.current_key_id().await.expect("the PIN is right");
    });
}
