//! `atrest decrypt` and `atrest encrypt` of one value, and the classes of values that people had trouble with.

use serde_json::{Value, json};

use crate::run::{DEMO, File, K1, K2, Run, atrest, case, config, decode, encode, provider};

fn one(command: &str, files: &[&File], key: &str, data: &[u8]) -> Run {
    let mut args = vec![command, "--resource", "secrets", "--key", key];
    args.extend(files.iter().flat_map(|file| ["--encryption-provider-config", file.path()]));
    atrest(&args, data)
}

fn at(answer: &Value, pointer: &str) -> String {
    answer.pointer(pointer).and_then(Value::as_str).expect(pointer).to_owned()
}

/// The answer to one line, less what it repeats.
fn line(command: &str, files: &[&File], key: &str, data: &[u8]) -> Value {
    let mut args = vec![command, "--jsonl"];
    args.extend(files.iter().flat_map(|file| ["--encryption-provider-config", file.path()]));
    let line = json!({"resource": "secrets", "key": key, "data": encode(data)}).to_string();
    let run = atrest(&args, line.as_bytes());
    let mut answers = run.lines();
    assert_eq!(answers.len(), 1);
    let mut answer = answers.remove(0);
    let expected_status = i32::from(answer.get("error").is_some());
    assert_eq!((run.status, run.stderr.as_str()), (Some(expected_status), ""));
    let fields = answer.as_object_mut().expect("an object");
    assert_eq!(fields.remove("resource"), Some(json!("secrets")));
    assert_eq!(fields.remove("key"), Some(json!(key)));
    assert_eq!(fields.remove("data"), None);
    answer
}

/// The class of a value that cannot be read, which both forms have to agree on, and the message.
fn class(files: &[&File], key: &str, data: &[u8]) -> (String, String) {
    let answer = line("decrypt", files, key, data);
    assert_eq!(answer.as_object().expect("an object").len(), 1, "{answer}");
    let text = |field: &str| at(&answer, &format!("/error/{field}"));
    let (class, message) = (text("class"), text("message"));
    let run = one("decrypt", files, key, data).exits(1);
    assert_eq!((run.text(), run.stderr.as_str()), ("", format!("atrest: error: {class}: {message}\n").as_str()));
    (class, message)
}

/// The class of the warning about a value that opens and is wrong.
fn warning(files: &[&File], key: &str, data: &[u8]) -> (Vec<u8>, String) {
    let answer = line("decrypt", files, key, data);
    let text = |field: &str| at(&answer, &format!("/warning/{field}"));
    let run = one("decrypt", files, key, data).exits(0);
    assert_eq!(run.stderr, format!("atrest: warning: {}: {}\n", text("class"), text("message")));
    assert_eq!(decode(&at(&answer, "/out")), run.stdout);
    (run.stdout, text("class"))
}

fn demo() -> Vec<u8> {
    decode(&case("/plaintext_b64"))
}

fn value(pointer: &str) -> Vec<u8> {
    decode(&case(pointer))
}

#[test]
fn raw_bytes_go_in_and_out() {
    for kind in ["aescbc", "aesgcm", "secretbox"] {
        let file = config(&[&provider(kind, "key1", K1)]);
        for plaintext in [&demo()[..], b"", b"\0\xff\n", &vec![7; 1_500_000]] {
            let sealed = one("encrypt", &[&file], DEMO, plaintext).exits(0);
            assert!(sealed.stdout.starts_with(format!("k8s:enc:{kind}:v1:key1:").as_bytes()));
            assert_eq!(sealed.stderr, "");
            let opened = one("decrypt", &[&file], DEMO, &sealed.stdout).exits(0);
            assert_eq!(opened.stdout, plaintext, "{kind}");
        }
    }
}

#[test]
fn identity_stores_as_it_is() {
    let file = config(&["identity: {}"]);
    assert_eq!(one("encrypt", &[&file], DEMO, &demo()).exits(0).stdout, demo());
    assert_eq!(line("decrypt", &[&file], DEMO, &demo()), json!({"out": encode(demo()), "stale": false}));
}

