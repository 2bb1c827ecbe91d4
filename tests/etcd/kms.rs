//! Values of a KMS in a real etcd, with a plugin on a real socket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrest::kms::{self, Kms};
use atrest::rekey::{self, Execution};
use atrest::report::{Class, NoProgress, RekeyReport};
use atrest::transformer::{Header, ResourceTransformers};
use tonic::Code;

use crate::fixture::{
    self, K1, KMS_CONFIG, Workshop, block_on, client, config, everything, everywhere, execution, put_all, read, sealed,
    secret, secret_key, transformers, verify, verify_removable,
};
use crate::support::{Behaviour, Etcd, TestKms, Version, vector, vector_lines};

const HEALTHY: &str = "snapshots/healthy.db.gz";

/// What upstream makes of each live key, under the configuration in force at the end.
#[test]
fn a_cluster_of_eight_generations_is_read_as_kube_apiserver_reads_it() {
    let kms = TestKms::start();
    let etcd = Etcd::builder(Version::V3_5).restored_from(vector(HEALTHY)).start();
    let (report, rows) = verify(&etcd, &kms.in_config(&read(KMS_CONFIG)));
    let rows: BTreeMap<_, _> = rows.iter().map(|row| (row.value.key.to_string(), row)).collect();
    let mut seen = BTreeMap::new();
    for line in vector_lines("snapshots/healthy.expected.jsonl") {
        let key = line["key"].as_str().unwrap();
        let row = rows[key];
        let expected = if line["stale"] == true { "stale" } else { "current" };
        assert_eq!(row.class.name(), expected, "{key}: {}", row.message);
        assert_eq!(line["error"], serde_json::Value::Null, "{key}");
        *seen.entry(expected).or_insert(0) += 1;
    }
    assert_eq!(seen, BTreeMap::from([("current", 132), ("stale", 81)]));
    assert_eq!((report.count(Class::Stale), report.unreadable()), (81, 0));
}

/// The KMS values of an etcd: the distinct DEK sources of KMS v2, and the values of KMS v1.
fn kms_values(etcd: &Etcd, transformers: &ResourceTransformers) -> (usize, usize) {
    let (mut sources, mut v1) = (BTreeSet::new(), 0);
    for (_, kv) in everything(etcd) {
        let list = transformers.transformer_for_resource("", "secrets");
        for (provider, source) in list.dek_sources(kv.value()) {
            if provider.is_v2() {
                sources.insert(source.cache_key());
            } else {
                v1 += 1;
            }
        }
    }
    (sources.len(), v1)
}

/// Each DEK source is decrypted once, and nothing is encrypted where nothing is written.
#[test]
fn reading_takes_one_call_for_each_dek_source() {
    let kms = TestKms::start();
    let etcd = Etcd::builder(Version::V3_5).restored_from(vector(HEALTHY)).start();
    let config = kms.in_config(&read(KMS_CONFIG));
    let (sources, v1) = kms_values(&etcd, &transformers(&config));
    verify(&etcd, &config);
    assert_eq!(kms.counts(), [1, 0, sources as u64, 0, v1 as u64]);
    assert_eq!((sources, v1), (2, 10));
    assert!(kms.authorities().iter().all(|authority| authority == "localhost"), "{:?}", kms.authorities());
}

async fn rekey_by(
    etcd: &Etcd,
    transformers: &Arc<ResourceTransformers>,
    kms: kms::Options,
    execution: Execution,
) -> RekeyReport {
    let kms = Arc::new(Kms::new(transformers, kms).unwrap());
    let selection = everywhere();
    let options = rekey::Options { transformers, selection: &selection, source: "test".to_owned(), trusted: &[] };
    let stop = AtomicBool::new(false);
    rekey::execute(&client(etcd).await, transformers, &kms, &options, execution, &NoProgress, &stop).await.unwrap()
}

