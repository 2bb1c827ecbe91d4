//! kube-apiserver's own verdicts on files, without and with automatic reload.

use std::collections::BTreeSet;
use std::path::Path;

use atrest::config::{Options, load};
use serde::Deserialize;

#[derive(Deserialize)]
struct Verdict {
    file: String,
    reload: bool,
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    resources: BTreeSet<String>,
    #[serde(default)]
    error: String,
}

#[test]
fn every_verdict_is_kube_apiservers() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/config");
    let verdicts = std::fs::read_to_string(vectors.join("verdicts.jsonl")).expect("verdicts");
    let mut differences = Vec::new();
    let mut total = 0;
    for line in verdicts.lines() {
        let verdict: Verdict = serde_json::from_str(line).expect("a verdict");
        total += 1;
        let text = std::fs::read(vectors.join("files").join(&verdict.file)).expect("a file");
        let ours = load(&text, &Options { automatic_reload: verdict.reload });
        let covered: Result<BTreeSet<_>, _> =
            ours.map(|loaded| loaded.config.covered().iter().map(ToString::to_string).collect());
        let agrees = match &covered {
            Ok(resources) => verdict.ok && *resources == verdict.resources,
            Err(_) => !verdict.ok,
        };
        if !agrees {
            differences
                .push(format!("{} ({}): {covered:?}, upstream: {}", verdict.file, verdict.reload, verdict.error));
        }
    }
    println!("{} of {total} verdicts agree", total - differences.len());
    assert_eq!(total, 288);
    assert_eq!(differences, [""; 0]);
}

#[test]
fn the_field_is_the_one_that_upstream_names() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/config");
    let verdicts = std::fs::read_to_string(vectors.join("verdicts.jsonl")).expect("verdicts");
    let mut compared = 0;
    for line in verdicts.lines() {
        let verdict: Verdict = serde_json::from_str(line).expect("a verdict");
        let Some(rest) = verdict.error.strip_prefix("error while parsing file: ") else { continue };
        let rest = rest.strip_prefix('[').unwrap_or(rest);
        let Some((path, _)) = rest.split_once(": ").filter(|(path, _)| path.starts_with("resources")) else { continue };
        let text = std::fs::read(vectors.join("files").join(&verdict.file)).expect("a file");
        let invalid = load(&text, &Options { automatic_reload: verdict.reload }).expect_err(&verdict.file);
        assert_eq!(invalid.errors[0].path, path, "{}", verdict.file);
        compared += 1;
    }
    println!("{compared} paths agree");
    assert!(compared > 50, "{compared}");
}
