//! No key and no plaintext is printed where it was not asked for, however wrong the input (CVE-2023-32191 and its kind).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use serde_json::json;

use crate::run::{DEMO, File, Run, atrest, config, encode, provider};

/// 32 bytes of which any part is recognised.
const KEY: &[u8; 32] = b"ZQJXVKWYzqjxvkwyQZXJKVYWqzxjkvyw";
const TEXT: &[u8] = b"hunter2-Correct-Horse-Battery-Staple";

/// Parts of a secret, in every form in which it could be printed.
fn forms(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    let mut encoded = vec![STANDARD.encode(secret), STANDARD_NO_PAD.encode(secret), URL_SAFE.encode(secret)];
    // The same in the middle of something longer.
    encoded.extend([1, 2].map(|shift| STANDARD.encode(secret.iter().copied().skip(shift).collect::<Vec<_>>())));
    for text in encoded {
        forms.extend(text.as_bytes().windows(10).map(|part| String::from_utf8_lossy(part).into_owned()));
    }
    for part in secret.windows(6) {
        forms.push(String::from_utf8_lossy(part).into_owned());
        forms.push(hex::encode(part));
        forms.push(part.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
        forms.push(part.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "));
    }
    forms
}

fn assert_absent(what: &str, secret: &[u8], text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let lower = text.to_lowercase();
    for form in forms(secret) {
        assert!(!text.contains(&form) && !lower.contains(&form), "{what}: {form} in {text}");
    }
}

fn assert_silent(what: &str, run: &Run, output_is_the_plaintext: bool) {
    assert_absent(what, KEY, &run.stdout);
    assert_absent(what, KEY, run.stderr.as_bytes());
    assert_absent(what, TEXT, run.stderr.as_bytes());
    if !output_is_the_plaintext {
        assert_absent(what, TEXT, &run.stdout);
    }
}

fn key(kind: &str, name: &str) -> String {
    provider(kind, name, &encode(KEY))
}

/// A plaintext that is an object, with the secret in it.
fn object() -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"name":"demo","namespace":"default"}},"data":{{"p":"{}"}}}}"#,
        encode(TEXT)
    )
    .into_bytes()
}

fn one(command: &str, file: &File, data: &[u8]) -> Run {
    let args = ["-vv", command, "--encryption-provider-config", file.path(), "--resource", "secrets", "--key", DEMO];
    atrest(&args, data)
}

#[test]
fn a_leak_would_be_seen() {
    for text in [
        encode(KEY),
        hex::encode(KEY),
        format!("{KEY:?}"),
        String::from_utf8_lossy(KEY).into_owned(),
        encode([b"x", &KEY[..]].concat()),
    ] {
        assert!(forms(KEY).iter().any(|form| text.contains(form)), "{text}");
    }
}

#[test]
fn values_good_and_bad_show_nothing() {
    let providers = [key("aescbc", "key1"), key("aesgcm", "key1"), key("secretbox", "key1")];
    for provider in &providers {
        let file = config(&[provider, "identity: {}"]);
        for plaintext in [object(), TEXT.to_vec(), [b"k8s\0", TEXT].concat(), [b"k8s:enc:aescbc:v1:", TEXT].concat()] {
            let sealed = one("encrypt", &file, &plaintext).exits(0);
            assert_silent("encrypt", &sealed, false);
            let opened = one("decrypt", &file, &sealed.stdout).exits(0);
            assert_eq!(opened.stdout, plaintext);
            assert_silent("decrypt", &opened, true);
            let value = sealed.stdout;
            for at in (0..value.len()).step_by(7) {
                let mut flipped = value.clone();
                flipped[at] ^= 0x10;
                assert_silent("a flipped bit", &one("decrypt", &file, &flipped), true);
            }
            for at in (0..value.len()).step_by(17) {
                assert_silent("cut off", &one("decrypt", &file, &value[..at]), false);
            }
        }
    }
}