/// What the program does from the plan to the journal, with the plugin elsewhere than the configuration says.
#[test]
fn a_cluster_is_rotated_to_the_key_of_the_kms() {
    let kms = TestKms::start();
    let (etcd, shop) = (Etcd::builder(Version::V3_5).restored_from(vector(HEALTHY)).start(), Workshop::new());
    let config = shop.file("enc.yaml", &read(KMS_CONFIG));
    let endpoint = |name: &str| format!("{name}={}", kms.endpoint());
    let (v2, v1) = (endpoint("cloud-kms"), endpoint("legacy-kms"));
    let file = config.to_str().unwrap();
    let args = ["--encryption-provider-config", file, "--kms-endpoint", &v2, "--kms-endpoint", &v1];
    let plan = shop.run(&etcd, "rekey", args.into_iter().chain(["-o", "json"])).json(0);
    assert_eq!((&plan["to_rewrite"], &plan["unreadable"]), (&81.into(), &0.into()));
    let kek_2 = format!("kms-v2/cloud-kms {}", atrest::report::short_key_id_hash("kek-2"));
    let to: BTreeSet<_> =
        plan["rewrite"].as_array().unwrap().iter().map(|group| group["to"].as_str().unwrap()).collect();
    assert!(to.contains(kek_2.as_str()), "{to:?}");
    assert_eq!(kms.counts()[1], 0, "a plan encrypts nothing");

    let journal = shop.path().join("journal.jsonl");
    let run = ["--yes", "--journal", journal.to_str().unwrap(), "-o", "json"];
    let report = shop.run(&etcd, "rekey", args.into_iter().chain(run)).json(0);
    assert_eq!((&report["rewritten"], &report["still_stale"]), (&81.into(), &0.into()));
    assert_eq!(kms.counts()[1], 1, "one Encrypt a run");
    let kek_2_hash = atrest::report::key_id_hash("kek-2");
    let lines = fixture::journal(&journal);
    assert_eq!(lines.len(), 81);
    let of_kms = lines.iter().filter(|line| line["new_kms_key_id_hash"] == kek_2_hash.as_str()).count();
    assert_eq!(of_kms, 81);
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(!text.contains("kek-1") && !text.contains("kek-2"), "key IDs are never raw");

    let (report, _) = verify(&etcd, &kms.in_config(&read(KMS_CONFIG)));
    assert_eq!((report.count(Class::Stale), report.count(Class::Current), report.unreadable()), (0, 213, 0));
    // A key ID that no value names may be misspelled; its whole hash, from the journal, is not.
    let misspelled = shop.run(&etcd, "verify", args.into_iter().chain(["--removable", "kek-1"]));
    assert_eq!(misspelled.code, Some(1), "{misspelled:#?}");
    assert!(misspelled.stdout.contains("not known: no value names it"), "{}", misspelled.stdout);
    let kek_1 = lines.iter().find_map(|line| line["old_kms_key_id_hash"].as_str()).unwrap();
    assert_eq!(kek_1, atrest::report::key_id_hash("kek-1"));
    let removable = shop.run(&etcd, "verify", args.into_iter().chain(["--removable", kek_1]));
    assert_eq!(removable.code, Some(0), "{removable:#?}");
    assert!(removable.stdout.contains("can be removed: no live value needs it"), "{}", removable.stdout);
    let in_use = shop.run(&etcd, "verify", args.into_iter().chain(["--removable", "kek-2"]));
    assert_eq!(in_use.code, Some(1), "{in_use:#?}");
    assert!(in_use.stdout.contains("the KMS of kms-v2/cloud-kms writes by it"), "{}", in_use.stdout);
}

fn v2_config(kms: &TestKms) -> String {
    kms.in_config(&config("secrets", &["kms v2 cloud", &format!("aescbc key1 {K1}"), "identity"]))
}

/// Stores so many secrets under key1.
fn put_secrets(etcd: &Etcd, config: &str, count: usize) {
    let under_key1 = transformers(config);
    let values = (0..count).map(|i| {
        let key = secret_key("default", &format!("s{i:04}")).into_bytes();
        let value = sealed(&under_key1, &key, &secret("default", &format!("s{i:04}"), "password"));
        (key, value)
    });
    put_all(etcd, values.collect());
}

fn key_ids(etcd: &Etcd) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for (_, kv) in everything(etcd) {
        let key_id = Header::parse(kv.value()).kms_key_id().map(str::to_owned).unwrap_or_default();
        *seen.entry(key_id).or_insert(0) += 1;
    }
    seen
}

