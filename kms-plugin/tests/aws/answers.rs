//! What AWS answers and moto does not: limits, old credentials, states of keys.

use std::time::{Duration, Instant};

use atrest_kms_plugin::backend::aws::{Aws, Options};
use atrest_kms_plugin::backend::{Backend as _, Error, Wrapped};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::moto::{options, pinned, test, with_environment};
use crate::support::http::{Answer, Stub};
use crate::support::key;

const ARN: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

fn ok(body: String) -> Answer {
    Answer { status: 200, headers: vec!["Content-Type: application/x-amz-json-1.1".to_owned()], body }
}

fn refused(code: &str) -> Answer {
    let body = format!(r#"{{"__type":"{code}","message":"no"}}"#);
    Answer { status: 400, ..ok(body) }
}

fn described(state: &str, more: &str) -> Answer {
    ok(format!(
        r#"{{"KeyMetadata":{{"KeyId":"1234abcd-12ab-34cd-56ef-1234567890ab","Arn":"{ARN}","KeyState":"{state}"{more}}}}}"#
    ))
}

fn operation(request: &str) -> &str {
    let (_, rest) = request.split_once("TrentService.").expect("a request to AWS KMS");
    rest.split_once("\r\n").expect("a line").0
}

/// A server that knows the key, and answers the rest by `answer`.
fn with_key(answer: impl Fn(&str) -> Answer + Send + 'static) -> (Stub, Aws) {
    let stub = Stub::start(move |_, request| match operation(request) {
        "DescribeKey" => described("Enabled", ""),
        other => answer(other),
    });
    let backend = Aws::open(&options(&stub.address, ARN)).expect("the options are right");
    (stub, backend)
}

fn encrypted(key_id: &str) -> Answer {
    ok(format!(r#"{{"CiphertextBlob":"{}","KeyId":"{key_id}"}}"#, STANDARD.encode(b"ciphertext")))
}

fn wrapped(key_id: &str) -> Wrapped {
    Wrapped { ciphertext: b"ciphertext".to_vec(), key_id: key_id.to_owned(), annotations: Default::default() }
}

#[test]
fn a_service_that_limits_requests_is_left_alone_for_a_while() {
    test("answers::a_service_that_limits_requests_is_left_alone_for_a_while", || async {
        let start = Instant::now();
        let busy = Duration::from_secs(2);
        let (stub, backend) =
            with_key(move |_| if start.elapsed() < busy { refused("ThrottlingException") } else { encrypted(ARN) });
        let first = backend.encrypt(&key(&[1; 32])).await;
        assert_eq!(first, Err(Error::Throttled { retry_after: Some(Duration::from_millis(500)) }));
        let asked = stub.requests();
        assert_eq!(asked, 3, "one look at the key, and two attempts");
        let calls = (0..100).map(|_| async { backend.encrypt(&key(&[1; 32])).await });
        for answer in futures::future::join_all(calls).await {
            assert!(matches!(answer, Err(Error::Throttled { retry_after: Some(_) })), "{answer:?}");
        }
        assert_eq!(stub.requests(), asked, "nobody asks in the pause");
        assert_eq!(backend.current_key_id().await.as_deref(), Ok(ARN), "the key is the same");

        let wrapped = loop {
            match backend.encrypt(&key(&[1; 32])).await {
                Ok(wrapped) => break wrapped,
                Err(error) => {
                    assert!(matches!(error, Error::Throttled { .. }), "{error}");
                    assert!(start.elapsed() < Duration::from_secs(60), "it does not come back");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        assert_eq!(wrapped.ciphertext, b"ciphertext");
        assert!(stub.requests() < 20, "{} requests", stub.requests());
    });
}

#[test]
fn credentials_that_have_expired_are_told_and_new_ones_work() {
    test("answers::credentials_that_have_expired_are_told_and_new_ones_work", || async {
        let start = Instant::now();
        let (_stub, backend) = with_key(move |_| {
            if start.elapsed() < Duration::from_secs(2) { refused("ExpiredTokenException") } else { encrypted(ARN) }
        });
        let expired = backend.encrypt(&key(&[1; 32])).await;
        assert_eq!(expired, Err(Error::Credentials("ExpiredTokenException".to_owned())));
        tokio::time::sleep(Duration::from_millis(2100)).await;
        assert_eq!(backend.encrypt(&key(&[1; 32])).await.map(|wrapped| wrapped.key_id).as_deref(), Ok(ARN));
    });
}

#[test]
fn without_credentials_that_is_told() {
    with_environment("answers::without_credentials_that_is_told", &[("AWS_ACCESS_KEY_ID", "")], || async {
        let (stub, backend) = with_key(|_| encrypted(ARN));
        match backend.current_key_id().await {
            Err(Error::Credentials(text)) => assert!(text.starts_with("none are found: "), "{text}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(stub.requests(), 0);
    });
}

#[test]
fn a_key_that_aws_refuses_is_explained_by_its_state() {
    test("answers::a_key_that_aws_refuses_is_explained_by_its_state", || async {
        let stub = Stub::start(|number, request| match operation(request) {
            "DescribeKey" if number == 0 => described("Enabled", ""),
            "DescribeKey" => described("PendingDeletion", r#","DeletionDate":1800000000.0"#),
            _ => refused("KMSInvalidStateException"),
        });
        let backend = Aws::open(&options(&stub.address, ARN)).expect("the options are right");
        let text = "it will be deleted on 2027-01-15T08:00:00Z, and everything that it encrypted is lost then";
        let unusable = Error::KeyUnusable(text.to_owned());
        assert_eq!(backend.encrypt(&key(&[1; 32])).await, Err(unusable.clone()));
        assert_eq!(backend.decrypt(&wrapped(ARN)).await, Err(unusable));
    });
}

#[test]
fn a_ciphertext_of_another_key_or_damaged_is_refused() {
    test("answers::a_ciphertext_of_another_key_or_damaged_is_refused", || async {
        for code in ["InvalidCiphertextException", "IncorrectKeyException"] {
            let (_stub, backend) = with_key(move |_| refused(code));
            assert_eq!(backend.decrypt(&wrapped(ARN)).await, Err(Error::AuthenticationFailed), "{code}");
        }
        let (_stub, backend) = with_key(|_| ok(format!(r#"{{"Plaintext":"AAAA","KeyId":"{ARN}0"}}"#)));
        assert_eq!(backend.decrypt(&wrapped(ARN)).await, Err(Error::AuthenticationFailed));
    });
}

/// Who writes to etcd could name a key of his own otherwise, and feed the API server a seed that he knows.
#[test]
fn a_key_that_is_not_configured_is_never_asked_for() {
    test("answers::a_key_that_is_not_configured_is_never_asked_for", || async {
        let (stub, backend) = with_key(|_| ok(format!(r#"{{"Plaintext":"AAAA","KeyId":"{ARN}0"}}"#)));
        let foreign = format!("{ARN}0");
        let key_id_hash = atrest::report::key_id_hash(&foreign);
        assert_eq!(backend.decrypt(&wrapped(&foreign)).await, Err(Error::UnknownKey { key_id_hash }));
        assert_eq!(stub.requests(), 0, "ours is known without asking");
    });
}

#[test]
fn an_answer_by_another_key_is_not_taken() {
    test("answers::an_answer_by_another_key_is_not_taken", || async {
        let (_stub, backend) = with_key(|_| encrypted(&format!("{ARN}0")));
        let text = "AWS KMS encrypted by another key than it was asked to";
        assert_eq!(backend.encrypt(&key(&[1; 32])).await, Err(Error::Unavailable(text.to_owned())));
    });
}

#[test]
fn an_arn_needs_no_permission_to_describe_the_key() {
    test("answers::an_arn_needs_no_permission_to_describe_the_key", || async {
        let stub = Stub::start(|_, request| match operation(request) {
            "DescribeKey" => refused("AccessDeniedException"),
            _ => encrypted(ARN),
        });
        let backend = Aws::open(&options(&stub.address, ARN)).expect("the options are right");
        assert_eq!(backend.encrypt(&key(&[1; 32])).await.map(|wrapped| wrapped.key_id).as_deref(), Ok(ARN));
        let alias = Aws::open(&pinned(options(&stub.address, "alias/kek"), ARN)).expect("the options are right");
        let denied = Error::KeyUnusable("access denied to kms:DescribeKey".to_owned());
        assert_eq!(alias.current_key_id().await, Err(denied));
    });
}

/// A probe that gives up after its timeout must not make the plugin forget which key it pinned.
#[test]
fn a_look_that_was_given_up_does_not_undo_the_pinning() {
    test("answers::a_look_that_was_given_up_does_not_undo_the_pinning", || async {
        let stub = Stub::start(|number, _| {
            if number > 0 {
                std::thread::sleep(Duration::from_secs(1));
                return ok(format!(r#"{{"KeyMetadata":{{"KeyId":"0","Arn":"{ARN}0","KeyState":"Enabled"}}}}"#));
            }
            described("Enabled", "")
        });
        let backend = Aws::open(&pinned(options(&stub.address, "alias/kek"), ARN)).expect("the options are right");
        assert_eq!(backend.current_key_id().await.as_deref(), Ok(ARN));
        tokio::time::timeout(Duration::from_millis(200), backend.reload()).await.expect_err("it takes longer");
        assert_eq!(backend.current_key_id().await.as_deref(), Ok(ARN));
        backend.reload().await.expect("it is answered");
        assert_eq!(backend.current_key_id().await.as_deref(), Ok(ARN));
        assert!(backend.warning().expect("the alias has moved").starts_with("the alias of the key points to another"));
    });
}

#[test]
fn a_service_that_does_not_answer_costs_no_more_than_the_timeout() {
    test("answers::a_service_that_does_not_answer_costs_no_more_than_the_timeout", || async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("it has an address"));
        let options = Options {
            aws_attempt_timeout: Duration::from_millis(300),
            aws_timeout: Duration::from_millis(800),
            ..options(&address, ARN)
        };
        let start = Instant::now();
        let late = Aws::open(&options).expect("the options are right").current_key_id().await;
        assert!(matches!(&late, Err(Error::Unavailable(text)) if text.ends_with("did not answer in time")), "{late:?}");
        assert!((300..10_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    });
}

#[test]
fn options_that_make_no_sense_are_refused_at_once() {
    let refused = |change: fn(&mut Options)| {
        let mut options = options("http://127.0.0.1:1", ARN);
        change(&mut options);
        match Aws::open(&options) {
            Err(Error::Configuration(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|o| o.aws_key_id = None), "--aws-key-id is required");
    let text = "--aws-region is us-east-1, and the key is in eu-central-1";
    assert_eq!(refused(|o| o.aws_region = Some("us-east-1".to_owned())), text);
    let text = "--aws-decrypt-key-id: \"alias/old\" is not the ARN of a key";
    assert_eq!(refused(|o| o.aws_decrypt_key_id.push("alias/old".to_owned())), text);
    let text = "--aws-encryption-context: \"cluster\" is not NAME=VALUE";
    assert_eq!(refused(|o| o.aws_encryption_context.push("cluster".to_owned())), text);
    let text = "--aws-encryption-context: \"a\" is there twice";
    assert_eq!(refused(|o| o.aws_encryption_context = vec!["a=1".to_owned(), "a=2".to_owned()]), text);
}

#[test]
fn a_variable_that_makes_the_sdk_log_plaintext_is_refused() {
    let name = "answers::a_variable_that_makes_the_sdk_log_plaintext_is_refused";
    with_environment(name, &[("LOG_SENSITIVE_BODIES", "true")], || async {
        let text = "the variable LOG_SENSITIVE_BODIES is set, which writes decrypted keys to the log";
        let refused = Aws::open(&options("http://127.0.0.1:1", ARN)).map(drop);
        assert_eq!(refused, Err(Error::Configuration(text.to_owned())));
    });
}
