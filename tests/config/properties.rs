//! No text makes the decoder panic or run without end.

use std::time::{Duration, Instant};

use atrest::config::{Options, load};
use proptest::prelude::*;

/// What a decoder that is at most linear needs, with room for a slow machine.
const LONG: Duration = Duration::from_secs(20);

fn read(text: &[u8]) {
    let started = Instant::now();
    match load(text, &Options { automatic_reload: true }) {
        Ok(loaded) => drop(format!("{loaded:?}")),
        Err(invalid) => assert!(!invalid.errors.is_empty()),
    }
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}

/// Pieces that are likely to make something of a configuration.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n",
        "- resources: [secrets]\n",
        "  providers:\n",
        "  - aescbc:\n      keys:\n",
        "      - name: a\n        secret: AQEBAQEBAQEBAQEBAQEBAQ==\n",
        "  - identity: {}\n",
        "  - kms: {name: a, endpoint: 'unix:///%41', timeout: 1h}\n",
        "resources:",
        "&a ",
        "*a",
        "<<: *a",
        "{",
        "}",
        "[",
        "]",
        ",",
        ": ",
        "- ",
        "? ",
        "\n",
        "  ",
        "\t",
        "---\n",
        "...\n",
        "!!str ",
        "!x ",
        "|\n",
        "'",
        "\"",
        "\\",
        "#",
        "%",
        "\u{feff}",
        "\u{0}",
        "é",
        "null",
        "0x_1",
        "1e9",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        read(&bytes);
    }

    #[test]
    fn any_text(text in "\\PC{0,256}") {
        read(text.as_bytes());
        read(format!("{{{text}").as_bytes());
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(piece(), 0..48)) {
        read(pieces.concat().as_bytes());
    }

    #[test]
    fn any_endpoint_and_duration(endpoint in "(unix:)?[/%@#?:\\[\\]a-f0-9]{0,24}", timeout in "[-+.0-9nuµmsh]{0,24}") {
        let text = format!(
            "apiVersion: v1\nkind: EncryptionConfig\nresources: [{{resources: [a], providers: [{{kms: {{name: a, endpoint: \
             '{endpoint}', timeout: '{timeout}'}}}}]}}]"
        );
        read(text.as_bytes());
    }

    #[test]
    fn any_secret(secret in "[A-Za-z0-9+/=\\\\ -]{0,64}") {
        let text = format!(
            "apiVersion: v1\nkind: EncryptionConfig\nresources: [{{resources: [a], providers: [{{aesgcm: {{keys: [{{name: a, \
             secret: \"{}\"}}]}}}}]}}]",
            secret.replace('\\', "\\\\")
        );
        read(text.as_bytes());
    }
}

#[test]
fn bombs() {
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let mut merges = "a0: &a0 {k: 1}\n".to_owned();
    for level in 1..64 {
        let earlier = vec![format!("*a{}", level - 1); 10].join(", ");
        aliases.push_str(&format!("a{level}: &a{level} [{earlier}]\n"));
        merges.push_str(&format!("a{level}: &a{level} {{<<: [{earlier}]}}\n"));
    }
    let wide = format!("resources: [{}]", "a, ".repeat(200_000));
    let keys: String = (0..90_000).map(|key| format!("k{key}: 1\n")).collect();
    let same = "k: 1\n".repeat(40_000);
    let resources = format!(
        "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- providers: [identity: {{}}]\n  resources: [{}]\n",
        "a, '*.b', ".repeat(40_000)
    );
    let json = format!("{{\"a\": {}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let json_keys = format!("{{{}\"z\": 1}}", "\"k\": 1, ".repeat(90_000));
    for text in [
        aliases,
        merges,
        wide,
        keys,
        same,
        resources,
        json,
        json_keys,
        "[".repeat(200_000),
        "{".repeat(200_000),
        "{a: ".repeat(50_000),
        "- ".repeat(200_000),
        "? ".repeat(200_000),
        "&a ".repeat(50_000),
        "!".repeat(200_000),
        format!("a: \"{}", "\\x41".repeat(100_000)),
        format!("{}a", " ".repeat(500_000)),
    ] {
        read(text.as_bytes());
    }
}