const KEY1_ONLY: &str = "aescbc key1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// A key that changes in the middle of a run is noticed, and what was written by the former one is written again.
#[test]
fn a_key_that_changes_in_the_middle_is_used_for_everything() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    kms.set(|kms| kms.current = "kek-1".to_owned());
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 300);
    let transformers = transformers(&v2_config(&kms));
    let options = kms::Options { status_interval: Duration::from_millis(100), ..kms::Options::default() };
    let (report, ()) = block_on(async {
        let slow = Execution { rate: Some(200), ..execution(4) };
        let change = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            kms.set(|kms| kms.current = "kek-2".to_owned());
        };
        tokio::join!(rekey_by(&etcd, &transformers, options, slow), change)
    });
    assert_eq!((report.complete, report.still_stale, report.failed.len()), (true, Some(0), 0), "{report:#?}");
    assert!(report.rewritten > 300, "{}", report.rewritten);
    assert!(report.notes.iter().any(|note| note.contains("changed its key")), "{:?}", report.notes);
    assert_eq!(key_ids(&etcd), BTreeMap::from([("kek-2".to_owned(), 300)]));
    assert_eq!(kms.counts()[1], 2, "one Encrypt for each key");
    assert_eq!((report.already_current, report.unreadable.len()), (0, 0), "each key is counted once");
}

/// Nothing is written that the KMS may not be able to decrypt tomorrow.
#[test]
fn writing_ends_when_the_kms_is_not_healthy_for_too_long() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 300);
    let transformers = transformers(&v2_config(&kms));
    let short = Duration::from_millis(100);
    let options = kms::Options {
        status_interval: short,
        retry_interval: short,
        write_validity: Duration::from_millis(700),
        ..kms::Options::default()
    };
    let (report, ()) = block_on(async {
        let slow = Execution { rate: Some(100), ..execution(4) };
        let change = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            kms.set(|kms| kms.healthz = "the HSM is on fire".to_owned());
        };
        tokio::join!(rekey_by(&etcd, &transformers, options, slow), change)
    });
    assert!(!report.complete && report.rewritten < 250 && report.rewritten > 20, "{report:#?}");
    let why = "has not been healthy for too long";
    assert!(report.notes.iter().any(|note| note.contains(why)), "{:?}", report.notes);
    let seen = key_ids(&etcd);
    assert_eq!(seen["kek-2"] as u64, report.rewritten);
    assert_eq!(seen[""] as u64, 300 - report.rewritten, "what was not written is as it was");
}

/// G2, G1, G15, and what else keeps a KMS from writing: nothing is written, and it is said what is wrong.
#[test]
fn a_kms_that_is_not_as_it_should_be_writes_nothing() {
    let etcd = Etcd::start(Version::V3_5);
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 3);
    let before = etcd.client().revision();
    type Break = fn(&mut Behaviour);
    let table: [(Break, &str); 9] = [
        // What it encrypts it does not decrypt: everything would have been rewritten, and called current.
        (
            |kms| kms.decrypt_fails = Some((Code::PermissionDenied, "no".into())),
            "does not give back: Decrypt: PermissionDenied",
        ),
        (|kms| kms.garbles = true, "Decrypt answers other bytes than were encrypted"),
        (|kms| kms.encrypt_key_id = Some("kek-1".into()), "Encrypt answers by key ID sha256:"),
        (|kms| kms.encrypt_key_id = Some(String::new()), "Encrypt answers by key ID"),
        (|kms| kms.status_key_id = Some(String::new()), "Status answers an empty key ID"),
        (|kms| kms.version = "v3".into(), "Status answers the version \"v3\""),
        (|kms| kms.healthz = "bad".into(), "Status answers healthz \"bad\""),
        (|kms| kms.annotation = Some(("simple".into(), vec![])), "not a fully qualified domain name"),
        (|kms| kms.encrypt_fails = Some((Code::FailedPrecondition, "disabled".into())), "disabled"),
    ];
    for (behaviour, says) in table {
        let kms = TestKms::start();
        kms.set(behaviour);
        let shop = Workshop::new();
        if says.contains("Decrypt") {
            let v1 = kms.in_config(&config("secrets", &["kms v1 old", &format!("aescbc key1 {K1}")]));
            let file = shop.file("v1.yaml", &v1);
            let args = ["--encryption-provider-config", file.to_str().unwrap(), "--yes", "--no-journal"];
            let run = shop.run(&etcd, "rekey", args);
            assert_eq!((run.code, etcd.client().revision()), (Some(2), before), "{says}: {run:#?}");
            assert!(run.stderr.contains(says), "{says}: {}", run.stderr);
        }
        let file = shop.file("enc.yaml", &v2_config(&kms));
        let args = ["--encryption-provider-config", file.to_str().unwrap(), "--yes", "--no-journal"];
        let run = shop.run(&etcd, "rekey", args);
        assert_eq!(run.code, Some(2), "{says}: {run:#?}");
        assert!(run.stderr.contains(says), "{says}: {}", run.stderr);
        assert!(run.stderr.contains("atrest: hint: "), "{says}: {}", run.stderr);
        assert!(!run.stderr.contains("kek-1"), "key IDs are never raw: {}", run.stderr);
        assert_eq!(etcd.client().revision(), before, "{says}");
    }
}