/// The message about a value of no known format quoted its first 16 bytes: of a password that was stored in the clear, all of it.
#[test]
fn plaintext_that_cannot_be_read_is_not_quoted() {
    let files = [config(&[&key("aesgcm", "key1")]), config(&[&key("aescbc", "key1")])];
    for file in &files {
        for data in [object(), TEXT.to_vec(), [b"\0", TEXT].concat(), [b"{\"", TEXT].concat()] {
            let run = one("decrypt", file, &data).exits(1);
            assert_silent("not allowed", &run, false);
            let line = json!({"resource": "secrets", "key": DEMO, "data": encode(&data)}).to_string();
            let args = ["-vv", "decrypt", "--jsonl", "--encryption-provider-config", file.path()];
            assert_silent("not allowed, by line", &atrest(&args, line.as_bytes()).exits(1), false);
        }
    }
}

#[test]
fn lines_that_are_broken_are_not_quoted() {
    let file = config(&[&key("aesgcm", "key1")]);
    let whole = json!({"resource": "secrets", "key": DEMO, "data": encode(TEXT)}).to_string();
    let mut input = Vec::new();
    for at in 1..whole.len() {
        input.extend_from_slice(&whole.as_bytes()[..at]);
        input.push(b'\n');
        input.extend_from_slice(whole.replacen(&whole[at..=at], "", 1).as_bytes());
        input.push(b'\n');
    }
    let plain = String::from_utf8_lossy(TEXT);
    input.extend_from_slice(format!("{plain}\n\"{plain}\"\n{{\"data\": \"{plain}\"}}\n").as_bytes());
    for command in ["encrypt", "decrypt"] {
        let args = ["-vv", command, "--jsonl", "--encryption-provider-config", file.path()];
        let run = atrest(&args, &input).exits(1);
        assert_absent(command, KEY, &run.stdout);
        assert_eq!(run.stderr, format!(" INFO configuration file={} resources=\"secrets\"\n", file.path()));
        for line in run.lines() {
            // A field whose name lost a letter is one of the others, and those are repeated.
            let mut line = line;
            for field in ["ata", "daa", "dta", "dat", "resource", "key"] {
                line.as_object_mut().expect("an object").remove(field);
            }
            line.as_object_mut().expect("an object").remove("out");
            assert_absent(command, TEXT, line.to_string().as_bytes());
        }
    }
}

#[test]
fn configurations_good_and_bad_show_no_key() {
    let whole = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n  - {}\n  - {}\n  - {}\n",
        key("aescbc", "a"),
        key("aesgcm", "b"),
        key("secretbox", "c")
    );
    let secret = encode(KEY);
    let mut texts = vec![
        whole.clone(),
        whole.replace("secret:", "secrets:"),
        whole.replace("secret:", ""),
        whole.replace("keys:", "key:"),
        whole.replace("name: 'a'", &format!("name: {secret}")),
        whole.replace("[secrets]", &format!("[{secret}]")),
        whole.replace("v1\n", &format!("{secret}\n")),
        whole.replace("kind: ", &format!("kind: {secret} ")),
        whole.replace(&secret, &secret[..40]),
        whole.replace(&secret, &format!("{secret}{secret}")),
        whole.replace(&secret, &format!("'{secret}")),
        whole.replace(&secret, &format!("[{secret}]")),
        whole.replace(&secret, &format!("!!binary {secret}")),
        whole.replace(&secret, &format!("*{secret}")),
        whole.replace('\n', ""),
        whole.replace("  ", "\t"),
        secret.clone(),
    ];
    texts.extend((0..whole.len()).step_by(41).map(|at| whole[..at].to_owned()));
    for text in &texts {
        let file = File::new(text);
        for form in ["table", "json", "yaml", "csv"] {
            assert_silent(text, &atrest(&["-vv", "config", "check", "-o", form, file.path()], b""), false);
        }
        // Names are shown, so a key that was written as a valid name is; nothing else of the file is.
        if !text.contains(&format!("name: {secret}")) {
            let value = b"k8s:enc:aescbc:v1:a:0123456789abcdef0123456789abcdef";
            assert_silent(text, &one("decrypt", &file, value), false);
        }
    }
}

#[test]
fn a_command_that_cannot_connect_shows_neither_key_nor_password() {
    let file = config(&[&key("aescbc", "key1")]);
    let password = String::from_utf8_lossy(TEXT);
    for command in ["verify", "rekey"] {
        let run = atrest(
            &[
                "-vv",
                command,
                "--endpoints",
                "http://127.0.0.1:1",
                "--encryption-provider-config",
                file.path(),
                "--user",
                "root",
                "--password",
                &password,
            ],
            b"",
        )
        .exits(3);
        assert_silent(command, &run, false);
    }
}
