//! `--jsonl`: a line in, a line out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::run::{DEMO, File, K1, K2, Run, atrest, command, config, decode, encode, provider};

fn gcm() -> File {
    config(&[&provider("aesgcm", "key1", K1)])
}

fn stream(command: &str, file: &File, input: &[u8]) -> Run {
    atrest(&[command, "--jsonl", "--encryption-provider-config", file.path()], input)
}

fn joined(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

#[test]
fn answers_are_in_order_and_repeat_what_was_asked() {
    let file = gcm();
    let lines: Vec<_> = (0..5000)
        .map(|i| {
            json!({
                "resource": "secrets", "key": format!("/registry/secrets/default/s{i}"), "data": encode(format!("text {i}")),
                "id": i, "note": {"a": [1, null, "ü"]},
            })
        })
        .collect();
    let sealed = stream("encrypt", &file, &joined(&lines)).exits(0);
    let answers = sealed.lines();
    assert_eq!(answers.len(), 5000);
    let mut back = Vec::new();
    for (line, answer) in lines.iter().zip(&answers) {
        for field in ["resource", "key", "id", "note"] {
            assert_eq!(line[field], answer[field]);
        }
        assert_eq!((answer.get("data"), &answer["stale"]), (None, &json!(false)));
        let out = decode(answer["out"].as_str().expect("out"));
        assert!(out.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
        back.push(json!({"resource": "secrets", "key": answer["key"], "data": answer["out"]}));
    }
    let opened = stream("decrypt", &file, &joined(&back)).exits(0);
    for (line, answer) in lines.iter().zip(opened.lines()) {
        assert_eq!(line["data"], answer["out"]);
    }
}

#[test]
fn every_provider_gives_back_what_it_got() {
    for kind in ["aescbc", "aesgcm", "secretbox"] {
        let file = config(&[&provider(kind, "a:b", K2)]);
        let line = json!({"resource": "secrets", "key": DEMO, "data": encode(b"\0\xff")});
        let sealed = stream("encrypt", &file, &joined(&[line])).exits(0).lines().remove(0);
        let back = json!({"resource": "secrets", "key": DEMO, "data": sealed["out"]});
        let opened = stream("decrypt", &file, &joined(&[back])).exits(0).lines().remove(0);
        assert_eq!((&opened["out"], &opened["stale"]), (&json!(encode(b"\0\xff")), &json!(false)), "{kind}");
    }
}

/// Fields that came through a float: an ID of 2^64 was answered as 1.8446744073709552e19, and the lines could no longer be told apart.
#[test]
fn numbers_keep_their_digits() {
    let line = format!(
        r#"{{"resource": "secrets", "key": "{DEMO}", "data": "", "id": 18446744073709551616, "f": 1.10, "g": 1e400}}"#
    );
    let run = stream("encrypt", &gcm(), line.as_bytes()).exits(0);
    for text in [r#""id":18446744073709551616"#, r#""f":1.10"#, r#""g":1e400"#] {
        assert!(run.text().contains(text), "{}", run.text());
    }
}

#[test]
fn an_answer_that_is_fed_back_is_not_mistaken_for_a_new_one() {
    let line = json!({
        "resource": "secrets", "key": DEMO, "data": encode("k8s:enc:aesgcm:v1:key1:x"),
        "out": "b2xk", "stale": true, "warning": {}, "error": {},
    });
    let answer = stream("decrypt", &gcm(), &joined(&[line])).exits(1).lines().remove(0);
    let mut fields: Vec<_> = answer.as_object().expect("an object").keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["error", "key", "resource"]);
    assert_eq!(answer["error"]["class"], "truncated");
}

#[test]
fn keys_need_not_be_text() {
    let file = gcm();
    let key = b"/registry/secrets/default/\xff\x01";
    let line = json!({"resource": "secrets", "key_b64": encode(key), "data": encode("text")});
    let sealed = stream("encrypt", &file, &joined(&[line])).exits(0).lines().remove(0);
    assert_eq!(sealed["key_b64"], encode(key));
    let back = |key: &[u8]| json!({"resource": "secrets", "key_b64": encode(key), "data": sealed["out"]});
    let run = stream("decrypt", &file, &joined(&[back(key), back(b"/registry/secrets/default/x")])).exits(1);
    assert_eq!(run.lines()[0]["out"], encode("text"));
    assert_eq!(run.lines()[1]["error"]["class"], "wrong-key");
}

#[test]
fn a_bad_line_is_answered_and_the_stream_goes_on() {
    let good = json!({"resource": "secrets", "key": DEMO, "data": encode("text")}).to_string();
    let bad: [(&[u8], &str); 17] = [
        (b"{", "not a JSON object (at column 1)"),
        (b"[]", "not a JSON object (at column 0)"),
        (b"null", "not a JSON object (at column 4)"),
        (b"\xff\xfe", "not a JSON object (at column 1)"),
        (b"{\"a\": \"\xff\"}", "not a JSON object (at column 8)"),
        (br#"{"a": 1} x"#, "not a JSON object (at column 10)"),
        (br#"{}"#, "the field data must be a string in base64"),
        (br#"{"data": 7, "resource": "secrets", "key": "k"}"#, "the field data must be a string in base64"),
        (br#"{"data": "!", "resource": "secrets", "key": "k"}"#, "the field data must be a string in base64"),
        (br#"{"data": "YQ", "resource": "secrets", "key": "k"}"#, "the field data must be a string in base64"),
        (br#"{"data": "", "key": "k"}"#, "the field resource must be a string"),
        (br#"{"data": "", "resource": 1, "key": "k"}"#, "the field resource must be a string"),
        (br#"{"data": "", "resource": "secrets"}"#, "one of the fields key and key_b64 must be there, as a string"),
        (
            br#"{"data": "", "resource": "secrets", "key": "k", "key_b64": "aw=="}"#,
            "one of the fields key and key_b64 must be there, as a string",
        ),
        (
            br#"{"data": "", "resource": "secrets", "key": 1}"#,
            "one of the fields key and key_b64 must be there, as a string",
        ),
        (br#"{"data": "", "resource": "secrets", "key_b64": "!"}"#, "the field key_b64 must be a string in base64"),
        (br#"{"data": "", "resource": "secrets", "key": ""}"#, "the etcd key is empty"),
    ];
    for command in ["encrypt", "decrypt"] {
        let mut input = Vec::new();
        for (line, _) in bad {
            input.extend_from_slice(line);
            input.push(b'\n');
        }
        input.extend_from_slice(good.as_bytes());
        let run = stream(command, &gcm(), &input).exits(1);
        let answers = run.lines();
        assert_eq!(answers.len(), bad.len() + 1);
        for ((line, message), answer) in bad.iter().zip(&answers) {
            let expected = json!({"class": "malformed", "message": message});
            assert_eq!(answer["error"], expected, "{}", line.escape_ascii());
        }
        let last = answers.last().expect("an answer");
        match command {
            "encrypt" => assert_eq!(last["stale"], false),
            _ => assert_eq!(last["error"]["class"], "unknown-format"),
        }
    }
}

#[test]
fn blank_lines_and_crlf_are_nothing() {
    let line = json!({"resource": "secrets", "key": DEMO, "data": ""}).to_string();
    let run = stream("encrypt", &gcm(), format!("\n\r\n  \t\n{line}\r\n\n\n{line}").as_bytes()).exits(0);
    assert_eq!(run.lines().len(), 2);
    let nothing = stream("encrypt", &gcm(), b"").exits(0);
    assert_eq!((nothing.text(), nothing.stderr.as_str()), ("", ""));
}

/// A line beyond the limit was cut there, and its rest was answered as lines of their own: all later answers stood beside
/// the wrong questions.
#[test]
fn a_line_that_is_too_long_has_one_answer() {
    let mut input = vec![b'x'; 3 * 64 * 1024 * 1024];
    let line = json!({"resource": "secrets", "key": DEMO, "data": "", "id": 2}).to_string();
    input.extend_from_slice(format!("\n{line}\n").as_bytes());
    let run = stream("encrypt", &gcm(), &input).exits(1);
    let answers = run.lines();
    assert_eq!(answers.len(), 2);
    assert_eq!(
        answers[0],
        json!({"error": {"class": "malformed", "message": "the line is longer than 67108864 bytes"}})
    );
    assert_eq!((&answers[1]["id"], &answers[1]["stale"]), (&json!(2), &json!(false)));
}

#[test]
fn a_line_of_some_megabytes_is_taken() {
    let text = vec![0x5a; 8 * 1024 * 1024];
    let line = json!({"resource": "secrets", "key": DEMO, "data": encode(&text)});
    let file = gcm();
    let sealed = stream("encrypt", &file, &joined(&[line])).exits(0).lines().remove(0);
    let back = json!({"resource": "secrets", "key": DEMO, "data": sealed["out"]});
    let opened = stream("decrypt", &file, &joined(&[back])).exits(0).lines().remove(0);
    assert!(opened["out"] == encode(&text));
}

#[test]
fn a_line_nested_without_end_is_no_stack_overflow() {
    let deep = format!(r#"{{"data": "", "resource": "secrets", "key": "k", "deep": {}"#, "[".repeat(100_000));
    let run = stream("encrypt", &gcm(), deep.as_bytes()).exits(1);
    assert_eq!(run.lines()[0]["error"]["class"], "malformed");
}

#[test]
fn a_line_is_answered_before_the_next_is_there() {
    let file = gcm();
    let mut command = command(&["encrypt", "--jsonl", "--encryption-provider-config", file.path()]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program");
    let mut input = child.stdin.take().expect("standard input");
    let mut output = BufReader::new(child.stdout.take().expect("standard output"));
    for i in 0..20 {
        let line = json!({"resource": "secrets", "key": DEMO, "data": "", "id": i});
        // In two writes, so that a part of a line is in the buffer meanwhile.
        let text = format!("{line}\n");
        let (first, second) = text.split_at(10);
        input.write_all(first.as_bytes()).expect("a write");
        input.flush().expect("a write");
        input.write_all(second.as_bytes()).expect("a write");
        let mut answer = String::new();
        output.read_line(&mut answer).expect("an answer");
        assert_eq!(serde_json::from_str::<Value>(&answer).expect("JSON")["id"], i);
    }
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the end");
    assert_eq!((rest.as_str(), child.wait().expect("an exit code").code()), ("", Some(0)));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let file = gcm();
    let line = json!({"resource": "secrets", "key": DEMO, "data": encode(vec![0; 10_000])}).to_string();
    let input = format!("{line}\n").repeat(2000);
    let mut command = command(&["encrypt", "--jsonl", "--encryption-provider-config", file.path()]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program");
    let mut stdin = child.stdin.take().expect("standard input");
    let writer = std::thread::spawn(move || _ = stdin.write_all(input.as_bytes()));
    let mut output = BufReader::new(child.stdout.take().expect("standard output"));
    output.read_line(&mut String::new()).expect("an answer");
    drop(output);
    let run = child.wait_with_output().expect("the program's end");
    writer.join().expect("the writer");
    assert_eq!((run.status.code(), String::from_utf8_lossy(&run.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn one_value_to_a_closed_pipe_is_no_failure() {
    let file = gcm();
    let mut command =
        command(&["encrypt", "--encryption-provider-config", file.path(), "--resource", "secrets", "--key", DEMO]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("standard input");
    stdin.write_all(&vec![0; 300_000]).expect("a write");
    drop(stdin);
    let run = child.wait_with_output().expect("the program's end");
    assert_eq!((run.status.code(), String::from_utf8_lossy(&run.stderr).as_ref()), (Some(0), ""));
}
