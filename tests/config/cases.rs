//! Files from public bug reports, and what is right to say about each.

use atrest::config::{
    DialAddress, EncryptionConfiguration, Invalid, Loaded, Options, Placeholder, Problem, ProviderConfiguration, load,
};
use atrest::resource::GroupResource;

const K1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const K2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
const HEADER: &str = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n";

fn read(text: &str) -> Result<Loaded, Invalid> {
    load(text.as_bytes(), &Options::default())
}

fn refused(text: &str) -> Invalid {
    match read(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(invalid) => invalid,
    }
}

fn accepted(text: &str) -> Loaded {
    read(text).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

/// The line of the secret is 9.
fn with_secret(secret: &str) -> String {
    format!(
        "{HEADER}resources:\n- resources: [secrets]\n  providers:\n  - aescbc:\n      keys:\n      - name: key1\n        \
         secret: {secret}\n"
    )
}

fn with_resource(resource: &str) -> String {
    format!("{HEADER}resources:\n- resources: [\"{resource}\"]\n  providers:\n  - identity: {{}}\n")
}

fn with_endpoint(endpoint: &str) -> String {
    format!(
        "{HEADER}resources:\n- resources: [secrets]\n  providers:\n  - kms:\n      apiVersion: v2\n      name: kms1\n      \
         endpoint: {endpoint}\n"
    )
}

fn only_key(config: &EncryptionConfiguration) -> &[u8] {
    let mut keys = config.resources.iter().flat_map(|entry| &entry.providers).flat_map(|provider| provider.keys());
    keys.next().expect("a key").secret.expose()
}

fn messages(invalid: &Invalid) -> Vec<String> {
    invalid.errors.iter().map(ToString::to_string).collect()
}

/// A1, kubernetes/website#29083.
#[test]
fn wrapped_keys() {
    let (first, second) = K1.split_at(32);
    for text in [
        with_secret(&format!("\"{first}\\n{second}\"")),
        with_secret(&format!("|\n          {first}\n          {second}")),
    ] {
        let loaded = accepted(&text);
        assert_eq!(only_key(&loaded.config), [1; 32]);
        let warnings: Vec<_> = loaded.warnings.iter().map(|warning| &warning.problem).collect();
        assert_eq!(warnings, [&Problem::SecretLineBreaks]);
    }
    assert_eq!(
        messages(&refused(&with_secret(&format!("'{first}\\n{second}'")))),
        ["9:17: resources[0].providers[0].aescbc.keys[0].secret: illegal base64 data at input byte 32: '\\\\'"]
    );
    assert_eq!(
        messages(&refused(&with_secret(&format!("'{K1} '")))),
        ["9:17: resources[0].providers[0].aescbc.keys[0].secret: illegal base64 data at input byte 44: ' '"]
    );
}

/// A2, siderolabs/talos#2226.
#[test]
fn a_secret_that_is_not_base64() {
    let invalid = refused(&with_secret("\"not*base64==\""));
    assert_eq!(invalid.errors[0].problem, Problem::IllegalBase64 { offset: 3, character: '*' });
    assert_eq!(invalid.errors[0].hint.as_deref(), Some("make a new key: head -c 32 /dev/urandom | base64"));
}

/// A3, kelseyhightower/kubernetes-the-hard-way#629, and A4, opsnull/follow-me-install-kubernetes-cluster#587.
#[test]
fn secrets_that_were_never_filled_in() {
    for (secret, placeholder, says) in [
        ("${ENCRYPTION_KEY}", Placeholder::Variable, "an unexpanded variable"),
        ("'${ENCRYPTION_KEY} '", Placeholder::Variable, "an unexpanded variable"),
        ("'{{ key }}'", Placeholder::Template, "an unexpanded template"),
        ("<BASE 64 ENCODED SECRET>", Placeholder::AngleBrackets, "a placeholder in angle brackets"),
        ("REDACTED", Placeholder::Word, "a placeholder word"),
        ("changeme", Placeholder::Word, "a placeholder word"),
    ] {
        let invalid = refused(&with_secret(secret));
        assert_eq!(invalid.errors[0].problem, Problem::Placeholder { placeholder });
        assert_eq!(invalid.errors[0].message, format!("looks like {says}, not like a key in base64"));
    }
}

/// A5, opsnull/follow-me-install-kubernetes-cluster#328.
#[test]
fn lost_indentation() {
    let syntax = refused(&format!(
        "{HEADER}resources:\n- resources:\n- secrets\nproviders:\n- aescbc:\nkeys:\n- name: key1\nsecret: {K1}\n\
         - identity: {{}}\n"
    ));
    assert_eq!((syntax.errors[0].line, syntax.errors[0].column), (11, 3));
    assert!(matches!(syntax.errors[0].problem, Problem::Syntax { .. }), "{syntax}");
    assert_eq!(
        syntax.errors[0].hint.as_deref(),
        Some("expected:\nkeys:\n- name: key1\n  secret: <base64 of 32 bytes>")
    );

    let fields = refused(&format!("{HEADER}resources:\n- resources:\n- secrets\nproviders:\n- aescbc:\n"));
    assert_eq!(
        messages(&fields),
        [
            "6:1: providers: unknown field \"providers\", which belongs in resources",
            "5:3: resources[1]: expected a mapping, found a string",
            "4:12: resources[0].resources: at least one resource is required",
            "4:3: resources[0].providers: at least one provider is required",
        ]
    );
    let hint = fields.errors[0].hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with("check the indentation; expected:\nresources:\n- resources:\n  - secrets\n"), "{hint}");
    let hint = fields.errors[1].hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with("expected:\nresources:\n- resources:\n  - secrets\n"), "{hint}");
}

