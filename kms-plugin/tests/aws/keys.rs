//! Keys, aliases and their states, by moto.

use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::aws::{Aws, Options};
use atrest_kms_plugin::backend::{Backend as _, Error, Wrapped};

use crate::moto::{Moto, options, pinned as pinned_options, test};
use crate::support::conformance::{Refusals, check_with};
use crate::support::{free_port, key};

fn unknown(key_id: &str) -> Error {
    Error::UnknownKey { key_id_hash: atrest::report::key_id_hash(key_id) }
}

#[test]
fn aws_kms_conforms() {
    test("keys::aws_kms_conforms", || async {
        let moto = Moto::start().await;
        let (old, new) = (moto.make_key_arn().await, moto.make_key_arn().await);
        let older = moto.open(&old).encrypt(&key(b"older")).await.expect("it encrypts");
        let options = Options { aws_decrypt_key_id: vec![old], ..moto.options(&new) };
        let backend = Aws::open(&options).expect("the options are right");
        // moto's ciphertext begins with the key's ID, and where AWS answers IncorrectKeyException it denies access.
        let other_key = Error::KeyUnusable("access denied to kms:Decrypt".to_owned());
        check_with(&backend, &older, &Refusals { key_name_bytes: 36, other_key }).await;
    });
}

#[test]
fn the_key_id_is_the_arn_however_the_key_is_named() {
    test("keys::the_key_id_is_the_arn_however_the_key_is_named", || async {
        let moto = Moto::start().await;
        let made = moto.make_key().await;
        let arn = made.arn().expect("it has one").to_owned();
        moto.kms.create_alias().alias_name("alias/kek").target_key_id(made.key_id()).send().await.expect("an alias");
        let alias_arn = arn.replace(&format!("key/{}", made.key_id()), "alias/kek");
        for name in [arn.as_str(), made.key_id(), "alias/kek", &alias_arn] {
            let wrapped = moto.open_pinned(name, &arn).encrypt(&key(&[1; 32])).await.expect("it encrypts");
            assert_eq!(wrapped.key_id, arn, "{name}");
            let annotations: Vec<_> = wrapped.annotations.into_iter().collect();
            assert_eq!(annotations, [("key-arn.aws.kms.atrest.io".to_owned(), arn.clone().into_bytes())]);
        }
    });
}

/// An alias that is moved must not make everything unreadable that was encrypted before. What it meant was remembered until the process
/// ended: the alias moved, the node was rebooted, and the plugin took the other key without a word.
#[test]
fn an_alias_that_moves_is_told_and_not_followed() {
    test("keys::an_alias_that_moves_is_told_and_not_followed", || async {
        let moto = Moto::start().await;
        let (first, second) = (moto.make_key_arn().await, moto.make_key_arn().await);
        moto.kms.create_alias().alias_name("alias/kek").target_key_id(&first).send().await.expect("an alias");
        let backend = moto.open_pinned("alias/kek", &first);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        backend.reload().await.expect("the key is there");
        assert_eq!(backend.warning(), None);

        moto.kms.update_alias().alias_name("alias/kek").target_key_id(&second).send().await.expect("it moves");
        backend.reload().await.expect("the key is there");
        let (hash, pinned) = (atrest::report::key_id_hash(&second), atrest::report::key_id_hash(&first));
        let text = format!(
            "the alias of the key points to another one now ({hash}), which is not used: after a restart the plugin does not encrypt until \
             --aws-pinned-key-arn names that key, or the alias points back"
        );
        assert_eq!(backend.warning(), Some(text));
        assert_eq!(backend.current_key_id().await.as_deref(), Ok(first.as_str()));
        assert_eq!(backend.encrypt(&key(&[1; 32])).await.map(|wrapped| wrapped.key_id).as_deref(), Ok(first.as_str()));
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));

        // After a restart it is not taken for the pinned key, which goes on decrypting.
        let restarted = moto.open_pinned("alias/kek", &first);
        let text = format!("--aws-key-id means the key {hash}, and --aws-pinned-key-arn is {pinned}");
        let refused = Error::KeyUnusable(text);
        assert_eq!(restarted.current_key_id().await, Err(refused.clone()));
        assert_eq!(restarted.encrypt(&key(&[1; 32])).await, Err(refused.clone()));
        assert_eq!(restarted.reload().await, Err(refused));
        assert_eq!(restarted.decrypt(&wrapped).await, Ok(key(&[1; 32])));

        // An operator who means the other key says so, and names the old one.
        let options = pinned_options(moto.options("alias/kek"), &second);
        let moved = Aws::open(&options).expect("the options are right");
        assert_eq!(moved.current_key_id().await.as_deref(), Ok(second.as_str()));
        assert_eq!(moved.decrypt(&wrapped).await, Err(unknown(&wrapped.key_id)));
        let both =
            Aws::open(&Options { aws_decrypt_key_id: vec![first.clone()], ..options }).expect("the options are right");
        assert_eq!(both.decrypt(&wrapped).await, Ok(key(&[1; 32])));

        // Or points it back.
        moto.kms.update_alias().alias_name("alias/kek").target_key_id(&first).send().await.expect("it moves");
        restarted.reload().await.expect("it is the pinned key");
        assert_eq!(restarted.current_key_id().await.as_deref(), Ok(first.as_str()));
        backend.reload().await.expect("the key is there");
        assert_eq!(backend.warning(), None);
    });
}

