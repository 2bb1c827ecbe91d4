//! Rotation of a cluster that a real kube-apiserver wrote, and of what it must not touch.

use std::collections::{BTreeMap, BTreeSet};

use atrest::report::EtcdKey;
use atrest::resource::{KeyLayout, Selection};
use atrest::source::StoredValue;

use crate::fixture::{
    K1, K2, LOCAL, LOCAL_CONFIG, Workshop, block_on, client, config, everything, execution, journal, object,
    of_resources, opened, put_all, read, rekey, rekey_with, sealed, secret, secret_key, sha256, state, transformers,
    until, verify,
};
use crate::support::{Etcd, Version, vector, vector_lines};

/// The keys under a lease, which etcd tells in no order.
fn lease_keys(etcd: &Etcd, lease: i64) -> BTreeSet<Vec<u8>> {
    etcd.client().lease_keys(lease).into_iter().collect()
}

/// The main job: what kube-apiserver stored through four generations of keys is all under the first key afterwards, and
/// nothing else has changed.
///
/// E6: values that were current from the beginning were counted nowhere, so a second run looked as if it had found nothing.
#[test]
fn a_cluster_is_rotated_and_nothing_else_changes() {
    let text = read(LOCAL_CONFIG);
    let now = transformers(&text);
    for version in Version::ALL {
        let etcd = Etcd::builder(version).restored_from(vector(LOCAL)).start();
        let workshop = Workshop::new();
        let file = workshop.file("config.yaml", &text);
        let before = everything(&etcd);
        let expected = vector_lines("snapshots/local.expected.jsonl");
        assert_eq!(before.keys().filter(|key| key.starts_with(b"/registry/")).count(), expected.len());
        let leases: BTreeMap<i64, BTreeSet<Vec<u8>>> =
            etcd.client().leases().into_iter().map(|lease| (lease, lease_keys(&etcd, lease))).collect();
        let ttls: BTreeMap<i64, i64> = leases.keys().map(|lease| (*lease, etcd.client().lease_ttl(*lease))).collect();
        let args = ["--yes", "--quiet", "-o", "json", "--journal", "journal", "--encryption-provider-config"];
        let rekey = || workshop.run(&etcd, "rekey", args.iter().map(|arg| arg.as_ref()).chain([file.as_os_str()]));

        let report = rekey().json(0);
        assert_eq!(report["complete"], true);
        assert_eq!(report["verified"], true);
        assert_eq!(report["rewritten"], 51);
        assert_eq!(report["already_current"], 11);
        assert_eq!(report["still_stale"], 0);
        for empty in ["unreadable", "failed", "too_large", "still_stale_keys"] {
            assert_eq!(report[empty], serde_json::json!([]), "{empty}");
        }
        let mut by_resource: BTreeMap<&str, u64> = BTreeMap::new();
        for group in report["groups"].as_array().unwrap() {
            assert_eq!(group["to"], "aesgcm/gcm1");
            *by_resource.entry(group["resource"].as_str().unwrap()).or_default() += group["values"].as_u64().unwrap();
        }
        let rewritten = [("configmaps", 11), ("secrets", 35), ("widgets.stable.example.com", 5)];
        assert_eq!(by_resource, BTreeMap::from(rewritten));

        let after = everything(&etcd);
        assert!(after.keys().eq(before.keys()));
        let mut stale = 0;
        for row in &expected {
            let key = row["key"].as_str().unwrap().as_bytes();
            let (old, new) = (&before[key], &after[key]);
            assert_eq!(sha256(old.value()), row["stored_sha256"].as_str().unwrap());
            let (plaintext, is_stale) = opened(&now, key, new.value());
            assert_eq!(sha256(&plaintext), row["plain_sha256"].as_str().unwrap(), "{row}");
            assert!(!is_stale, "{row}");
            assert_eq!(new.create_revision(), row["create_revision"].as_i64().unwrap());
            assert_eq!(new.lease().to_string(), row["lease"].as_str().unwrap());
            if row["stale"] == true {
                stale += 1;
                assert!(new.value().starts_with(b"k8s:enc:aesgcm:v1:gcm1:"), "{row}");
                assert_eq!(new.version(), row["version"].as_i64().unwrap() + 1);
                assert!(new.mod_revision() > row["mod_revision"].as_i64().unwrap());
            } else {
                assert_eq!(state(new), state(old), "{row}");
            }
        }
        assert_eq!(stale, 51);
        for (key, new) in after.iter().filter(|(key, _)| !key.starts_with(b"/registry/")) {
            assert_eq!(state(new), state(&before[key]));
        }

        assert!(!leases.is_empty());
        for (lease, keys) in &leases {
            assert_eq!(&lease_keys(&etcd, *lease), keys);
            until("the time of the lease to run down", || {
                (1..ttls[lease]).contains(&etcd.client().lease_ttl(*lease)).then_some(())
            });
        }

        let lines = journal(&workshop.path().join("journal"));
        assert_eq!(lines.len(), 51);
        for line in &lines {
            let key = line["key"].as_str().unwrap().as_bytes();
            assert_eq!(line["old_revision"], before[key].mod_revision());
            assert_eq!(line["new_revision"], after[key].mod_revision());
            assert_eq!(line["new_header"], "k8s:enc:aesgcm:v1:gcm1:");
            let old_header = line["old_header"].as_str().unwrap();
            match old_header {
                "identity" => assert!(!before[key].value().starts_with(b"k8s:enc:")),
                header => assert!(before[key].value().starts_with(header.as_bytes()), "{line}"),
            }
        }

        let revision = etcd.client().revision();
        let again = rekey().json(0);
        assert_eq!(again["rewritten"], 0);
        assert_eq!(again["already_current"], 62);
        assert_eq!(etcd.client().revision(), revision);
        let words = workshop.run(
            &etcd,
            "rekey",
            ["--yes", "--no-journal", "-q", "--encryption-provider-config", "config.yaml"],
        );
        assert_eq!(words.code, Some(0));
        assert!(words.stdout.contains("0 stale, nothing to do"), "{}", words.stdout);
        assert_eq!(etcd.client().revision(), revision);
    }
}

