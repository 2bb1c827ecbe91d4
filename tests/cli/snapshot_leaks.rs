//! What Secrets keep is in no output of the commands about files, unless `--reveal` asks for it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::Value;

use crate::fixture::{Dir, LOCAL, etcd, json_of, local_config, with_keys};
use crate::run::{Run, decode};

/// Values that are shorter can be anywhere by chance.
const SHORTEST: usize = 8;

/// Everything that the Secrets of [`LOCAL`] keep, in the forms in which it could be printed.
fn kept() -> Vec<String> {
    let list = json_of(
        &with_keys(&local_config(), &["get", "--snapshot", LOCAL, "secrets", "--reveal", "-o", "json"]).exits(0),
    );
    let mut forms = Vec::new();
    for secret in list["items"].as_array().expect("items") {
        for value in secret["data"].as_object().into_iter().flat_map(|data| data.values()) {
            let bytes = decode(value.as_str().expect("base64"));
            if bytes.len() < SHORTEST {
                continue;
            }
            // Of long ones the beginning is enough; a multiple of three bytes is the same in base64 whatever follows.
            let start = &bytes[..bytes.len().min(24)];
            forms.push(String::from_utf8_lossy(start).into_owned());
            forms.push(STANDARD_NO_PAD.encode(&start[..start.len() / 3 * 3]));
            forms.push(STANDARD.encode(&bytes));
            forms.push(hex::encode(start));
        }
    }
    // The keys of the configuration are 32 times one byte.
    for key in b"ADBFZ" {
        forms.extend([
            STANDARD.encode([*key; 32]),
            hex::encode([*key; 32]),
            String::from_utf8(vec![*key; 32]).expect("text"),
        ]);
    }
    forms.sort_unstable();
    forms.dedup();
    assert!(forms.len() > 150, "{}", forms.len());
    forms
}

fn leaked<'k>(kept: &'k [String], run: &Run) -> Option<&'k String> {
    let (out, err) = (String::from_utf8_lossy(&run.stdout), &run.stderr);
    kept.iter().find(|form| out.contains(form.as_str()) || err.contains(form.as_str()))
}

#[test]
fn a_leak_would_be_seen() {
    let kept = kept();
    let config = local_config();
    let reveal = |args: &[&str]| with_keys(&config, &[args, &["--reveal"]].concat());
    for form in ["yaml", "json", "ndjson", "jsonpath={.items[*].data}"] {
        assert!(leaked(&kept, &reveal(&["get", "--snapshot", LOCAL, "secrets", "-o", form])).is_some(), "{form}");
    }
    let args = ["snapshot", "diff", LOCAL, "--from-revision", "100", "-o", "json"];
    assert_eq!(leaked(&kept, &reveal(&args)), None, "what was added is not shown");
}

#[test]
fn no_command_shows_what_secrets_keep() {
    let (kept, config, dir) = (kept(), local_config(), Dir::new());
    let out = dir.arg("new.db");
    let reports = ["table", "wide", "json", "ndjson", "yaml", "csv", "name"];
    let objects = ["table", "yaml", "json", "ndjson", "name", "jsonpath={.items[*]}"];
    let touched = "/registry/secrets/team-b/touched";
    let commands: [(&[&str], &[&str]); 13] = [
        (&["get", "--snapshot", LOCAL], &objects),
        (&["get", "--snapshot", LOCAL, "--show-managed-fields", "--as-stored"], &objects),
        (&["scan", "--snapshot", LOCAL, "--history"], &reports),
        (&["verify", "--snapshot", LOCAL], &reports),
        (&["snapshot", "inspect", LOCAL], &reports),
        (&["snapshot", "residue", LOCAL], &reports),
        (&["snapshot", "diff", LOCAL, "--from-revision", "100", "--resealed"], &reports),
        (&["snapshot", "diff", LOCAL, &etcd("valid/v351-history.db")], &reports),
        (&["snapshot", "history", touched, "--snapshot", LOCAL], &reports),
        (&["snapshot", "history", "/registry/secrets/team-a/p1-app-0", "--snapshot", LOCAL], &reports),
        (&["snapshot", "rekey", LOCAL, "--out", &out, "--force"], &reports),
        (&["snapshot", "redact", LOCAL, "--out", &out, "--force", "--replace-secret-data"], &reports),
        (&["snapshot", "decrypt", LOCAL, "--out", &out, "--force"], &reports),
    ];
    for (args, forms) in commands {
        for form in forms {
            let args = [&["-vv"], args, &["-o", form]].concat();
            let run = match args.contains(&"inspect") {
                true => crate::run::atrest(&args, b""),
                false => with_keys(&config, &args),
            };
            assert!(matches!(run.status, Some(0 | 1)), "{args:?}: {}", run.stderr);
            assert_eq!(leaked(&kept, &run), None, "{args:?}");
        }
    }
    for form in ["yaml", "ndjson"] {
        let target = dir.arg(form);
        let run = with_keys(&config, &["-vv", "snapshot", "export", LOCAL, "--out", &target, "-o", form]).exits(0);
        assert_eq!(leaked(&kept, &run), None, "{form}");
    }
    for name in dir.files().iter().filter(|name| !name.ends_with('/') && *name != "new.db") {
        let text = std::fs::read_to_string(dir.join(name)).expect("text");
        assert_eq!(kept.iter().find(|form| text.contains(form.as_str())), None, "{name}");
    }
}

#[test]
fn decoded_secrets_are_redacted_in_lines_too() {
    let (kept, config) = (kept(), local_config());
    let revealed =
        json_of(&with_keys(&config, &["get", "--snapshot", LOCAL, "secrets", "--reveal", "-o", "json"]).exits(0));
    let lines: Vec<String> = revealed["items"].as_array().expect("items").iter().map(line).collect();
    let run = crate::run::atrest(&["-vv", "decode", "--jsonl"], lines.join("\n").as_bytes()).exits(0);
    assert_eq!(run.lines().len(), 43);
    assert_eq!(leaked(&kept, &run), None);
}

fn line(object: &Value) -> String {
    serde_json::json!({"data": crate::run::encode(object.to_string())}).to_string()
}