#[test]
fn a_name_that_can_mean_another_key_is_taken_with_an_arn_only() {
    const ARN: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd";
    let refused = |name: &str, arn: Option<&str>| {
        let mut options = options("http://127.0.0.1:1", name);
        options.aws_pinned_key_arn = arn.map(str::to_owned);
        match Aws::open(&options) {
            Err(Error::Configuration(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    for name in ["alias/kek", "1234abcd", "arn:aws:kms:eu-central-1:111122223333:alias/kek"] {
        let text = format!(
            "--aws-key-id {name:?} can mean another key later: add --aws-pinned-key-arn with the ARN that `aws kms describe-key --key-id \
             {name} --query KeyMetadata.Arn --output text` prints"
        );
        assert_eq!(refused(name, None), text);
        let text = "--aws-pinned-key-arn: \"alias/kek\" is not the ARN of a key";
        assert_eq!(refused(name, Some("alias/kek")), text);
        Aws::open(&pinned_options(options("http://127.0.0.1:1", name), ARN)).expect("the options are right");
    }
    let text = "--aws-key-id and --aws-pinned-key-arn are the ARNs of two keys";
    assert_eq!(refused(&format!("{ARN}0"), Some(ARN)), text);
    let elsewhere = ARN.replace("central", "west");
    assert_eq!(refused("alias/kek", Some(&elsewhere)), "--aws-region is eu-central-1, and the key is in eu-west-1");
}

#[test]
fn the_encryption_context_has_to_be_the_same() {
    test("keys::the_encryption_context_has_to_be_the_same", || async {
        let moto = Moto::start().await;
        let arn = moto.make_key_arn().await;
        let open = |context: &[&str]| {
            let aws_encryption_context = context.iter().map(|&entry| entry.to_owned()).collect();
            Aws::open(&Options { aws_encryption_context, ..moto.options(&arn) }).expect("the options are right")
        };
        let backend = open(&["cluster=a", "purpose=etcd"]);
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");
        assert_eq!(open(&["purpose=etcd", "cluster=a"]).decrypt(&wrapped).await, Ok(key(&[1; 32])));
        for other in [&["cluster=b", "purpose=etcd"][..], &["cluster=a"], &[]] {
            assert_eq!(open(other).decrypt(&wrapped).await, Err(Error::AuthenticationFailed), "{other:?}");
        }
    });
}

#[test]
fn a_key_that_is_disabled_or_will_be_deleted_is_told() {
    test("keys::a_key_that_is_disabled_or_will_be_deleted_is_told", || async {
        let moto = Moto::start().await;
        let made = moto.make_key().await;
        let backend = moto.open(made.arn().expect("it has one"));
        backend.current_key_id().await.expect("it is known");

        moto.kms.disable_key().key_id(made.key_id()).send().await.expect("it can be disabled");
        let disabled = Error::KeyUnusable("it is disabled".to_owned());
        assert_eq!(backend.reload().await, Err(disabled.clone()));
        assert_eq!(backend.current_key_id().await, Err(disabled.clone()));
        assert_eq!(backend.encrypt(&key(&[1; 32])).await, Err(disabled));

        moto.kms.enable_key().key_id(made.key_id()).send().await.expect("it can be enabled");
        backend.reload().await.expect("it can be used");
        let wrapped = backend.encrypt(&key(&[1; 32])).await.expect("it encrypts");

        let deletion = moto.kms.schedule_key_deletion().key_id(made.key_id()).pending_window_in_days(7);
        let deletion = deletion.send().await.expect("it can be deleted");
        let date = deletion.deletion_date().expect("a date").secs();
        match backend.reload().await {
            Err(Error::KeyUnusable(text)) => {
                let told = text.strip_prefix("it will be deleted on ").and_then(|text| text.split_once('.'));
                let (told, _) = told.expect("a date with fractions of a second");
                let format = aws_sdk_kms::primitives::DateTime::from_secs(date);
                let expected = format.fmt(aws_sdk_kms::primitives::DateTimeFormat::DateTime).expect("a date");
                assert_eq!(format!("{told}Z"), expected);
                assert!(text.ends_with(", and everything that it encrypted is lost then"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        // AWS decides whether it still decrypts; moto lets it.
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}

#[test]
fn a_key_that_is_not_there_is_told() {
    test("keys::a_key_that_is_not_there_is_told", || async {
        let moto = Moto::start().await;
        let missing = Err(Error::KeyUnusable("there is no such key".to_owned()));
        assert_eq!(
            moto.open_pinned("alias/none", "arn:aws:kms:eu-central-1:123456789012:key/0").current_key_id().await,
            missing
        );
        let arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000";
        assert_eq!(moto.open(arn).current_key_id().await, missing);
    });
}

#[test]
fn the_plugin_starts_before_aws_can_be_reached() {
    test("keys::the_plugin_starts_before_aws_can_be_reached", || async {
        let moto = Moto::start().await;
        let arn = moto.make_key_arn().await;
        moto.kms.create_alias().alias_name("alias/kek").target_key_id(&arn).send().await.expect("an alias");
        let port = free_port();
        let options = pinned_options(options(&format!("http://127.0.0.1:{port}"), "alias/kek"), &arn);
        let backend = Aws::open(&options).expect("the options are right");
        let refused = backend.current_key_id().await;
        assert_eq!(refused, Err(Error::Unavailable("Connection refused (os error 111)".to_owned())));

        moto.forward(port).await;
        let start = Instant::now();
        let wrapped: Wrapped = loop {
            match backend.encrypt(&key(&[1; 32])).await {
                Ok(wrapped) => break wrapped,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "{error}"),
            }
        };
        assert_eq!(backend.decrypt(&wrapped).await, Ok(key(&[1; 32])));
    });
}