/// A plan, and no write without `--yes`.
#[test]
fn nothing_is_written_without_yes() {
    let etcd = Etcd::builder(Version::V3_5).restored_from(vector(LOCAL)).start();
    let workshop = Workshop::new();
    workshop.file("config.yaml", &read(LOCAL_CONFIG));
    let before = etcd.client().revision();
    let plan =
        workshop.run(&etcd, "rekey", ["-q", "-o", "json", "--encryption-provider-config", "config.yaml"]).json(0);
    assert_eq!(plan["values"], 62);
    assert_eq!(plan["to_rewrite"], 51);
    assert_eq!(plan["current"], 11);
    assert_eq!(plan["unreadable"], 0);
    assert_eq!(etcd.client().revision(), before);
    assert_eq!(std::fs::read_dir(workshop.path()).unwrap().count(), 1, "no journal either");
}

/// E23. A put without the lease made events immortal (kubernetes/kubernetes#65497).
#[test]
fn a_rewritten_event_still_expires() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let client = etcd.client();
        let old = transformers(&config("events", &[&format!("aescbc old {K1}")]));
        let (short, long) = (client.grant_lease(8), client.grant_lease(3600));
        let key = |name: &str| format!("/registry/events/a/{name}");
        for (name, lease) in [("short", short), ("long", long), ("none", 0)] {
            let value = sealed(&old, key(name).as_bytes(), &object("Event", "a", name, "x"));
            client.put_with_lease(key(name), value, lease);
        }
        let ttl = client.lease_ttl(long);
        let new = transformers(&config("events", &[&format!("secretbox new {K2}"), &format!("aescbc old {K1}")]));
        let report = rekey(&etcd, &new);
        assert_eq!((report.rewritten, report.gone, report.still_stale), (3, 0, Some(0)));
        for (name, lease) in [("short", short), ("long", long), ("none", 0)] {
            let kv = client.get(key(name)).unwrap();
            assert!(kv.value().starts_with(b"k8s:enc:secretbox:v1:new:"));
            assert_eq!((kv.lease(), kv.version()), (lease, 2));
        }
        until("time to run down", || (1..ttl).contains(&client.lease_ttl(long)).then_some(()));
        until("the event to expire", || client.get(key("short")).is_none().then_some(()));
        assert!(client.get(key("long")).is_some() && client.get(key("none")).is_some());
        assert_eq!(client.lease_keys(long), [key("long").into_bytes()]);
    }
}