#[test]
fn values_of_every_local_provider_open() {
    let cbc = config(&[&provider("aescbc", "key1", K1)]);
    let gcm = config(&[&provider("aesgcm", "key1", K1)]);
    let short = config(&[&provider("aesgcm", "key1", &case("/gcm_16_byte_key/key_b64"))]);
    let secretbox = config(&[&provider("secretbox", "key1", K1)]);
    for (file, pointer) in
        [(&cbc, "/cbc_ok"), (&gcm, "/gcm_ok"), (&short, "/gcm_16_byte_key/value_b64"), (&secretbox, "/secretbox_ok")]
    {
        let run = one("decrypt", &[file], DEMO, &value(pointer)).exits(0);
        assert_eq!((run.stdout, run.stderr.as_str()), (demo(), ""), "{pointer}");
        assert_eq!(
            line("decrypt", &[file], DEMO, &value(pointer)),
            json!({"out": encode(demo()), "stale": false}),
            "{pointer}"
        );
    }
}

#[test]
fn a_value_of_a_later_provider_is_stale() {
    let file = config(&[&provider("aesgcm", "new", K2), &provider("aescbc", "key1", K1), "identity: {}"]);
    let stale = json!({"out": encode(demo()), "stale": true});
    assert_eq!(line("decrypt", &[&file], DEMO, &value("/cbc_ok")), stale);
    assert_eq!(line("decrypt", &[&file], DEMO, &demo()), stale);
}

#[test]
fn of_two_configurations_the_first_writes_and_both_read() {
    let first = config(&[&provider("aesgcm", "new", K2)]);
    let second = config(&[&provider("aescbc", "key1", K1)]);
    let both = [&first, &second];
    assert_eq!(line("decrypt", &both, DEMO, &value("/cbc_ok")), json!({"out": encode(demo()), "stale": true}));
    let sealed = one("encrypt", &both, DEMO, &demo()).exits(0).stdout;
    assert!(sealed.starts_with(b"k8s:enc:aesgcm:v1:new:"));
    assert_eq!(line("decrypt", &both, DEMO, &sealed), json!({"out": encode(demo()), "stale": false}));
    // The other way round the other one writes.
    assert_eq!(line("decrypt", &[&second, &first], DEMO, &sealed), json!({"out": encode(demo()), "stale": true}));
}

/// C1, C2, D1: every master of a cluster had made up a key of its own under the name `key1`, and half of the reads failed with
/// a message that named neither object nor key.
#[test]
fn another_key_of_the_same_name_is_a_wrong_key() {
    let file = config(&[&provider("aescbc", "key1", K2)]);
    let (class, message) = class(&[&file], DEMO, &value("/cbc_ok"));
    assert_eq!(class, "wrong-key");
    assert!(message.starts_with("aescbc/key1: authentication or padding failed: another key wrote it"), "{message}");
    // With the configuration of the other master as well, both read.
    let other = config(&[&provider("aescbc", "key1", K1)]);
    assert_eq!(
        line("decrypt", &[&file, &other], DEMO, &value("/cbc_ok")),
        json!({"out": encode(demo()), "stale": true})
    );
}

/// C5: a regenerated configuration has a key of another name, and the value was called corrupt.
#[test]
fn a_key_that_is_not_configured_is_named() {
    let file = config(&[&provider("aescbc", "key1624642438", K2)]);
    let (class, message) = class(&[&file], DEMO, &value("/cbc_ok"));
    assert_eq!(class, "key-not-configured");
    assert_eq!(
        message,
        "written by aescbc/key1, and secrets have aescbc/key1624642438 only: add the key under that name"
    );
}