/// A6, kelseyhightower/kubernetes-the-hard-way#569.
#[test]
fn mixed_generations_of_the_header() {
    let invalid = refused(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1beta1\nresources:\n- resources: [secrets]\n  \
         providers: []\n",
    );
    assert_eq!(
        messages(&invalid),
        [
            "2:13: no kind \"EncryptionConfiguration\" in version \"apiserver.config.k8s.io/v1beta1\"; accepted are \
             EncryptionConfiguration in apiserver.config.k8s.io/v1 and EncryptionConfig in v1",
            "5:14: resources[0].providers: at least one provider is required",
        ]
    );
}

/// A7, kubernetes-retired/kube-aws#1450.
#[test]
fn empty_files() {
    assert_eq!(messages(&refused("")), ["1:1: the file is empty"]);
    assert_eq!(messages(&refused("{}")), ["1:1: kind and apiVersion are missing"]);
    assert_eq!(messages(&refused("\n# nothing\n")), ["1:1: kind and apiVersion are missing"]);
    assert_eq!(messages(&refused("kind: EncryptionConfiguration")), ["1:1: apiVersion is missing"]);
    assert_eq!(messages(&refused("apiVersion: apiserver.config.k8s.io/v1")), ["1:1: kind is missing"]);
}

/// A8, kubernetes/kubernetes#129610.
#[test]
fn aescbc_takes_24_bytes() {
    let loaded = accepted(&with_secret("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"));
    assert_eq!(only_key(&loaded.config), [1; 24]);
}

/// A11.
#[test]
fn two_providers_in_one_element() {
    let text = with_secret(K1).replace("  - aescbc:", "  - identity: {}\n    aescbc:");
    assert_eq!(
        messages(&refused(&text)),
        ["6:5: resources[0].providers[0]: aescbc and identity in one element; split them into different list elements"]
    );
}

/// A12.
#[test]
fn names_of_keys() {
    for name in ["name: \"\"", "name:"] {
        let text = with_secret(K1).replace("name: key1", name);
        let invalid = refused(&text);
        assert_eq!(invalid.errors.len(), 1);
        assert_eq!(invalid.errors[0].path, "resources[0].providers[0].aescbc.keys[0].name");
        assert_eq!(invalid.errors[0].problem, Problem::NoKeyName);
    }
    let loaded = accepted(&with_secret(K1).replace("key1", "a:b"));
    assert_eq!(loaded.config.resources[0].providers[0].keys()[0].name, "a:b");
    let invalid = refused(&with_endpoint("unix:///a").replace("kms1", "a:b"));
    assert_eq!(invalid.errors[0].problem, Problem::ColonInKmsName { name: "a:b".to_owned() });
}

/// A13, kubernetes/kubernetes#83337.
#[test]
fn endpoints() {
    for (endpoint, reason) in [
        ("/var/run/kms.sock", "there is no scheme, only unix is supported"),
        ("tcp://127.0.0.1:1", "unsupported scheme \"tcp\", only unix is supported"),
    ] {
        assert_eq!(
            messages(&refused(&with_endpoint(endpoint))),
            [format!("9:17: resources[0].providers[0].kms.endpoint: invalid endpoint: {reason}")]
        );
    }
    for (endpoint, address, warning) in [
        ("unix:/var/run/k.sock", "/var/run/k.sock", None),
        ("unix:///@kms", "@kms", None),
        (
            "unix://var/run/k.sock",
            "/run/k.sock",
            Some("the host \"var\" of the endpoint is ignored: \"/run/k.sock\" is dialled"),
        ),
        ("unix:@kms", "", Some("the endpoint names no socket and can never be reached")),
    ] {
        let loaded = accepted(&with_endpoint(endpoint));
        let ProviderConfiguration::Kms(kms) = &loaded.config.resources[0].providers[0] else { panic!("no KMS") };
        assert_eq!(kms.endpoint.dial_address().to_string(), address);
        assert_eq!(
            loaded.warnings.iter().map(|warning| warning.message.as_str()).collect::<Vec<_>>(),
            Vec::from_iter(warning)
        );
    }
    let loaded = accepted(&with_endpoint("unix:///@kms"));
    let ProviderConfiguration::Kms(kms) = &loaded.config.resources[0].providers[0] else { panic!("no KMS") };
    assert_eq!(kms.endpoint.dial_address(), DialAddress::Abstract(b"kms"));
}

