//! No output holds a key, whatever is wrong with the file.

use std::path::Path;

use atrest::config::{Options, load};

const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYzE=";
const DECODED: &str = "secret-secret-secret-secret-sec1";

/// A file with every provider, and the secret in each.
fn file() -> String {
    let keys = format!("{{keys: [{{name: key1, secret: {SECRET}}}]}}");
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n  - aesgcm: {keys}\n  - aescbc: {keys}\n  - secretbox: {keys}\n  - identity: {{}}\n  \
         - kms: {{apiVersion: v2, name: kms1, endpoint: 'unix:///kms.sock', timeout: 3s}}\n"
    )
}

/// All that is said about a file.
fn output(text: &str) -> String {
    match load(text.as_bytes(), &Options::default()) {
        Ok(loaded) => serde_json::to_string(&loaded.warnings).expect("JSON"),
        Err(invalid) => {
            let json = serde_json::to_string(&(&invalid.errors, &invalid.warnings)).expect("JSON");
            format!("{invalid} {invalid:?} {json}")
        }
    }
}

fn assert_is_silent(text: &str) {
    let output = output(text);
    for start in 0..SECRET.len() - 12 {
        let part = &SECRET[start..start + 12];
        assert!(!output.contains(part), "{part} in {output} of\n{text}");
    }
    assert!(!output.contains("secret-secret"), "{output} of\n{text}");
}

#[test]
fn the_secret_is_a_real_one() {
    let loaded = load(file().as_bytes(), &Options::default()).expect("a valid file");
    assert_eq!(loaded.config.resources[0].providers[0].keys()[0].secret.expose(), DECODED.as_bytes());
}

#[test]
fn debug_of_each_type_is_redacted() {
    let loaded = load(file().as_bytes(), &Options::default()).expect("a valid file");
    let entry = &loaded.config.resources[0];
    assert_eq!(
        format!("{:?}", entry.providers[0].keys()[0]),
        "NamedKey { name: \"key1\", secret: Key([REDACTED], 32 bytes), position: Position { line: 6, column: 42 } }"
    );
    let mut all = format!("{loaded:?} {:?} {entry:?}", loaded.config);
    for provider in &entry.providers {
        all.push_str(&format!("{provider:?} {provider:#?} {:?}", provider.keys()));
    }
    let bytes = format!("{:?}", DECODED.as_bytes());
    for text in [SECRET, DECODED, "115, 101, 99", bytes.as_str()] {
        assert!(!all.contains(text), "{all}");
    }
}

#[test]
fn the_secret_in_any_place_is_not_repeated() {
    let file = file();
    for place in [
        "secrets",
        "key1",
        "kms1",
        "v2",
        "3s",
        "unix:///kms.sock",
        "EncryptionConfiguration",
        "apiserver.config.k8s.io/v1",
    ] {
        let errors_too = file.replace("identity: {}", "identity: {a: 1}");
        for text in [&file, &errors_too] {
            assert_is_silent(&text.replace(place, SECRET));
            assert_is_silent(&text.replace(place, &format!("{{{SECRET}: {SECRET}}}")));
        }
    }
    for field in ["resources", "providers", "aesgcm", "keys", "name", "secret", "identity", "kms", "timeout", "kind"] {
        assert_is_silent(&file.replace(&format!("{field}:"), &format!("{SECRET}:")));
        assert_is_silent(&file.replace(&format!("{field}:"), &format!("{field}: {SECRET} ")));
        assert_is_silent(&file.replace(&format!("{field}:"), &format!("{field}: \"{SECRET}")));
    }
}

#[test]
fn a_damaged_file_does_not_show_its_keys() {
    let file = file();
    let damages = ["", "*", "\n", "\"", "'", "{", "]", ":", ": ", "\t", "\u{0}", "!", "&", "- ", "  "];
    for at in (0..file.len()).filter(|&at| file.is_char_boundary(at)) {
        for damage in damages {
            assert_is_silent(&format!("{}{damage}{}", &file[..at], file.get(at + 1..).unwrap_or_default()));
        }
        assert_is_silent(&file[..at]);
    }
}

#[test]
fn files_that_kube_apiserver_refuses_do_not_show_their_keys() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/config/files");
    let mut count = 0;
    for file in std::fs::read_dir(files).expect("files") {
        let path = file.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let secrets = text
            .lines()
            .filter_map(|line| line.split_once("secret: "))
            .map(|(_, secret)| secret.trim_matches(|c: char| c.is_whitespace() || "\"'{}[],|".contains(c)).to_owned());
        let output = output(&text);
        for secret in secrets.filter(|secret| secret.len() >= 4) {
            assert!(!output.contains(&secret), "{}: {output}", path.display());
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}