/// Every value of KMS v1 has a data key of its own, of AES-GCM, and is read and written by one call each.
#[test]
fn kms_v1_takes_a_data_key_for_each_value() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 40);
    let config = kms.in_config(&config("secrets", &["kms v1 old", &format!("aescbc key1 {K1}")]));
    let transformers = transformers(&config);
    let report = rekey_with_all(&etcd, &transformers);
    assert_eq!((report.rewritten, report.still_stale), (40, Some(0)), "{report:#?}");
    let deks: BTreeSet<_> = everything(&etcd)
        .into_values()
        .map(|kv| match Header::parse(kv.value()) {
            Header::KmsV1 { name: b"old", envelope: Ok(envelope) } => envelope.encrypted_dek.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deks.len(), 40);
    // One to see that the KMS gives back what it encrypts, and one for each value, which is read back by the KMS.
    assert_eq!(kms.counts(), [0, 0, 0, 41, 41]);
    let (report, _) = verify(&etcd, &config);
    assert_eq!((report.count(Class::Current), kms.counts()[4]), (40, 81));
    // A value of AES-GCM may be as long as one of AES-CBC: it is opened, and takes no data key to write with.
    let report = rekey_with_all(&etcd, &transformers);
    assert_eq!((report.rewritten, report.already_current, kms.counts()[3]), (0, 40, 41));
    assert!(kms.calls().most_at_once.load(Ordering::SeqCst) <= 16);
}

fn rekey_with_all(etcd: &Etcd, transformers: &Arc<ResourceTransformers>) -> RekeyReport {
    block_on(rekey_by(etcd, transformers, kms::Options::default(), execution(64)))
}

/// A KMS of the same name with other keys would have made unreadable whatever was written by it.
#[test]
fn a_kms_that_opens_nothing_of_what_names_it_writes_nothing() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 5);
    let transformers = transformers(&v2_config(&kms));
    assert_eq!(rekey_with_all(&etcd, &transformers).rewritten, 5);
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 2);
    // What another KMS with the same name and key IDs is like.
    kms.set(|kms| kms.decrypt_fails = Some((Code::InvalidArgument, "authentication failed".into())));
    let (shop, before) = (Workshop::new(), etcd.client().revision());
    let file = shop.file("enc.yaml", &v2_config(&kms));
    let args = ["--encryption-provider-config", file.to_str().unwrap(), "--yes", "--no-journal"];
    let run = shop.run(&etcd, "rekey", args);
    assert_eq!(run.code, Some(2), "{run:#?}");
    assert!(run.stderr.contains("opens none of the 3 values"), "{}", run.stderr);
    assert_eq!(etcd.client().revision(), before);
}

/// A plugin that is down is said to be down, soon, and the values are not called damaged.
#[test]
fn a_plugin_that_is_down_is_said_to_be_down() {
    let (mut kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 30);
    let config = kms.in_config(&config("secrets", &["kms v1 old", &format!("aescbc key1 {K1}")]));
    let config = config.replace("endpoint:", "timeout: 200ms, endpoint:");
    rekey_with_all(&etcd, &transformers(&config));
    kms.pause();
    let begun = Instant::now();
    let (report, rows) = verify(&etcd, &config);
    // One waits for the plugin, not each.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((report.count(Class::KmsUnavailable), report.values), (30, 30));
    assert!(rows[0].message.contains("Nothing is known to be wrong with the value"), "{}", rows[0].message);
    assert!(rows[0].message.contains("200ms"), "{}", rows[0].message);
    kms.resume();
    assert_eq!(verify(&etcd, &config).0.count(Class::Current), 30);
}

