//! What `scan` counts of a cluster that a real kube-apiserver wrote, in every form in which it prints.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::fixture::{LOCAL, LOCAL_CONFIG, Workshop, put_all, read, secret, secret_key};
use crate::support::{Etcd, Version, vector, vector_lines};

fn local(version: Version) -> (Etcd, Workshop) {
    let workshop = Workshop::new();
    workshop.file("config.yaml", &read(LOCAL_CONFIG));
    (Etcd::builder(version).restored_from(vector(LOCAL)).start(), workshop)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// The census: resource, provider, key name, values.
const CENSUS: [(&str, &str, &str, u64); 31] = [
    ("apiservices.apiregistration.k8s.io", "identity", "", 22),
    ("configmaps", "aescbc", "key0", 2),
    ("configmaps", "aescbc", "key1", 2),
    ("configmaps", "aescbc", "key2", 2),
    ("configmaps", "aesgcm", "gcm1", 2),
    ("configmaps", "identity", "", 3),
    ("configmaps", "secretbox", "box1", 2),
    ("customresourcedefinitions.apiextensions.k8s.io", "identity", "", 1),
    ("endpoints", "identity", "", 1),
    ("endpointslices.discovery.k8s.io", "identity", "", 1),
    ("events", "identity", "", 42),
    ("flowschemas.flowcontrol.apiserver.k8s.io", "identity", "", 11),
    ("ipaddresses.networking.k8s.io", "identity", "", 1),
    ("namespaces", "identity", "", 6),
    ("priorityclasses.scheduling.k8s.io", "identity", "", 2),
    ("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io", "identity", "", 8),
    ("ranges (never encrypted)", "identity", "", 1),
    ("secrets", "aescbc", "key0", 7),
    ("secrets", "aescbc", "key1", 7),
    ("secrets", "aescbc", "key2", 7),
    ("secrets", "aesgcm", "gcm1", 8),
    ("secrets", "identity", "", 7),
    ("secrets", "secretbox", "box1", 7),
    ("servicecidrs.networking.k8s.io", "identity", "", 1),
    ("services", "identity", "", 1),
    ("widgets.stable.example.com", "aescbc", "key0", 1),
    ("widgets.stable.example.com", "aescbc", "key1", 1),
    ("widgets.stable.example.com", "aescbc", "key2", 1),
    ("widgets.stable.example.com", "aesgcm", "gcm1", 1),
    ("widgets.stable.example.com", "identity", "", 1),
    ("widgets.stable.example.com", "secretbox", "box1", 1),
];

fn census(report: &Value) -> Vec<(&str, &str, &str, u64)> {
    let of = |group: &'_ Value| group["values"].as_u64().expect("a count");
    let groups = report["groups"].as_array().expect("there are groups").iter();
    groups
        .map(|group| (text(&group["resource"]), text(&group["provider"]), text(&group["key_name"]), of(group)))
        .collect()
}

#[test]
fn the_census_of_a_cluster_is_exact() {
    for version in Version::ALL {
        let (etcd, workshop) = local(version);
        let report = workshop.run(&etcd, "scan", ["-q", "-o", "json"]).json(0);
        assert_eq!(census(&report), CENSUS);
        assert_eq!((report["values"].as_u64(), report["encrypted"].as_u64()), (Some(160), Some(51)));
        assert_eq!((report["plaintext"].as_u64(), report["unrecognised"].as_u64()), (Some(109), Some(0)));
        assert_eq!((&report["complete"], &report["single_revision"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(report["revision"], etcd.client().revision());
        // What cannot be counted from the rows above, from the values themselves.
        let expected = vector_lines("snapshots/local.expected.jsonl");
        let sum = |of: &str| report["groups"].as_array().unwrap().iter().map(|group| group[of].as_u64().unwrap()).sum();
        let bytes: u64 = expected.iter().map(|row| row["stored_len"].as_u64().unwrap()).sum();
        let writes: u64 = expected.iter().map(|row| row["version"].as_u64().unwrap()).sum();
        assert_eq!((sum("bytes"), sum("writes")), (bytes, writes));
        let newest = expected.iter().map(|row| row["mod_revision"].as_u64().unwrap()).max();
        let groups = report["groups"].as_array().unwrap();
        assert_eq!(groups.iter().map(|group| group["newest_revision"].as_u64().unwrap()).max(), newest);
    }
}

#[test]
fn a_census_is_broken_down_as_asked() {
    let (etcd, workshop) = local(Version::V3_5);
    let by_namespace = workshop.run(&etcd, "scan", ["-q", "-o", "json", "--by", "namespace", "--resource", "secrets"]);
    let report = by_namespace.json(0);
    let groups: Vec<_> = report["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            assert_eq!((&group["resource"], &group["provider"]), (&Value::Null, &Value::Null));
            (text(&group["namespace"]), group["values"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(groups, [("team-a", 28), ("team-b", 15)]);
    let both = workshop.run(&etcd, "scan", ["-q", "-o", "csv", "--by", "namespace,provider", "-n", "team-b"]);
    assert_eq!(both.code, Some(0));
    let lines: Vec<&str> = both.stdout.lines().collect();
    assert_eq!(lines[0], "namespace,provider,values,bytes,writes,oldest,newest");
    let cells = |line: &str| line.split(',').take(3).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = lines[1..].iter().map(|line| cells(line)).collect();
    assert_eq!(rows, [["team-b", "aescbc", "10"], ["team-b", "aesgcm", "1"], ["team-b", "secretbox", "10"]]);
    let unknown = workshop.run(&etcd, "scan", ["--by", "colour"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("must be one of resource, namespace, provider, key, key-id"), "{}", unknown.stderr);
}

/// O4: check the bytes. Exit code 1 is for what should be encrypted and is not.
#[test]
fn plaintext_is_a_finding_where_it_is_not_expected() {
    let (etcd, workshop) = local(Version::V3_5);
    let scan = |args: &[&str]| workshop.run(&etcd, "scan", ["-q", "-o", "json"].iter().chain(args));
    let expect = ["--expect", "encrypted"];
    let configured = scan(&[&expect[..], &["--encryption-provider-config", "config.yaml"]].concat()).json(1);
    assert_eq!(configured["unexpected"], 11);
    let keys: Vec<_> = configured["unexpected_keys"].as_array().unwrap().iter().map(|key| text(&key["key"])).collect();
    assert_eq!(keys.len(), 11);
    assert_eq!(keys[0], "/registry/configmaps/kube-system/kube-apiserver-legacy-service-account-token-tracking");
    assert_eq!(keys[10], "/registry/stable.example.com/widgets/team-a/p0-w");
    let selected = scan(&[&expect[..], &["--resource", "secrets"]].concat()).json(1);
    assert_eq!(selected["unexpected"], 7);
    let clean = scan(&[&expect[..], &["--resource", "secrets", "-n", "team-b"]].concat()).json(0);
    assert_eq!((clean["unexpected"].as_u64(), clean["values"].as_u64()), (Some(0), Some(15)));
    // Without the expectation plaintext is no finding.
    assert_eq!(scan(&[]).json(0)["unexpected"], 0);
    let names = workshop.run(&etcd, "scan", ["-q", "-o", "name", "--expect", "encrypted", "--resource", "secrets"]);
    assert_eq!(names.code, Some(1));
    assert_eq!(names.stdout.lines().count(), 7);
    assert!(names.stdout.starts_with("/registry/secrets/team-a/p0-app-0\n"), "{}", names.stdout);
}

/// The last rows used to come after the report that ends the stream, so whoever took the last line for the summary got a row.
#[test]
fn all_forms_of_a_census_agree() {
    let (etcd, workshop) = local(Version::V3_5);
    let scan = |output: &str| {
        let ran = workshop.run(&etcd, "scan", ["-q", "-o", output]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{output}");
        ran.stdout
    };
    let json: Value = serde_json::from_str(&scan("json")).unwrap();

    let ndjson = scan("ndjson");
    let mut lines: Vec<Value> = ndjson.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.pop().unwrap(), json);
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in &lines {
        assert!(line.get("class").is_none());
        if let Some(resource) = line["resource"].as_str() {
            *counts.entry((resource, text(&line["provider"]))).or_default() += 1;
        }
    }
    let mut expected: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (resource, provider, _, values) in CENSUS.into_iter().filter(|row| !row.0.contains(' ')) {
        *expected.entry((resource, provider)).or_default() += values;
    }
    assert_eq!(counts, expected);
    let keys: Vec<_> = lines.iter().map(|line| text(&line["key"]).to_owned()).collect();
    let wanted = vector_lines("snapshots/local.expected.jsonl");
    assert_eq!(keys, wanted.iter().map(|row| text(&row["key"]).to_owned()).collect::<Vec<_>>());
    for (line, row) in lines.iter().zip(&wanted) {
        assert_eq!(line["mod_revision"], row["mod_revision"]);
    }

    let yaml = scan("yaml");
    let mut leaves_of_yaml: Vec<_> = yaml.lines().filter_map(leaf_of_yaml).collect();
    let mut leaves_of_json = Vec::new();
    leaves(&json, "", &mut leaves_of_json);
    leaves_of_yaml.sort();
    leaves_of_json.sort();
    assert_eq!(leaves_of_yaml, leaves_of_json);

    let csv = scan("csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<_> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header[..5], ["resource", "provider", "key", "kms_key_id", "values"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), CENSUS.len());
    for (row, (resource, provider, key, values)) in rows.iter().zip(CENSUS) {
        let key = if key.is_empty() { "-" } else { key };
        assert_eq!(row.iter().take(5).collect::<Vec<_>>(), [resource, provider, key, "-", &values.to_string()]);
    }

    let table = scan("table");
    assert!(table.contains("160 values at revision"), "{table}");
    assert!(table.contains("51 encrypted, 109 in the clear"), "{table}");
    for (resource, ..) in CENSUS {
        assert!(table.contains(resource), "{resource}: {table}");
    }
    assert!(scan("wide").contains("OLDEST"));
    assert_eq!(scan("name").lines().count(), 160);
}

/// Every scalar and every empty list, each with its name.
fn leaves(value: &Value, name: &str, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| leaves(value, name, out)),
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| leaves(item, name, out)),
        Value::String(text) => out.push((name.to_owned(), text.clone())),
        other => out.push((name.to_owned(), other.to_string())),
    }
}

/// A line of block YAML that holds a scalar or an empty list.
fn leaf_of_yaml(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    let (name, value) = line.strip_prefix("- ").unwrap_or(line).split_once(": ")?;
    let value = value.trim_matches(|quote| quote == '"' || quote == '\'');
    Some((name.to_owned(), value.to_owned()))
}

/// `| head -1` is no failure, neither when a line is cut off nor when nothing more is read at all.
#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    // More than a pipe holds, and more than is buffered.
    let names: Vec<String> = (0..3000).map(|i| format!("object-{i:05}")).collect();
    put_all(&etcd, names.iter().map(|name| (secret_key("a", name).into_bytes(), secret("a", name, "s"))).collect());
    for output in ["ndjson", "json", "table"] {
        let mut atrest = workshop.atrest(&etcd, "scan");
        atrest.args(["-q", "-o", output]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = atrest.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{output}");
        assert_eq!(ended.status.code(), Some(0), "{output}");
    }
    // Without a reader from the beginning, so that every write fails.
    for output in ["ndjson", "json", "yaml", "csv", "table"] {
        let mut atrest = workshop.atrest(&etcd, "scan");
        atrest.args(["-q", "-o", output]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = atrest.spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{output}");
        assert_eq!(ended.status.code(), Some(0), "{output}");
    }
}