/// A17, kubernetes/kubernetes#115149.
#[test]
fn spellings_of_resources() {
    let mut said = Vec::new();
    for resource in
        ["Secrets", "*", "events.events.k8s.io", "deployments.extensions", "secrets.*", "serviceipallocations"]
    {
        let invalid = refused(&with_resource(resource));
        assert_eq!(invalid.errors.len(), 1);
        assert_eq!(invalid.errors[0].path, "resources[0].resources[0]");
        assert_eq!((invalid.errors[0].line, invalid.errors[0].column), (4, 15));
        said.push(invalid.errors[0].message.clone());
    }
    said.sort();
    said.dedup();
    assert_eq!(said.len(), 6, "each has a message of its own");
}

/// A19, kubernetes/cloud-provider-openstack#2535.
#[test]
fn the_legacy_header_with_kms_v2() {
    let text = with_endpoint("unix:///a").replace(HEADER, "kind: EncryptionConfig\napiVersion: v1\n");
    let loaded = accepted(&text);
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["1:7: kind: legacy header; use kind EncryptionConfiguration and apiVersion apiserver.config.k8s.io/v1"]
    );
}

/// B5: the same resource in two entries adds providers, it does not replace them.
#[test]
fn a_resource_in_two_entries() {
    let text = format!(
        "{HEADER}resources:\n\
         - resources: [secrets]\n  providers: [{{aescbc: {{keys: [{{name: a, secret: {K1}}}]}}}}]\n\
         - resources: [secrets]\n  providers: [{{secretbox: {{keys: [{{name: b, secret: {K2}}}]}}}}]\n"
    );
    let config = accepted(&text).config;
    let providers = config.providers_for(&GroupResource::parse("secrets")).expect("providers");
    assert_eq!(providers.iter().map(|provider| provider.field_name()).collect::<Vec<_>>(), ["aescbc", "secretbox"]);
    assert_eq!(providers[1].keys()[0].secret.expose(), [2; 32]);
    assert_eq!(config.covered(), [GroupResource::new("", "secrets")]);
}

/// A file of several documents is valid, and the others take no part.
#[test]
fn later_documents() {
    let text = format!("{}---\n{{{{{{\n", with_secret(K1));
    let loaded = accepted(&text);
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["10:1: only the first document is used; everything from here on is ignored"]);
}

/// JSON is not YAML: what YAML would allow after the first brace is an error.
#[test]
fn json_has_no_fallback() {
    let json = "{\"kind\": \"EncryptionConfiguration\", \"apiVersion\": \"apiserver.config.k8s.io/v1\", \"resources\": \
                [{\"resources\": [\"secrets\"], \"providers\": [{\"identity\": {}}]}]}";
    accepted(json);
    accepted(&format!("\n {json}\n"));
    for text in [format!("{json} garbage"), format!("{json}\n---\n{{}}"), json.replace('"', ""), format!("{json} # a")]
    {
        let invalid = refused(&text);
        assert!(matches!(invalid.errors[0].problem, Problem::Syntax { .. }), "{invalid}");
    }
    let kms = "{\"kms\": {\"apiVersion\": \"v1\", \"name\": \"a\", \"endpoint\": \"unix:///a\", \"cachesize\": 10.0}}";
    let invalid = refused(&json.replace("{\"identity\": {}}", kms));
    assert_eq!(invalid.errors[0].problem, Problem::NotInt32);
    accepted(&json.replace("{\"identity\": {}}", &kms.replace("10.0", "10")));
    let invalid = refused(&json.replace("{\"identity\": {}}", "{\"identity\": {}, \"identity\": {}}"));
    assert_eq!(
        messages(&invalid),
        ["1:153: resources[0].providers[0].identity: duplicate field \"identity\", first set at 1:137"]
    );
}

/// Windows' tools write UTF-16 and byte order marks.
#[test]
fn byte_order_marks() {
    let text = with_secret(K1);
    accepted(&format!("\u{feff}{text}"));
    let utf16 = |unit: fn(u16) -> [u8; 2]| format!("\u{feff}{text}").encode_utf16().flat_map(unit).collect::<Vec<_>>();
    for bytes in [utf16(u16::to_le_bytes), utf16(u16::to_be_bytes)] {
        let loaded = load(&bytes, &Options::default()).expect("a valid file");
        assert_eq!(only_key(&loaded.config), [1; 32]);
    }
    let invalid = load(b"kind: \xff", &Options::default()).expect_err("not text");
    assert_eq!(messages(&invalid), ["1:7: the file is not UTF-8 text"]);
}

/// Diagnostics are data for other programs.
#[test]
fn diagnostics_serialize() {
    let invalid = refused(&with_secret("\"not*base64==\""));
    assert_eq!(
        serde_json::to_value(&invalid.errors).expect("JSON"),
        serde_json::json!([{
            "path": "resources[0].providers[0].aescbc.keys[0].secret",
            "line": 9,
            "column": 17,
            "problem": {"type": "illegalBase64", "offset": 3, "character": "*"},
            "message": "illegal base64 data at input byte 3: '*'",
            "hint": "make a new key: head -c 32 /dev/urandom | base64",
        }])
    );
}