/// API servers keep them outside of every transformer, and cannot read them encrypted, whatever the configuration says.
#[test]
fn what_has_no_transformer_is_never_written() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let client = etcd.client();
        let lease = client.grant_lease(600);
        let endpoints = br#"{"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":3}}"#;
        let range = br#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{}}"#;
        for prefix in ["/registry/", "/kubernetes.io/"] {
            client.put_with_lease(format!("{prefix}masterleases/10.0.0.1"), *endpoints, lease);
            client.put_with_lease(format!("{prefix}peerserverleases/apiserver-x"), *endpoints, lease);
            client.put(format!("{prefix}ranges/servicenodeports"), *range);
            client.put(format!("{prefix}ranges/serviceips"), *range);
            client.put(format!("{prefix}health"), r#"{"health":"true"}"#);
        }
        client.put("compact_rev_key", "17");
        client.put("/other/secrets/a/x", secret("a", "x", "foreign"));
        client.put("/registry/secrets/a", "no object key");
        client.put("/registry/nothing-known/a/x", secret("a", "x", "unknown resource"));
        client.put("/registry/services/a/x", secret("a", "x", "neither specs nor endpoints"));
        let before = everything(&etcd);
        client.put(secret_key("a", "x"), secret("a", "x", "s"));
        client.put("/registry/minions/n", br#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}"#);
        let new = transformers(&config("'*.*'", &[&format!("aesgcm k {K1}"), "identity"]));
        let report = rekey(&etcd, &new);
        assert_eq!(report.rewritten, 2);
        let after = everything(&etcd);
        for (key, kv) in &before {
            assert_eq!(state(&after[key]), state(kv), "{}", key.escape_ascii());
        }
        for key in ["/registry/secrets/a/x", "/registry/minions/n"] {
            assert!(after[key.as_bytes()].value().starts_with(b"k8s:enc:aesgcm:v1:k:"), "{key}");
        }
    }
}

/// Keys are bytes, and what is authenticated is those bytes.
#[test]
fn keys_that_are_not_utf8_are_rewritten_and_named() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    let (old, text) = (
        transformers(&config("secrets", &[&format!("aesgcm old {K1}")])),
        config("secrets", &[&format!("aesgcm new {K2}"), &format!("aesgcm old {K1}")]),
    );
    workshop.file("config.yaml", &text);
    // The object inside can only be named in UTF-8, so a key that is not is always another's.
    let key = b"/registry/secrets/a/x\xff\n".to_vec();
    let value = sealed(&old, &key, &secret("a", "x", "s"));
    etcd.client().put(key.clone(), value.clone());
    let unicode = secret_key("a", "é√");
    etcd.client().put(unicode.clone(), sealed(&old, unicode.as_bytes(), &secret("a", "é√", "s")));
    let args = ["--yes", "-q", "-o", "json", "--journal", "j", "--encryption-provider-config", "config.yaml"];
    let report = workshop.run(&etcd, "rekey", args).json(1);
    assert_eq!(report["rewritten"], 1);
    assert_eq!(report["unreadable"][0]["key_b64"], "L3JlZ2lzdHJ5L3NlY3JldHMvYS94/wo=");
    assert_eq!(report["unreadable"][0]["class"], "identity-mismatch");
    assert_eq!(report["unreadable"].as_array().unwrap().len(), 1);
    assert_eq!(journal(&workshop.path().join("j"))[0]["key"], unicode);
    assert_eq!(etcd.client().get(key).unwrap().value(), value);
    let table = workshop.run(&etcd, "verify", ["-q", "--encryption-provider-config", "config.yaml"]);
    assert_eq!(table.code, Some(1));
    assert!(table.stdout.contains(r"/registry/secrets/a/x\xff\n"), "{}", table.stdout);
}

