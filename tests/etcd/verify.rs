//! What `verify` says of damaged values, of values from public bug reports, and of the keys that they need.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::fixture::{
    DAMAGED, K1, K2, K3, KMS_CONFIG, LOCAL, LOCAL_CONFIG, Workshop, config, config_of, everything, opened, put_all,
    read, rekey, sealed, secret, secret_key, sha256, state, transformers, verify, verify_removable,
};
use crate::support::{Etcd, TestKms, Version, vector, vector_lines};

/// KMS values that are well-formed: only the KMS tells what is wrong with them.
const NEEDS_A_KMS: [&str; 4] =
    ["bad-24-kms2-data-bitflip", "bad-25-kms2-moved", "bad-26-kms2-unknown-key-id", "bad-30-kms1-bitflip"];

/// Every other KMS value that was damaged. Without the provider in the configuration that is what is said.
const OTHER_KMS: [&str; 4] =
    ["bad-18-kms1-short", "bad-19-kms1-len-past-end", "bad-20-kms2-empty-proto", "bad-23-kms2-garbage-proto"];

/// What is said of them when the KMS has been asked.
const KMS_MESSAGES: [(&str, &str); 4] = [
    ("bad-24-kms2-data-bitflip", "the KMS decrypts its data key, the data does not authenticate"),
    ("bad-25-kms2-moved", "written for /registry/secrets/team-a/p8-app-0, and copied here"),
    ("bad-26-kms2-unknown-key-id", "is not decrypted: the KMS fails: Decrypt: Unknown: unknown key id \"(key ID)\""),
    ("bad-30-kms1-bitflip", "other values of that key open"),
];

/// What a message names of a value, and what it says to do.
const MESSAGES: [(&str, &str, &str); 25] = [
    ("bad-01-gcm-bitflip", "aesgcm/gcm1", "restore it from a backup"),
    ("bad-02-gcm-moved", "aesgcm/gcm1", "written for /registry/secrets/team-a/p5-app-1, and copied here"),
    ("bad-03-gcm-truncated", "aesgcm/gcm1", "Restore it from a backup"),
    ("bad-04-kms2-unknown-provider", "kms-v2/gone-kms", "add it to their providers"),
    ("bad-05-prefix-damaged", "the kms-v2 key", "restore it from a backup"),
    ("bad-06-cbc-unknown-key", "aescbc/key9", "configure that key under the name \"key9\""),
    ("bad-07-cbc-odd-length", "aescbc/key1", "Restore it from a backup"),
    ("bad-08-cbc-moved", "aescbc/key1", "Compare it with the object"),
    ("bad-09-cbc-bitflip-first-block", "aescbc/key1", "Restore it from a backup"),
    ("bad-10-cbc-bitflip-last-block", "aescbc/key1", "find that key, or restore it from a backup"),
    ("bad-11-secretbox-bitflip", "secretbox/box1", "find that key, or restore it from a backup"),
    ("bad-12-secretbox-moved", "secretbox/box1", "Compare it with the object"),
    ("bad-13-unknown-algorithm", "\"aesctr\"", "something else wrote it"),
    ("bad-14-prefix-only", "aescbc/key1", "Restore it from a backup"),
    ("bad-15-empty", "stored in the clear", "restore it from a backup, or delete it"),
    ("bad-16-garbage", "stored in the clear", "restore it from a backup, or delete it"),
    ("bad-17-plain-json", "written by identity", "writes secrets now"),
    ("bad-21-double-encrypted", "aescbc/key1", "put back with its prefix by hand"),
    ("bad-22-cbc-wrong-key-name", "aescbc/key1 opens it", "configure that key under the name \"key2\""),
    ("bad-27-cbc-iv-only", "aescbc/key1", "Restore it from a backup"),
    ("bad-28-crlf-damage", "aescbc/key1", "CR LF"),
    ("bad-29-trailing-newline", "aescbc/key1", "Put it back without it"),
    ("with slashÿé", "aescbc/key1", "find that key, or restore it from a backup"),
    ("bad-31-gcm-bitflip", "aesgcm/gcm1", "find that key, or restore it from a backup"),
    ("bad-32-secretbox-truncated", "secretbox/box1", "Restore it from a backup"),
];