/// Key IDs that look like a hash, and values that do not tell their key ID: what may be needed was said to be removable.
#[test]
fn a_key_id_is_not_given_up_too_early() {
    use atrest::report::Removable;
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 3);
    let text = v2_config(&kms);
    rekey_with_all(&etcd, &transformers(&text));
    let ask = |key: &str| verify_removable(&etcd, &text, Some(key)).0.removable.unwrap();
    let hash = atrest::report::key_id_hash("kek-1");
    assert_eq!(ask(&hash).removable, Removable::Yes);
    assert_eq!(ask("kek-2").removable, Removable::No);
    assert_eq!(ask(&atrest::report::key_id_hash("kek-2")[..16]).removable, Removable::No);
    // A whole envelope with a line feed behind it, and one of which nothing is left but its name.
    let (key, kv) = everything(&etcd).into_iter().next().unwrap();
    etcd.client().put(key.clone(), [kv.value(), b"\n"].concat());
    let answer = ask(&hash);
    assert_eq!(answer.removable, Removable::Unknown, "{answer:#?}");
    assert_eq!(answer.reasons, ["no value names it, but 1 unreadable values may be of it and do not tell"]);
    etcd.client().put(key, kv.value());
    assert_eq!(ask(&hash).removable, Removable::Yes);
}

/// A value of the KMS that writes was said to be written by one key while the same writes now.
#[test]
fn it_is_said_why_a_value_of_the_same_kms_is_stale() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    kms.set(|kms| kms.current = "kek-1".to_owned());
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 1);
    rekey_with_all(&etcd, &transformers(&v2_config(&kms)));
    kms.set(|kms| kms.current = "kek-2".to_owned());
    let (_, rows) = verify(&etcd, &v2_config(&kms));
    let [old, new] = ["kek-1", "kek-2"].map(atrest::report::short_key_id_hash);
    assert_eq!(rows[0].message, format!("written by kms-v2/cloud {old}; kms-v2/cloud {new} writes secrets now"));
}

/// The plugin of another cluster, under the same name: it has another key ID, and would have written values that the API servers of
/// this one cannot read.
#[test]
fn the_plugin_of_another_cluster_writes_nothing() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 5);
    rekey_with_all(&etcd, &transformers(&v2_config(&kms)));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 2);
    kms.set(|kms| kms.current = "kek-1".to_owned());
    kms.set(|kms| kms.forgets_old_keys = true);
    // FailedPrecondition would say that the key may not be used just now.
    kms.set(|kms| kms.refuses_old_keys_with = Code::NotFound);
    let (shop, before) = (Workshop::new(), etcd.client().revision());
    let file = shop.file("enc.yaml", &v2_config(&kms));
    let args = ["--encryption-provider-config", file.to_str().unwrap()];
    let run = shop.run(&etcd, "rekey", args.into_iter().chain(["--yes", "--no-journal"]));
    assert_eq!((run.code, etcd.client().revision()), (Some(2), before), "{run:#?}");
    assert!(run.stderr.contains("kms-v2/cloud in the configuration opens none of the 3 values"), "{}", run.stderr);
    let plan = shop.run(&etcd, "rekey", args);
    assert!(plan.stdout.contains("opens none of the 3 values stored under that name"), "{}", plan.stdout);
}

/// The key changed after the last look at it, and all values were called current.
#[test]
fn a_key_that_changes_just_before_the_end_is_noticed() {
    let (kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    kms.set(|kms| kms.current = "kek-1".to_owned());
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 50);
    let transformers = transformers(&v2_config(&kms));
    let (report, ()) = block_on(async {
        let change = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            kms.set(|kms| kms.current = "kek-2".to_owned());
        };
        // The status is looked at once a minute.
        let slow = Execution { rate: Some(50), ..execution(4) };
        tokio::join!(rekey_by(&etcd, &transformers, kms::Options::default(), slow), change)
    });
    assert_eq!((report.complete, report.still_stale), (true, Some(0)), "{report:#?}");
    assert_eq!(key_ids(&etcd), BTreeMap::from([("kek-2".to_owned(), 50)]));
}