/// The authenticated data holds the prefix, so each kind of cluster is rotated under its own.
#[test]
fn every_layout_is_rotated_in_place() {
    let etcd = Etcd::start(Version::V3_5);
    let old = transformers(&config("secrets,routes.route.openshift.io", &[&format!("aesgcm old {K1}")]));
    let text = config("secrets,routes.route.openshift.io", &[&format!("aesgcm new {K2}"), &format!("aesgcm old {K1}")]);
    let new = transformers(&text);
    let route = br#"{"kind":"Route","apiVersion":"route.openshift.io/v1","metadata":{"name":"x","namespace":"a"}}"#;
    let keys = ["/registry/secrets/a/x", "/kubernetes.io/secrets/a/x", "/openshift.io/routes/a/x"];
    for key in keys {
        let plaintext = if key.contains("routes") { route.to_vec() } else { secret("a", "x", "s") };
        etcd.client().put(key, sealed(&old, key.as_bytes(), &plaintext));
    }
    // Below another prefix the value is sealed by hand, since the default layout does not know the key.
    let own = "/my/cluster/secrets/a/x";
    let sealed_for = |key: &str| {
        let mut out = Vec::new();
        let list = old.transformer_for_resource("", "secrets");
        list.seal(&secret("a", "x", "s"), atrest::transformer::DataContext::new(key.as_bytes()), &mut out).unwrap();
        out
    };
    etcd.client().put(own, sealed_for(own));
    let report = rekey(&etcd, &new);
    assert_eq!((report.rewritten, report.unreadable.len()), (3, 0));
    for key in keys {
        assert!(etcd.client().get(key).unwrap().value().starts_with(b"k8s:enc:aesgcm:v1:new:"), "{key}");
        assert!(!opened(&new, key.as_bytes(), etcd.client().get(key).unwrap().value()).1);
    }
    assert_eq!(etcd.client().get(own).unwrap().version(), 1);
    for spelling in ["my/cluster", "/my/cluster/"] {
        let layout = KeyLayout::new([spelling]);
        let selection = Selection { layout, ..Selection::default() };
        let report = block_on(async { rekey_with(&client(&etcd).await, &new, &selection, execution(4)).await });
        assert_eq!(report.rewritten, u64::from(spelling == "my/cluster"));
        assert_eq!(report.unreadable, []);
    }
    let kv = etcd.client().get(own).unwrap();
    assert_eq!(kv.version(), 2);
    let list = new.transformer_for_resource("", "secrets");
    let (opened, _) = list.open(kv.value(), atrest::transformer::DataContext::new(own.as_bytes())).unwrap();
    assert_eq!((opened.data.to_vec(), opened.stale), (secret("a", "x", "s"), false));
}

/// B2, E5: what decides is which provider wrote it, not whether the bytes of the object change; identity is a provider.
#[test]
fn identity_in_front_decrypts_and_identity_behind_encrypts() {
    for version in Version::ALL {
        let etcd = Etcd::start(version);
        let key = secret_key("a", "x");
        etcd.client().put(key.clone(), secret("a", "x", "s"));
        let encrypting = transformers(&config("secrets", &[&format!("aescbc k {K1}"), "identity"]));
        assert_eq!(rekey(&etcd, &encrypting).rewritten, 1);
        assert!(etcd.client().get(key.clone()).unwrap().value().starts_with(b"k8s:enc:aescbc:v1:k:"));
        let decrypting = config("secrets", &["identity", &format!("aescbc k {K1}")]);
        let (report, rows) = verify(&etcd, &decrypting);
        assert_eq!((report.values, rows[0].class.name()), (1, "stale"));
        assert_eq!(rekey(&etcd, &transformers(&decrypting)).rewritten, 1);
        assert_eq!(etcd.client().get(key.clone()).unwrap().value(), secret("a", "x", "s"));
        assert_eq!(etcd.client().get(key).unwrap().version(), 3);
    }
}