fn name_of(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// A copied value that names a key which is not configured was said to be under a renamed key, because a key of another name
/// happens to open it.
#[test]
fn every_damaged_value_has_its_class_and_says_what_to_do() {
    let expected: BTreeMap<String, Vec<String>> = vector_lines("snapshots/damaged.classes.jsonl")
        .iter()
        .map(|row| {
            let classes = row["classes"].as_array().unwrap().iter().map(|class| class.as_str().unwrap().to_owned());
            (row["key"].as_str().unwrap().to_owned(), classes.collect())
        })
        .collect();
    assert_eq!(expected.len(), MESSAGES.len() + NEEDS_A_KMS.len() + OTHER_KMS.len());
    let kms = TestKms::start();
    for version in Version::ALL {
        let etcd = Etcd::builder(version).restored_from(vector(DAMAGED)).start();
        for file in [KMS_CONFIG, LOCAL_CONFIG] {
            let has_kms = file == KMS_CONFIG;
            let (report, rows) = verify(&etcd, &kms.in_config(&read(file)));
            let rows: BTreeMap<_, _> = rows.iter().map(|row| (row.value.key.to_string(), row)).collect();
            for (key, classes) in &expected {
                let (row, name) = (rows[key], name_of(key));
                let class = row.class.name();
                let right = match (has_kms, NEEDS_A_KMS.contains(&name), OTHER_KMS.contains(&name)) {
                    (false, true, _) | (false, _, true) => class == "no-provider",
                    _ => classes.iter().any(|right| right == class),
                };
                assert!(right, "{file}: {key} is {class}, not one of {classes:?}: {}", row.message);
                if let Some((_, names, advice)) = MESSAGES.iter().find(|(of, ..)| *of == name) {
                    assert!(row.message.contains(names), "{key}: {}", row.message);
                    assert!(row.message.contains(advice), "{key}: {}", row.message);
                } else {
                    assert!(row.message.contains("kms-v"), "{key}: {}", row.message);
                }
                if let Some((_, says)) = KMS_MESSAGES.iter().find(|(of, _)| has_kms && *of == name) {
                    assert!(row.message.contains(says), "{key}: {}", row.message);
                }
            }
            // Nothing else is found but values of the KMS, when that is not configured.
            for row in report.findings.iter().filter(|row| !expected.contains_key(&row.value.key.to_string())) {
                assert_eq!((row.class.name(), has_kms), ("no-provider", false), "{}", row.value.key);
                assert!(row.value.provider.as_ref().unwrap().starts_with("kms-v"), "{}", row.value.key);
            }
            let counts: BTreeMap<_, _> = report.classes.iter().map(|(class, count)| (class.name(), *count)).collect();
            let (damaged, without, malformed, truncated) = if has_kms { (7, 1, 7, 6) } else { (5, 40, 5, 4) };
            let mut wanted = BTreeMap::from([
                ("damaged", damaged),
                ("garbage", 3),
                ("identity-mismatch", 2),
                ("key-not-configured", 1),
                ("key-renamed", 1),
                ("malformed", malformed),
                ("moved", if has_kms { 2 } else { 1 }),
                ("no-provider", without),
                ("truncated", truncated),
                ("unknown-format", 1),
                ("current", if has_kms { 132 } else { 131 }),
                ("stale", if has_kms { 82 } else { 52 }),
            ]);
            if has_kms {
                wanted.insert("kms-refused", 1);
            }
            assert_eq!(counts, wanted, "{file}");
            assert_eq!(report.values, 246);
        }
    }
}

/// D8, D10. What cannot be read, or is not what it should be, stays as it is to the byte; it keeps nothing else from its turn.
#[test]
fn a_rotation_leaves_what_is_damaged_and_does_the_rest() {
    for version in Version::ALL {
        let etcd = Etcd::builder(version).restored_from(vector(DAMAGED)).start();
        let workshop = Workshop::new();
        workshop.file("config.yaml", &read(LOCAL_CONFIG));
        workshop.file("kms.yaml", &read(KMS_CONFIG));
        let before = everything(&etcd);
        let args = ["--yes", "-q", "--no-journal", "-o", "json", "--encryption-provider-config"];
        let rekey = |config: &str| workshop.run(&etcd, "rekey", args.iter().copied().chain([config]));

        // A provider that writes and cannot: told before anything is written.
        let refused = rekey("kms.yaml");
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(3), ""));
        assert!(refused.stderr.contains("kms-v2/cloud-kms"), "{}", refused.stderr);
        assert_eq!(everything(&etcd).len(), before.len());

        let report = rekey("config.yaml").json(1);
        assert_eq!((report["rewritten"].as_u64(), report["still_stale"].as_u64()), (Some(52), Some(0)));
        assert_eq!((&report["complete"], &report["verified"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(report["unreadable"].as_array().unwrap().len(), 63);
        let after = everything(&etcd);
        assert!(after.keys().eq(before.keys()));
        let now = transformers(&read(LOCAL_CONFIG));
        let mut changed = 0;
        for row in vector_lines("snapshots/damaged.expected.jsonl") {
            let key = row["key"].as_str().unwrap().as_bytes();
            let (old, new) = (&before[key], &after[key]);
            if state(old) == state(new) {
                continue;
            }
            changed += 1;
            let (plaintext, is_stale) = opened(&now, key, new.value());
            assert_eq!((sha256(&plaintext).as_str(), is_stale), (row["plain_sha256"].as_str().unwrap(), false));
            assert_eq!((new.version(), new.lease()), (old.version() + 1, old.lease()));
            assert_eq!(row["stale"], true, "{row}");
        }
        assert_eq!(changed, 52);
        for row in report["unreadable"].as_array().unwrap() {
            let key = row["key"].as_str().unwrap().as_bytes();
            assert_eq!(state(&after[key]), state(&before[key]), "{row}");
        }
        // Unreadable values name these keys, so they must stay.
        let strings = |of: &str| -> Vec<String> {
            report[of].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            strings("keys_in_use"),
            [
                "identity",
                "aescbc/key0",
                "aescbc/key1",
                "aescbc/key2",
                "aesgcm/gcm1",
                "secretbox/box1",
                "kms-v1/legacy-kms",
                "kms-v2/cloud-kms",
                "kms-v2/gone-kms",
            ]
        );
        assert_eq!(strings("keys_unused"), <[&str; 0]>::default());
        // A second run finds nothing to do, and says the same of what is damaged.
        let again = rekey("config.yaml").json(1);
        assert_eq!((again["rewritten"].as_u64(), &again["unreadable"]), (Some(0), &report["unreadable"]));
    }
}

const DEMO: &str = "/registry/secrets/default/demo";

/// A value of `cases.json`.
fn case(name: &str) -> Vec<u8> {
    let cases: Value = serde_json::from_str(&read("cases.json")).unwrap();
    let value = &cases[name];
    STANDARD.decode(value.as_str().unwrap_or_else(|| value["value_b64"].as_str().unwrap())).unwrap()
}

fn field(name: &str, field: &str) -> String {
    let cases: Value = serde_json::from_str(&read("cases.json")).unwrap();
    cases[name][field].as_str().unwrap().to_owned()
}

/// Values from public bug reports, as they would lie in etcd: B2, B3, B5, B6, C5, C12, D1, D6, D7, L1, L2, L5, L9.
#[test]
fn values_from_bug_reports_have_their_class() {
    let (cbc, gcm, boxed) = (format!("aescbc key1 {K1}"), format!("aesgcm key1 {K1}"), format!("secretbox key1 {K1}"));
    let (cbc, gcm, boxed) = (cbc.as_str(), gcm.as_str(), boxed.as_str());
    let wrong_cbc = format!("aescbc key1 {K2}");
    let other_cbc = format!("aescbc key1624642438 {K2}");
    let padded_cbc = format!("aescbc key1 {}", field("cbc_wrong_key_valid_padding", "wrong_key_b64"));
    let short_gcm = format!("aesgcm key1 {}", field("gcm_16_byte_key", "key_b64"));
    let (box_2, cbc_named_2) = (format!("secretbox key2 {K2}"), format!("aescbc key2 {K1}"));
    let wrong_gcm = format!("aesgcm key1 {K2}");
    let plain = STANDARD.decode(read_case("plaintext_b64")).unwrap();
    let kms_1 = b"k8s:enc:kms:v1:aws-encryption-provider:\0\x04wrapdata".to_vec();
    let random = b"\x52\x9f\x38\x3c\x27\xaa\xbb\xcc\xdd\xee\xff\x00\x01\x02\x03\x04\x05".to_vec();
    let broken = [b"\xff".as_slice(), case("cbc_ok").get(3..).unwrap()].concat();
    // Name, value, providers, class, and a part of the message.
    type Row<'a> = (&'a str, Vec<u8>, Vec<&'a str>, &'a str, &'a str);
    let table: Vec<Row<'_>> = vec![
        ("cbc_ok", case("cbc_ok"), vec![cbc], "current", ""),
        ("B2", case("cbc_ok"), vec!["identity", cbc], "stale", "identity writes secrets now"),
        ("B3", plain.clone(), vec![cbc], "plaintext-not-allowed", "add identity last until it is rewritten"),
        ("B1", plain.clone(), vec!["identity", cbc], "current", ""),
        ("plaintext", plain, vec![cbc, "identity"], "stale", "aescbc/key1 writes secrets now"),
        (
            "C5",
            case("cbc_ok"),
            vec![&other_cbc],
            "key-not-configured",
            "aescbc/key1, and secrets have aescbc/key1624642438 only",
        ),
        ("renamed", case("cbc_ok"), vec![&cbc_named_2], "key-renamed", "aescbc/key2 opens it"),
        ("C12", random.clone(), vec![cbc], "unknown-format", "it begins with 529f383c27aabbccddeeff0001020304"),
        ("C12 with identity", random, vec![cbc, "identity"], "garbage", "17 bytes of no known encoding"),
        ("C12 broken prefix", broken, vec![cbc], "unknown-format", "it begins with ff3a656e633a"),
        ("D1", case("cbc_ok"), vec![&wrong_cbc], "wrong-key", "aescbc/key1: authentication or padding failed"),
        ("D6", case("cbc_ok"), vec!["identity"], "no-provider", "written by aescbc/key1"),
        ("D7", kms_1, vec!["identity"], "no-provider", "written by kms-v1/aws-encryption-provider"),
        ("L1", case("cbc_wrong_key_valid_padding"), vec![&padded_cbc], "garbage", "opens one value in 256"),
        ("L2 iv only", case("cbc_iv_only_16_bytes"), vec![cbc], "truncated", "at least 32 are needed"),
        ("L2 short", case("cbc_short_15_bytes"), vec![cbc], "truncated", "15 bytes follow the prefix"),
        ("L2 odd", case("cbc_not_block_multiple"), vec![cbc], "malformed", "no multiple of the block size"),
        ("newline", case("cbc_trailing_newline_added_by_etcdctl"), vec![cbc], "malformed", "a line feed was added"),
        ("gcm_ok", case("gcm_ok"), vec![gcm], "current", ""),
        ("L4", case("gcm_ok"), vec![&wrong_gcm], "wrong-key", "aesgcm/key1: authentication or padding failed"),
        ("L8", case("gcm_16_byte_key"), vec![&short_gcm], "current", ""),
        ("secretbox_ok", case("secretbox_ok"), vec![boxed], "current", ""),
        (
            "other name",
            case("secretbox_name_key2_material_key1"),
            vec![&box_2, boxed],
            "key-renamed",
            "configure that key under the name \"key2\" too",
        ),
        ("L9", case("double_encrypted_prefix_in_plain"), vec![cbc], "nested", "ciphertext was sealed again"),
        ("M4", case("ciphertext_ending_in_braces"), vec![boxed], "wrong-key", "secretbox/key1"),
        ("kms", case("kms_v2_seed"), vec!["kms v2 demo", "identity"], "kms-unavailable", "kms-v2/demo"),
        ("G1", case("kms_v2_empty_key_id"), vec!["kms v2 demo", "identity"], "malformed", "kms-v2/demo"),
        (
            "G16",
            case("kms_v2_unknown_dek_type_9"),
            vec!["kms v2 demo", "identity"],
            "newer-format",
            "encryptedDEKSourceType 9",
        ),
    ];
    let etcd = Etcd::start(Version::V3_5);
    for (name, value, providers, class, message) in table {
        etcd.client().put(DEMO, value.clone());
        let text = config("secrets", &providers);
        let (report, rows) = verify(&etcd, &text);
        assert_eq!((report.values, rows.len()), (1, 1), "{name}");
        assert_eq!(rows[0].class.name(), class, "{name}: {}", rows[0].message);
        assert!(rows[0].message.contains(message), "{name}: {}", rows[0].message);
        assert_eq!(report.findings.len(), usize::from(!["current", "stale"].contains(&class)), "{name}");
        if !["current", "stale"].contains(&class) && !providers[0].starts_with("kms") {
            // Nor does a rotation touch it.
            let report = rekey(&etcd, &transformers(&text));
            assert_eq!((report.rewritten, report.unreadable.len()), (0, 1), "{name}");
            assert_eq!(etcd.client().get(DEMO).unwrap().value(), value, "{name}");
        }
    }
}

fn read_case(name: &str) -> String {
    let cases: Value = serde_json::from_str(&read("cases.json")).unwrap();
    cases[name].as_str().unwrap().to_owned()
}

/// L5. aesgcm shows where a value was copied from; secretbox and aescbc cannot, but the object inside tells.
#[test]
fn a_copied_value_is_told_from_a_damaged_one() {
    let etcd = Etcd::start(Version::V3_5);
    let copy = "/registry/secrets/default/demo-copy";
    for (name, provider, class, message) in [
        ("gcm_ok", "aesgcm", "moved", "aesgcm/key1: written for /registry/secrets/default/demo, and copied here"),
        ("secretbox_ok", "secretbox", "identity-mismatch", "the object inside says that it is Secret default/demo"),
        ("cbc_ok", "aescbc", "identity-mismatch", "this provider does not bind values to their keys"),
    ] {
        etcd.client().put(DEMO, case(name));
        etcd.client().put(copy, case(name));
        let (report, rows) = verify(&etcd, &config("secrets", &[&format!("{provider} key1 {K1}")]));
        let classes: BTreeMap<_, _> = rows.iter().map(|row| (row.value.key.to_string(), row.class.name())).collect();
        assert_eq!(classes, BTreeMap::from([(DEMO.to_owned(), "current"), (copy.to_owned(), class)]));
        assert!(report.findings[0].message.contains(message), "{}", report.findings[0].message);
    }
    assert_eq!(field("gcm_aad_of_other_path", "stored_at"), copy);
}

/// B5: entries for the same resource are appended. B6: custom resources by their group.
#[test]
fn the_effective_providers_are_those_of_kube_apiserver() {
    let etcd = Etcd::start(Version::V3_5);
    let key = |name: &str| secret_key("a", name);
    let boxed = transformers(&config("secrets", &[&format!("secretbox b {K2}")]));
    let cbc = transformers(&config("secrets", &[&format!("aescbc a {K1}")]));
    etcd.client().put(key("first"), sealed(&cbc, key("first").as_bytes(), &secret("a", "first", "x")));
    etcd.client().put(key("second"), sealed(&boxed, key("second").as_bytes(), &secret("a", "second", "x")));
    let widget = "/registry/example.com/widgets/default/w";
    etcd.client().put(widget, case("json_crd_plain"));
    let (first, second) = (format!("aescbc a {K1}"), format!("secretbox b {K2}"));
    let entries: [(&str, &[&str]); 3] =
        [("secrets", &[&first]), ("secrets", &[&second]), ("widgets.example.com", &[&first])];
    let (_, rows) = verify(&etcd, &config_of(&entries));
    let classes: Vec<_> = rows.iter().map(|row| (row.value.key.to_string(), row.class.name())).collect();
    assert_eq!(
        classes,
        [(widget.to_owned(), "plaintext-not-allowed"), (key("first"), "current"), (key("second"), "stale"),]
    );
    let row = rows.iter().find(|row| row.value.key.to_string() == widget).unwrap();
    assert_eq!(row.value.resource.as_deref(), Some("widgets.example.com"));
    assert_eq!((row.value.namespace.as_deref(), row.value.name.as_deref()), (Some("default"), Some("w")));
}

/// C1, C2: every API server made its own key under the same name. With both files each value is read, and stale or current.
#[test]
fn two_keys_of_one_name_are_told_apart() {
    let etcd = Etcd::start(Version::V3_5);
    let texts = [K1, K2].map(|key| config("secrets", &[&format!("aescbc key1 {key}")]));
    let first = transformers(&texts[0]);
    let mut values = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let server = transformers(text);
        for j in 0..20 {
            let name = format!("node-{i}-{j:02}");
            let key = secret_key("a", &name).into_bytes();
            // One in 256 opens under the other key too, to nonsense: that is a test of its own.
            let opens_under_the_first = |value: &Vec<u8>| {
                let list = first.transformer_for_resource("", "secrets");
                list.open(value, atrest::transformer::DataContext::new(&key)).is_ok()
            };
            let value = std::iter::repeat_with(|| sealed(&server, &key, &secret("a", &name, "x")))
                .find(|value| i == 0 || !opens_under_the_first(value))
                .unwrap();
            values.push((key, value));
        }
    }
    put_all(&etcd, values);
    let (report, rows) = verify(&etcd, &texts[0]);
    assert_eq!(report.count(atrest::report::Class::Current), 20);
    for row in rows.iter().filter(|row| row.value.name.as_ref().unwrap().starts_with("node-1")) {
        assert_eq!(row.class.name(), "damaged");
        assert!(row.message.contains("aescbc/key1"), "{}", row.message);
        assert!(row.message.contains("another key of that name"), "{}", row.message);
    }
    let workshop = Workshop::new();
    let files = texts.each_ref().map(|text| workshop.file(&format!("{}.yaml", sha256(text.as_bytes())), text));
    let both = [
        "--encryption-provider-config".as_ref(),
        files[0].as_os_str(),
        "--encryption-provider-config".as_ref(),
        files[1].as_os_str(),
    ];
    let report =
        workshop.run(&etcd, "verify", both.iter().copied().chain(["-q".as_ref(), "-o".as_ref(), "json".as_ref()]));
    assert_eq!(report.json(0)["classes"], serde_json::json!({"current": 20, "stale": 20}));
    let rekeyed = workshop.run(
        &etcd,
        "rekey",
        both.iter().copied().chain(["--yes", "-q", "--no-journal", "-o", "json"].map(AsRef::as_ref)),
    );
    assert_eq!(rekeyed.json(0)["rewritten"], 20);
    let (report, _) = verify(&etcd, &texts[0]);
    assert_eq!(report.count(atrest::report::Class::Current), 40);
}