#[test]
fn the_same_key_under_another_name_is_found() {
    let advice = "configure that key under the name";
    let cbc = config(&[&provider("aescbc", "renamed", K1)]);
    let (of_cbc, message) = class(&[&cbc], DEMO, &value("/cbc_ok"));
    assert_eq!(of_cbc, "key-renamed");
    assert!(message.contains(&format!("aescbc/renamed opens it: {advice} \"key1\" too")), "{message}");
    // The name is configured, and is another key's.
    let boxes = config(&[&provider("secretbox", "key2", K2), &provider("secretbox", "key1", K1)]);
    let (of_box, message) = class(&[&boxes], DEMO, &value("/secretbox_name_key2_material_key1"));
    assert_eq!(of_box, "key-renamed");
    assert!(message.contains(&format!("secretbox/key1 opens it: {advice} \"key2\" too")), "{message}");
}

/// D6, D7: somebody disabled the feature by taking the provider out, and the API server did not say which one it misses.
#[test]
fn a_provider_that_is_missing_is_named() {
    let file = config(&["identity: {}"]);
    let (class_of_cbc, message) = class(&[&file], DEMO, &value("/cbc_ok"));
    assert_eq!(class_of_cbc, "no-provider");
    assert!(message.contains("aescbc/key1"), "{message}");
    let kms = b"k8s:enc:kms:v1:aws-encryption-provider:\0\x03dekdata";
    let (class_of_kms, message) = class(&[&file], DEMO, kms);
    assert_eq!(class_of_kms, "no-provider");
    assert!(message.contains("kms-v1/aws-encryption-provider"), "{message}");
    // A resource in no entry at all.
    let args = ["decrypt", "--encryption-provider-config", file.path(), "--resource", "configmaps", "--key", DEMO];
    let run = atrest(&args, &value("/cbc_ok")).exits(1);
    assert!(run.stderr.starts_with("atrest: error: no-provider: written by aescbc/key1"), "{}", run.stderr);
}

/// B3: encryption was turned on without `identity`, and what had been there before was unreadable.
#[test]
fn plaintext_that_is_not_allowed_is_told() {
    let file = config(&[&provider("aescbc", "key1", K1)]);
    let (class, message) = class(&[&file], DEMO, &demo());
    assert_eq!(class, "plaintext-not-allowed");
    assert!(message.contains("add identity last"), "{message}");
}

/// L1: about one value in 256 opens under a wrong AES-CBC key.
#[test]
fn what_opens_under_a_wrong_key_is_garbage() {
    let file = config(&[&provider("aescbc", "key1", &case("/cbc_wrong_key_valid_padding/wrong_key_b64"))]);
    let (out, class) = warning(&[&file], DEMO, &value("/cbc_wrong_key_valid_padding/value_b64"));
    assert_eq!(class, "garbage");
    assert_eq!(out, value("/cbc_wrong_key_valid_padding/garbage_plaintext_b64"));
}

/// L2: upstream panics on an IV without a block.
#[test]
fn cbc_values_of_impossible_length_have_their_class() {
    let file = config(&[&provider("aescbc", "key1", K1)]);
    for (pointer, expected) in [
        ("/cbc_iv_only_16_bytes", "truncated"),
        ("/cbc_short_15_bytes", "truncated"),
        ("/cbc_not_block_multiple", "malformed"),
    ] {
        assert_eq!(class(&[&file], DEMO, &value(pointer)).0, expected, "{pointer}");
    }
}

/// L4, L5: one flipped bit, and a value that was copied to another key.
#[test]
fn gcm_values_that_were_changed_or_moved_do_not_authenticate() {
    let file = config(&[&provider("aesgcm", "key1", K1)]);
    let mut flipped = value("/gcm_ok");
    *flipped.last_mut().expect("a byte") ^= 1;
    assert_eq!(class(&[&file], DEMO, &flipped).0, "wrong-key");
    let stored_at = case("/gcm_aad_of_other_path/stored_at");
    let (class, message) = class(&[&file], &stored_at, &value("/gcm_aad_of_other_path/value_b64"));
    assert_eq!(class, "wrong-key");
    assert!(message.contains("it was written for another etcd key"), "{message}");
}

