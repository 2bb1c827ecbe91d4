//! `atrest decode`: plaintext in, the object out.

use serde_json::{Value, json};

use crate::run::{atrest, encode, vectors};

const SECRET: &str =
    r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"p":"aHVudGVyMg=="},"type":"Opaque"}"#;

/// An object as it is stored in protobuf, and as Kubernetes prints it.
fn stored(kind: &str) -> (Vec<u8>, Value) {
    let text = std::fs::read_to_string(vectors().join("objects/sample.jsonl")).expect("a file");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let found = lines.into_iter().find(|line| line["object"]["kind"] == kind).expect(kind);
    (crate::run::decode(found["stored"].as_str().expect("base64")), found["object"].clone())
}

#[test]
fn protobuf_is_shown_as_kubernetes_prints_it() {
    let (bytes, mut object) = stored("ConfigMap");
    assert!(bytes.starts_with(b"k8s\0"));
    object["metadata"].as_object_mut().expect("metadata").remove("managedFields");
    let run = atrest(&["decode"], &bytes).exits(0);
    assert_eq!(run.stderr, "");
    assert_eq!(serde_json::from_str::<Value>(run.text()).expect("JSON"), object);
    // etcdctl prints a line feed behind it.
    assert_eq!(atrest(&["decode"], &[&bytes[..], b"\n"].concat()).exits(0).text(), run.text());
}

#[test]
fn json_is_shown_in_both_forms() {
    let run = atrest(&["decode", "-o", "yaml", "--reveal"], SECRET.as_bytes()).exits(0);
    assert_eq!(
        (run.text(), run.stderr.as_str()),
        ("apiVersion: v1\ndata:\n  p: aHVudGVyMg==\nkind: Secret\nmetadata:\n  name: a\ntype: Opaque\n", "")
    );
    let run = atrest(&["decode"], SECRET.as_bytes()).exits(0);
    assert_eq!(
        (run.text(), run.stderr.as_str()),
        (
            "\
{
    \"apiVersion\": \"v1\",
    \"data\": {
        \"p\": \"[REDACTED, 7 bytes]\"
    },
    \"kind\": \"Secret\",
    \"metadata\": {
        \"name\": \"a\"
    },
    \"type\": \"Opaque\"
}
",
            ""
        )
    );
}

#[test]
fn what_is_no_object_has_a_class() {
    for (input, said) in [
        (&b"k8s:enc:aescbc:v1:key1:0123456789abcdef"[..], "nested: the value is encrypted: `atrest decrypt` opens it"),
        (b"", "malformed: empty value"),
        (b"hello", "unknown-format: 5 bytes of no known encoding"),
        (br#"{"kind":"Secret"}"#, "malformed: JSON without an apiVersion"),
        (br#"{"apiVersion":"v1","#, "malformed: JSON that ends too early, within what begins at byte 18"),
    ] {
        let run = atrest(&["decode"], input).exits(1);
        assert_eq!((run.text(), run.stderr.as_str()), ("", format!("atrest: error: {said}\n").as_str()));
    }
}

#[test]
fn a_bad_line_ends_nothing() {
    let line = |data: &[u8]| json!({"id": 7, "data": encode(data)}).to_string();
    let input = [
        line(SECRET.as_bytes()),
        "nope".to_owned(),
        "null".to_owned(),
        String::new(),
        line(b"k8s:enc:aescbc:v1:key1:0123456789abcdef"),
        r#"{"id":8}"#.to_owned(),
        r#"{"data":5}"#.to_owned(),
        r#"{"data":"!!"}"#.to_owned(),
        line(br#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}"#),
    ]
    .join("\n");
    let run = atrest(&["decode", "--jsonl"], input.as_bytes()).exits(1);
    let malformed = |message: &str| json!({"class": "malformed", "message": message});
    let no_data = malformed("the field data must be a string in base64");
    let nested = json!({"class": "nested", "message": "the value is encrypted: `atrest decrypt` opens it"});
    let secret = json!({
        "apiVersion": "v1", "data": {"p": "[REDACTED, 7 bytes]"}, "kind": "Secret", "metadata": {"name": "a"},
        "type": "Opaque",
    });
    assert_eq!(
        run.lines(),
        [
            json!({"id": 7, "object": secret}),
            json!({"error": malformed("not a JSON object (at column 2)")}),
            json!({"error": malformed("not a JSON object (at column 4)")}),
            json!({"id": 7, "error": nested}),
            json!({"id": 8, "error": no_data}),
            json!({"error": no_data}),
            json!({"error": no_data}),
            json!({"id": 7, "object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}}),
        ]
    );
    assert_eq!(run.stderr, "");
    let good = atrest(&["decode", "--jsonl", "--reveal"], line(SECRET.as_bytes()).as_bytes()).exits(0);
    assert_eq!(good.lines()[0]["object"]["data"]["p"], "aHVudGVyMg==");
}

/// `decode` kept a line of any length in memory, where `decrypt` and `encrypt` answer that it is too long.
#[test]
fn a_line_that_is_too_long_has_one_answer() {
    let mut input = vec![b'x'; 2 * 64 * 1024 * 1024 + 7];
    let line = json!({"data": encode(SECRET.as_bytes())});
    input.extend_from_slice(format!("\n{line}\n").as_bytes());
    let run = atrest(&["decode", "--jsonl"], &input).exits(1);
    let answers = run.lines();
    assert_eq!(answers.len(), 2);
    let message = "the line is longer than 67108864 bytes";
    assert_eq!(answers[0], json!({"error": {"class": "malformed", "message": message}}));
    assert_eq!(answers[1]["object"]["kind"], "Secret");
}