/// D3, D5, D9: all bad ones are reported, not the first hundred, each with its cause, and the good ones too.
#[test]
fn a_hundred_and_fifty_bad_values_and_ten_good_ones() {
    let etcd = Etcd::start(Version::V3_4);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &config("secrets", &[&format!("secretbox key2 {K2}"), "identity"]));
    let (old, new) = (
        transformers(&config("secrets", &[&format!("aescbc key1 {K1}")])),
        transformers(&config("secrets", &[&format!("secretbox key2 {K2}")])),
    );
    let values = (0..160).map(|i| {
        let name = format!("s-{i:03}");
        let key = secret_key("a", &name).into_bytes();
        let server = if i < 150 { &old } else { &new };
        let value = sealed(server, &key, &secret("a", &name, "x"));
        (key, value)
    });
    put_all(&etcd, values.collect());
    let args = ["-q", "--encryption-provider-config", "config.yaml", "-o"];
    let run = |form: &str| workshop.run(&etcd, "verify", args.iter().copied().chain([form]));
    let report = run("json").json(1);
    assert_eq!(report["classes"], serde_json::json!({"current": 10, "no-provider": 150}));
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 150);
    for (i, finding) in findings.iter().enumerate() {
        assert_eq!(finding["key"], secret_key("a", &format!("s-{i:03}")));
        assert_eq!((&finding["provider"], &finding["key_name"]), (&"aescbc".into(), &"key1".into()));
        assert_eq!(
            finding["message"],
            "written by aescbc/key1, and secrets have no aescbc provider: add it to their providers"
        );
    }
    let ndjson = run("ndjson");
    assert_eq!(ndjson.code, Some(1));
    let lines: Vec<Value> = ndjson.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 161);
    assert!(lines[..160].iter().all(|line| line["key"].is_string() && line["class"].is_string()));
    assert_eq!((lines[160]["values"].as_u64(), lines[160].get("key")), (Some(160), None));
    let names = run("name");
    assert_eq!((names.code, names.stdout.lines().count()), (Some(1), 150));
    let table = run("table");
    assert!(table.stdout.contains("100 more findings: -o json has them all"), "{}", table.stdout);
    assert!(table.stdout.contains("160 values at revision"), "{}", table.stdout);
}