/// The plugin died in the middle, and all was said to be read again.
#[test]
fn a_plugin_that_is_gone_at_the_end_confirms_nothing() {
    let (mut kms, etcd) = (TestKms::start(), Etcd::start(Version::V3_5));
    put_secrets(&etcd, &config("secrets", &[KEY1_ONLY]), 50);
    let text = v2_config(&kms).replace("endpoint:", "timeout: 200ms, endpoint:");
    let transformers = transformers(&text);
    let options = kms::Options { patience: Duration::from_millis(300), ..kms::Options::default() };
    let (report, _kms) = block_on(async {
        let stop = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(500));
            kms.pause();
            kms
        });
        let slow = Execution { rate: Some(50), ..execution(4) };
        tokio::join!(rekey_by(&etcd, &transformers, options, slow), stop)
    });
    assert_eq!((report.complete, report.rewritten), (false, 50), "{report:#?}");
    assert!(report.notes.iter().any(|note| note.contains("does not confirm what was written")), "{:?}", report.notes);
}

/// The storage layer opens values of a KMS as it lists, updates and watches them: one call for each DEK source, and one to write.
#[test]
fn the_storage_layer_asks_a_kms_once_for_each_dek_source() {
    use atrest::resource::GroupResource;
    use atrest::storage::{
        Encryption, LeasePolicy, ListOptions, RawCodec, RawObject, ResponseMeta, Store, StoreOptions,
        StoreWatchOptions, WatchEvent,
    };
    let kms = TestKms::start();
    let etcd = Etcd::builder(Version::V3_5).restored_from(vector(HEALTHY)).start();
    let transformers = transformers(&kms.in_config(&read(KMS_CONFIG)));
    let secrets = etcd.client().get_prefix("/registry/secrets/");
    let list = transformers.transformer_for_resource("", "secrets");
    let of_secrets = secrets.iter().flat_map(|kv| list.dek_sources(kv.value()));
    let (v2, v1): (Vec<_>, Vec<_>) = of_secrets.partition(|(provider, _)| provider.is_v2());
    let sources: BTreeSet<_> = v2.into_iter().map(|(_, source)| source.cache_key()).collect();
    block_on(async {
        let resource = GroupResource::new("", "secrets");
        let plugins = Arc::new(Kms::new(&transformers, kms::Options::default()).unwrap());
        let encryption = Encryption::with_kms(Arc::clone(&transformers), resource.clone(), plugins);
        let client = client(&etcd).await;
        let store = Store::new(&client, RawCodec, encryption, StoreOptions::new(resource, "/secrets")).unwrap();
        let list = store.get_list("/secrets", &ListOptions::default()).await.unwrap();
        assert!(list.items.len() > 50, "{}", list.items.len());
        assert_eq!((kms.counts()[2], kms.counts()[4]), (sources.len() as u64, v1.len() as u64));
        let first = store.get_list("/secrets", &ListOptions { limit: 1, ..ListOptions::default() }).await.unwrap();
        let object = first.items[0].decode().unwrap();
        let key = format!("/secrets/{}/{}", object.namespace().unwrap(), object.name().unwrap());
        let from = StoreWatchOptions { resource_version: first.resource_version.to_string(), ..Default::default() };
        let mut watch = store.watch("/secrets", from).unwrap();
        // Stale, so that it is written although it does not change.
        let same = |object: RawObject, _: ResponseMeta| Ok((object, LeasePolicy::Preserve));
        for written in [true, false] {
            let updated = store.guaranteed_update(&key, false, None, None, same).await.unwrap();
            assert_eq!((updated.written, updated.object.data()), (written, first.items[0].data()));
        }
        let Some(WatchEvent::Modified(seen)) = watch.next().await else { panic!("it was written") };
        assert_eq!(seen.data(), first.items[0].data());
        assert_eq!(kms.counts()[1], 1, "one Encrypt");
    });
}