/// E4: all namespaces by default, with a line for each; a selection touches what it names and nothing else.
#[test]
fn ten_thousand_objects_in_five_namespaces() {
    let etcd = Etcd::start(Version::V3_5);
    let old = transformers(&config("secrets,configmaps", &[&format!("aesgcm old {K1}")]));
    let new = transformers(&config("secrets,configmaps", &[&format!("aesgcm new {K2}"), &format!("aesgcm old {K1}")]));
    let mut values = Vec::new();
    for i in 0..10_000 {
        let (namespace, name) = (format!("ns-{}", i % 5), format!("object-{i:05}"));
        let (kind, directory) = if i % 10 < 5 { ("Secret", "secrets") } else { ("ConfigMap", "configmaps") };
        let key = format!("/registry/{directory}/{namespace}/{name}").into_bytes();
        let value = sealed(&old, &key, &object(kind, &namespace, &name, "some text"));
        values.push((key, value));
    }
    put_all(&etcd, values);
    let counts = |etcd: &Etcd| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for kv in etcd.client().get_prefix("/registry/") {
            let header = String::from_utf8_lossy(&kv.value()[..22]).into_owned();
            let path = String::from_utf8(kv.key().to_vec()).unwrap();
            let mut segments = path.split('/').skip(2);
            let place = format!("{} {}", segments.next().unwrap(), segments.next().unwrap());
            if header == "k8s:enc:aesgcm:v1:new:" {
                assert_eq!(kv.version(), 2, "{path}");
                *counts.entry(place).or_default() += 1;
            } else {
                assert_eq!(kv.version(), 1, "{path}");
            }
        }
        counts
    };
    let places =
        |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1000)).collect::<BTreeMap<String, u64>>();
    block_on(async {
        let client = client(&etcd).await;
        let mut of_namespace = Selection { namespace: Some("ns-1".to_owned()), ..Selection::default() };
        let report = rekey_with(&client, &new, &of_namespace, execution(64)).await;
        assert_eq!((report.rewritten, report.still_stale, report.failed.len()), (2000, Some(0), 0));
        assert_eq!(counts(&etcd), places(&["secrets ns-1", "configmaps ns-1"]));
        // Only a part was looked at, so nothing can be said of the keys.
        assert_eq!(report.keys_unused, Vec::<String>::new());

        of_namespace = Selection { namespace: Some("ns-2".to_owned()), ..of_resources(&["secrets"]) };
        let report = rekey_with(&client, &new, &of_namespace, execution(64)).await;
        assert_eq!(report.rewritten, 1000);
        assert_eq!(counts(&etcd), places(&["secrets ns-1", "configmaps ns-1", "secrets ns-2"]));

        let below = Selection { key_prefix: Some(b"/registry/configmaps/ns-3/".to_vec()), ..Selection::default() };
        // One at a time.
        let report = rekey_with(&client, &new, &below, execution(1)).await;
        assert_eq!(report.rewritten, 1000);
        assert_eq!(counts(&etcd), places(&["secrets ns-1", "configmaps ns-1", "secrets ns-2", "configmaps ns-3"]));

        let report = rekey_with(&client, &new, &Selection::default(), execution(64)).await;
        assert_eq!((report.rewritten, report.already_current, report.still_stale), (6000, 4000, Some(0)));
        let by_namespace: Vec<_> = report
            .groups
            .iter()
            .map(|group| (group.resource.as_str(), group.namespace.as_str(), group.values))
            .collect();
        let expected: Vec<_> = [
            ("configmaps", "ns-0"),
            ("configmaps", "ns-2"),
            ("configmaps", "ns-4"),
            ("secrets", "ns-0"),
            ("secrets", "ns-3"),
            ("secrets", "ns-4"),
        ]
        .into_iter()
        .map(|(resource, namespace)| (resource, namespace, 1000))
        .collect();
        assert_eq!(by_namespace, expected);
        assert_eq!(report.keys_in_use, ["aesgcm/new"]);
        assert_eq!(report.keys_unused, ["aesgcm/old"]);
    });
    assert_eq!(counts(&etcd).values().sum::<u64>(), 10_000);
}

/// The rate is a bound: the times of the writes show it, however slow the machine is.
#[test]
fn a_rate_is_not_exceeded() {
    let etcd = Etcd::start(Version::V3_5);
    let workshop = Workshop::new();
    workshop.file("config.yaml", &config("secrets", &[&format!("aesgcm new {K2}"), "identity"]));
    let names: Vec<String> = (0..30).map(|i| format!("s{i}")).collect();
    put_all(&etcd, names.iter().map(|name| (secret_key("a", name).into_bytes(), secret("a", name, "s"))).collect());
    let args =
        ["--yes", "-q", "--rate", "20", "--journal", "j", "-o", "json", "--encryption-provider-config", "config.yaml"];
    let report = workshop.run(&etcd, "rekey", args).json(0);
    assert_eq!(report["rewritten"], 30);
    // The last of 30 writes begins 29 intervals of 50 ms after the first.
    assert!(report["seconds"].as_f64().unwrap() >= 1.45, "{report}");
    assert_eq!(journal(&workshop.path().join("j")).len(), 30);
}

/// A value that is read and written at one revision is the same in every field that a source yields.
#[test]
fn a_stored_value_is_read_with_all_its_fields() {
    let etcd = Etcd::start(Version::V3_5);
    let lease = etcd.client().grant_lease(600);
    let first = etcd.client().put(secret_key("a", "x"), "1");
    let second = etcd.client().put_with_lease(secret_key("a", "x"), "2", lease);
    let value = block_on(async { client(&etcd).await.get(secret_key("a", "x").as_bytes()).await.unwrap().unwrap() });
    let expected = StoredValue {
        key: secret_key("a", "x").into_bytes(),
        value: b"2".to_vec(),
        create_revision: first,
        mod_revision: second,
        version: 2,
        lease,
    };
    assert_eq!(value, expected);
    assert_eq!(EtcdKey::new(&value.key).to_string(), "/registry/secrets/a/x");
}