/// A name without its provider used to be taken for a KMS key ID that no value needs, although there is no KMS.
#[test]
fn whether_a_key_can_go() {
    let etcd = Etcd::builder(Version::V3_5).restored_from(vector(LOCAL)).start();
    let workshop = Workshop::new();
    let text = read(LOCAL_CONFIG);
    workshop.file("config.yaml", &text);
    let ask = |key: &str| {
        let args = ["-q", "-o", "json", "--encryption-provider-config", "config.yaml", "--removable", key];
        workshop.run(&etcd, "verify", args)
    };
    for (key, count) in
        [("aescbc/key0", 10), ("aescbc/key1", 10), ("aescbc/key2", 10), ("secretbox/box1", 10), ("identity", 11)]
    {
        let answer = &ask(key).json(1)["removable"];
        assert_eq!((&answer["key"], &answer["removable"]), (&key.into(), &"no".into()));
        assert_eq!(answer["needed_by"], count, "{key}");
        assert_eq!(answer["needed_by_keys"].as_array().unwrap().len(), count);
        assert_eq!(answer["reasons"], serde_json::json!([format!("{count} live values need it")]));
    }
    let writes = &ask("aesgcm/gcm1").json(1)["removable"];
    assert_eq!((&writes["removable"], &writes["needed_by"]), (&"no".into(), &11.into()));
    assert_eq!(writes["reasons"][0], "it is the key that writes configmaps, secrets, widgets.stable.example.com");
    for unknown in ["aescbc/key9", "secretbox/key1", "kms-v2/x"] {
        let ran = ask(unknown);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{unknown}");
        assert!(ran.stderr.contains("there is no key"), "{}", ran.stderr);
        assert!(ran.stderr.contains("aescbc/key0, aescbc/key1"), "{}", ran.stderr);
    }

    let named = ask("key1");
    assert_eq!((named.code, named.stdout.as_str()), (Some(2), ""));
    assert!(named.stderr.contains("did you mean aescbc/key1?"), "{}", named.stderr);
    for unknown in ["some-key-id", "sha256:0123456789"] {
        let ran = ask(unknown);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{unknown}");
        assert!(ran.stderr.contains(&format!("no stored value names a key ID {unknown:?}")), "{}", ran.stderr);
    }

    // identity was said to be needed for ever, by all the resources that no entry of the configuration names.
    assert_eq!(
        rekey(&etcd, &transformers(&text)).keys_unused,
        ["identity", "aescbc/key0", "aescbc/key1", "aescbc/key2", "secretbox/box1"]
    );
    for key in ["aescbc/key0", "aescbc/key1", "aescbc/key2", "secretbox/box1", "identity"] {
        let answer = &ask(key).json(0)["removable"];
        assert_eq!((&answer["removable"], &answer["needed_by"]), (&"yes".into(), &0.into()), "{key}");
    }
    assert_eq!(ask("aesgcm/gcm1").json(1)["removable"]["needed_by"], 62);

    // A value that names the key and cannot be read may be readable again when the key is there.
    etcd.client().put(secret_key("a", "damaged"), [b"k8s:enc:aescbc:v1:key1:".as_slice(), &[7; 48]].concat());
    let answer = &ask("aescbc/key1").json(1)["removable"];
    assert_eq!((&answer["removable"], &answer["needed_by"]), (&"no".into(), &1.into()));
    assert_eq!(answer["needed_by_keys"], serde_json::json!([{"key": secret_key("a", "damaged")}]));
    let report = rekey(&etcd, &transformers(&text));
    assert_eq!(report.keys_in_use, ["aescbc/key1", "aesgcm/gcm1"]);
    assert!(!report.keys_unused.contains(&"aescbc/key1".to_owned()));
    // One that a configuration does not have, but a value names, is known too.
    etcd.client().put(secret_key("a", "other"), [b"k8s:enc:aescbc:v1:key9:".as_slice(), &[7; 48]].concat());
    assert_eq!(ask("aescbc/key9").json(1)["removable"]["needed_by"], 1);
    // The question is about all values, so a part is no answer.
    let part = workshop.run(
        &etcd,
        "verify",
        ["--encryption-provider-config", "config.yaml", "--removable", "aescbc/key1", "-n", "team-a"],
    );
    assert_eq!(part.code, Some(2));
}

