//! Which list of providers governs a resource.

use atrest::transformer::{Error, KeyLabel, ResourceTransformers};

use crate::setup::{KEY, file, identity, open, provider, seal, transformers};

fn key(fill: u8) -> [u8; 32] {
    [fill; 32]
}

fn gcm(name: &str, fill: u8) -> Vec<String> {
    vec![provider("aesgcm", &[(name, &key(fill))])]
}

fn write_key(transformers: &ResourceTransformers, group: &str, resource: &str) -> String {
    transformers.transformer_for_resource(group, resource).write_key().to_string()
}

#[test]
fn the_exact_resource_then_its_group_then_everything_then_identity() {
    let all = transformers(&[&file(&[
        ("secrets, deployments.apps", &gcm("exact", 1)),
        ("'*.apps'", &gcm("group", 2)),
        ("'*.'", &gcm("core", 3)),
        ("'*.*'", &gcm("all", 4)),
    ])]);
    assert_eq!(write_key(&all, "", "secrets"), "aesgcm/exact");
    assert_eq!(write_key(&all, "apps", "deployments"), "aesgcm/exact");
    assert_eq!(write_key(&all, "apps", "statefulsets"), "aesgcm/group");
    assert_eq!(write_key(&all, "", "configmaps"), "aesgcm/core");
    assert_eq!(write_key(&all, "batch", "jobs"), "aesgcm/all");
    assert_eq!(write_key(&all, "example.com", "secrets"), "aesgcm/all");
    let some = transformers(&[&file(&[("secrets", &gcm("exact", 1))])]);
    assert_eq!(write_key(&some, "", "configmaps"), "identity");
    assert!(!some.transformer_for_resource("", "configmaps").is_configured());
}

#[test]
fn nothing_is_inherited_from_a_wider_rule() {
    let all = transformers(&[&file(&[("secrets", &gcm("exact", 1)), ("'*.*'", &gcm("all", 4))])]);
    let wide = seal(all.transformer_for_resource("", "configmaps"), b"text", KEY);
    match open(all.transformer_for_resource("", "secrets"), &wide, KEY) {
        Err(Error::NoMatchingKey { .. }) => {}
        other => panic!("{other:?}"),
    }
    // The same resource, when it has providers, has no bare identity either.
    assert!(matches!(open(all.transformer_for_resource("", "secrets"), b"{}", KEY), Err(Error::NoMatchingPrefix)));
}

#[test]
fn a_resource_in_two_entries_has_the_providers_of_both() {
    let all = transformers(&[&file(&[("secrets", &gcm("first", 1)), ("configmaps, secrets", &gcm("second", 2))])]);
    let secrets = all.transformer_for_resource("", "secrets");
    assert_eq!(secrets.write_key(), "aesgcm/first".parse::<KeyLabel>().expect("a label"));
    let second = seal(all.transformer_for_resource("", "configmaps"), b"text", KEY);
    assert_eq!(open(secrets, &second, KEY).expect("a value"), (b"text".to_vec(), true));
    assert_eq!(open(secrets, &seal(secrets, b"text", KEY), KEY).expect("a value"), (b"text".to_vec(), false));
}

#[test]
fn of_several_configurations_the_first_writes_and_all_read() {
    let first = file(&[("secrets", &gcm("new", 1))]);
    let second = file(&[("secrets, configmaps", &[gcm("old", 2), vec![identity()]].concat())]);
    let both = transformers(&[&first, &second]);
    let old = transformers(&[&second]);
    let secrets = both.transformer_for_resource("", "secrets");
    assert_eq!(secrets.write_key().to_string(), "aesgcm/new");
    let value = seal(old.transformer_for_resource("", "secrets"), b"text", KEY);
    assert_eq!(open(secrets, &value, KEY).expect("a value"), (b"text".to_vec(), true));
    assert_eq!(open(secrets, b"{}", KEY).expect("plaintext"), (b"{}".to_vec(), true));
    // The first does not mention configmaps, so the server that it is of writes them in the clear.
    let configmaps = both.transformer_for_resource("", "configmaps");
    assert_eq!(configmaps.write_key().to_string(), "identity");
    assert_eq!(open(configmaps, &value, KEY).expect("a value"), (b"text".to_vec(), true));
    assert_eq!(seal(configmaps, b"{}", KEY), b"{}");
}

#[test]
fn several_configurations_of_one_key_name_and_two_keys_are_both_tried() {
    // Nodes of one control plane that each made up a key of the same name.
    let node = |fill| file(&[("secrets", &[provider("aescbc", &[("key1", &key(fill))])])]);
    let both = transformers(&[&node(1), &node(2)]);
    let list = both.transformer_for_resource("", "secrets");
    assert_eq!(both.keys().count(), 2);
    let other = transformers(&[&node(2)]);
    // One in 256 values opens under the wrong key; such a one would be a different test.
    let right = (0..64)
        .map(|_| seal(other.transformer_for_resource("", "secrets"), b"text", KEY))
        .filter(|value| open(list, value, KEY).expect("a value") == (b"text".to_vec(), true))
        .count();
    assert!(right >= 60, "{right}");
}

#[test]
fn events_of_both_apis_are_one_resource() {
    let all = transformers(&[&file(&[("events", &gcm("events", 1))])]);
    let resource = atrest::resource::GroupResource::resolve("events.events.k8s.io");
    assert_eq!(write_key(&all, &resource.group, &resource.resource), "aesgcm/events");
    assert_eq!(write_key(&all, "events.k8s.io", "events"), "identity", "upstream looks events up by the core group");
}

#[test]
fn a_group_rule_beats_everything_whatever_stands_first() {
    let all = transformers(&[&file(&[("'*.apps'", &gcm("group", 2)), ("'*.*'", &gcm("all", 4))])]);
    assert_eq!(write_key(&all, "apps", "deployments"), "aesgcm/group");
    assert_eq!(write_key(&all, "", "secrets"), "aesgcm/all");
}