#[test]
fn values_that_move_freely_are_looked_into() {
    let copy = "/registry/secrets/default/demo-copy";
    for (kind, pointer) in [("aescbc", "/cbc_ok"), ("secretbox", "/secretbox_ok")] {
        let file = config(&[&provider(kind, "key1", K1)]);
        assert_eq!(warning(&[&file], copy, &value(pointer)), (demo(), "identity-mismatch".to_owned()), "{kind}");
    }
}

/// L9: what comes out is ciphertext again.
#[test]
fn what_was_encrypted_twice_is_told() {
    let file = config(&[&provider("aescbc", "key1", K1)]);
    let (out, class) = warning(&[&file], DEMO, &value("/double_encrypted_prefix_in_plain"));
    assert_eq!(class, "nested");
    assert!(out.starts_with(b"k8s:enc:"));
}

/// M2: etcdctl prints a line feed behind the value, and it was put back with it.
#[test]
fn a_line_feed_at_the_end_is_recognised() {
    let file = config(&[&provider("aescbc", "key1", K1)]);
    // As it comes from `etcdctl get`: with the line feed, and with the key in a line of its own.
    let printed = value("/cbc_trailing_newline_added_by_etcdctl");
    for input in [printed.clone(), [DEMO.as_bytes(), b"\n", &printed].concat()] {
        let args = ["decrypt", "--encryption-provider-config", file.path(), "--resource", "secrets", "--key", DEMO];
        let run = atrest(&args, &input).exits(0);
        assert_eq!(run.stdout, value("/plaintext_b64"));
        assert_eq!(run.stderr, "atrest: warning: the line feed at the end was left out\n");
    }
}

/// M4: ciphertext that ends in `{}` was decoded as an empty object.
#[test]
fn nothing_is_looked_for_inside_of_ciphertext() {
    let file = config(&[&provider("secretbox", "key1", K1), "identity: {}"]);
    assert_eq!(class(&[&file], DEMO, &value("/ciphertext_ending_in_braces")).0, "wrong-key");
}

/// G1, G15, G16, and values that nothing is wrong with.
#[test]
fn envelopes_of_a_kms_have_their_class() {
    let file = config(&["kms: {apiVersion: v2, name: demo, endpoint: 'unix:///run/kms.sock', timeout: 200ms}"]);
    for (pointer, expected) in [
        ("/kms_v2_seed/value_b64", "kms-unavailable"),
        ("/kms_v2_plain_dek_type0/value_b64", "kms-unavailable"),
        ("/kms_v2_empty_key_id", "malformed"),
        ("/kms_v2_unknown_dek_type_9", "newer-format"),
    ] {
        assert_eq!(class(&[&file], DEMO, &value(pointer)).0, expected, "{pointer}");
    }
    let sealed = line("encrypt", &[&file], DEMO, b"x");
    assert_eq!(sealed["error"]["class"], "cannot-seal");
    one("encrypt", &[&file], DEMO, b"x").exits(1);
}

#[test]
fn a_newer_or_foreign_format_is_told_apart() {
    let file = config(&[&provider("aescbc", "key1", K1), "identity: {}"]);
    assert_eq!(class(&[&file], DEMO, b"k8s:enc:aescbc:v2:key1:x").0, "newer-format");
    assert_eq!(class(&[&file], DEMO, b"k8s:enc:rot13:v1:key1:x").0, "unknown-format");
    assert_eq!(class(&[&file], DEMO, b"k8s:enc:aescbc:v1:ke").0, "truncated");
    // What stands there instead is repeated neither to its end nor as a command to the terminal.
    for data in [[b"k8s:enc:\x1b[2J", &[b'x'; 100_000][..], b":v1:k:"].concat(), b"k8s:enc:aescbc:\x1b[2J:k:".to_vec()]
    {
        let (_, message) = class(&[&file], DEMO, &data);
        assert!(message.len() < 300 && !message.contains('\x1b'), "{message}");
    }
}