/// A value that was sealed twice is whole again only with the inner key. That key was called unused, and whoever took it out
/// of the configuration lost the object.
#[test]
fn the_key_inside_a_nested_value_is_needed() {
    let etcd = Etcd::start(Version::V3_5);
    let text = config(
        "secrets",
        &[&format!("aesgcm new {K2}"), &format!("secretbox outer {K1}"), &format!("aescbc inner {K3}")],
    );
    let inner = transformers(&config("secrets", &[&format!("aescbc inner {K3}")]));
    let outer = transformers(&config("secrets", &[&format!("secretbox outer {K1}")]));
    let key = secret_key("a", "x");
    let once = sealed(&inner, key.as_bytes(), &secret("a", "x", "s"));
    let twice = sealed(&outer, key.as_bytes(), &once);
    etcd.client().put(key.clone(), twice.clone());
    let (report, rows) = verify_removable(&etcd, &text, Some("aescbc/inner"));
    assert_eq!(rows[0].class.name(), "nested");
    assert!(rows[0].message.contains("aescbc/inner"), "{}", rows[0].message);
    let answer = report.removable.unwrap();
    assert_eq!((answer.removable, answer.needed_by), (atrest::report::Removable::No, 1));
    let report = rekey(&etcd, &transformers(&text));
    assert_eq!(report.keys_in_use, ["aescbc/inner", "aesgcm/new", "secretbox/outer"]);
    assert_eq!(report.keys_unused, Vec::<String>::new());
    assert_eq!(etcd.client().get(key).unwrap().value(), twice);
}
