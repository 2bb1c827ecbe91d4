//! Tokens that go away and come back.

use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::pkcs11::Pkcs11;
use atrest_kms_plugin::backend::{Backend, Error};

use crate::softhsm::{KeySpec, PIN, rename, test};
use crate::support::key;

/// Longer than the pause after a connection that failed, on a loaded machine.
const SOON: Duration = Duration::from_secs(20);

async fn comes_back(backend: &dyn Backend) {
    let start = Instant::now();
    while let Err(error) = backend.current_key_id().await {
        assert!(start.elapsed() < SOON, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn the_plugin_starts_before_its_token() {
    test("loss::the_plugin_starts_before_its_token", |hsm| async move {
        let backend = hsm.open(&["kek"]);
        let text = "no token is labelled \"atrest\"";
        assert_eq!(backend.current_key_id().await, Err(Error::Unavailable(text.to_owned())));
        // By another process, while this one has the module initialized.
        hsm.make_token("atrest");
        let start = Instant::now();
        let text = "no AES key is labelled \"kek\"";
        while backend.current_key_id().await != Err(Error::KeyUnusable(text.to_owned())) {
            assert!(start.elapsed() < SOON, "the token is not seen");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        hsm.make_key(&KeySpec::new("kek", 1));
        comes_back(&backend).await;
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}

#[test]
fn sessions_and_login_that_are_lost_are_made_again_within_the_call() {
    test("loss::sessions_and_login_that_are_lost_are_made_again_within_the_call", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let backend = hsm.open(&["kek"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");

        // CKR_CRYPTOKI_NOT_INITIALIZED
        hsm.raw().finalize().expect("it can be finalized");
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));

        // CKR_SESSION_HANDLE_INVALID
        hsm.raw().finalize().expect("it can be finalized");
        // Which initializes it, without the backend.
        drop(hsm.raw());
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));

        // CKR_USER_NOT_LOGGED_IN: C_Logout logs out every session of the process.
        hsm.session().logout().expect("it can log out");
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
        let again = backend.encrypt(&key(&[2; 32])).await.expect("it encrypts");
        assert_eq!(again.key_id, wrapped.key_id);
    });
}

#[test]
fn requests_at_the_time_of_the_loss_all_succeed() {
    test("loss::requests_at_the_time_of_the_loss_all_succeed", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let backend = hsm.open(&["kek"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        hsm.session().logout().expect("it can log out");
        let calls = (0..32).map(|_| backend.decrypt(&wrapped));
        for opened in futures::future::join_all(calls).await {
            assert_eq!(opened, Ok(key(&[1; 32])));
        }
    });
}

/// A key pulled out: its folder is moved away, and back later.
#[test]
fn a_token_that_was_away_is_used_again() {
    test("loss::a_token_that_was_away_is_used_again", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let backend = hsm.open(&["kek"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");

        let away = hsm.tokens().with_extension("away");
        rename(&hsm.tokens(), &away);
        std::fs::create_dir(hsm.tokens()).expect("a folder");
        // SoftHSM sees it at the next initialization only.
        hsm.raw().finalize().expect("it can be finalized");
        let text = "no token is labelled \"atrest\"";
        assert_eq!(backend.decrypt(&wrapped).await, Err(Error::Unavailable(text.to_owned())));
        assert_eq!(backend.current_key_id().await, Err(Error::Unavailable(text.to_owned())));

        std::fs::remove_dir_all(hsm.tokens()).expect("it can be removed");
        rename(&away, &hsm.tokens());
        comes_back(&backend).await;
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}

/// The call hangs where it reads the PIN, from a pipe that nobody writes to, and holds what a hanging module would hold.
#[test]
fn a_call_that_hangs_costs_its_callers_no_more_than_the_timeout() {
    test("loss::a_call_that_hangs_costs_its_callers_no_more_than_the_timeout", |hsm| async move {
        hsm.make_token("atrest");
        hsm.make_key(&KeySpec::new("kek", 1));
        let mut options = hsm.options(&["kek"]);
        options.pkcs11_timeout = Duration::from_secs(2);
        let pipe = hsm.tokens().with_file_name("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is installed");
        assert!(made.success());
        options.pkcs11_pin_file = Some(pipe.clone());
        let backend = Pkcs11::open(&options).expect("the options are right");

        let start = Instant::now();
        let plaintext = key(&[1; 32]);
        // More than there are sessions.
        let calls = (0..8).map(|_| backend.encrypt(&plaintext));
        for encrypted in futures::future::join_all(calls).await {
            assert_eq!(encrypted, Err(Error::Unavailable("the token did not answer in 2s".to_owned())));
        }
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert_eq!(backend.warning(), None, "it waits for nobody");

        // The reader is there already, and takes what is written.
        std::fs::write(&pipe, PIN).expect("it can be written");
        comes_back(&backend).await;
        let wrapped = backend.encrypt(&plaintext).await.expect("it encrypts");
        assert_eq!(backend.decrypt(&wrapped).await, Ok(plaintext));
    });
}
