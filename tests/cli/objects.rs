//! `atrest get` of a snapshot: the forms, the selection, and what of Secrets is shown.

use serde_json::{Value, json};

use crate::fixture::{LOCAL, json_of, local_config, with_keys};
use crate::run::{Run, atrest};

fn get(args: &[&str]) -> Run {
    with_keys(&local_config(), &[&["get", "--snapshot", LOCAL], args].concat())
}

const SECRET: &str = "\
apiVersion: v1
data:
  password: \"[REDACTED, 10 bytes]\"
  username: \"[REDACTED, 9 bytes]\"
kind: Secret
metadata:
  creationTimestamp: \"2026-11-29T16:38:14Z\"
  labels:
    phase: p1
  name: p1-app-0
  namespace: team-a
  resourceVersion: \"107\"
  uid: 4878515f-841c-423a-9bbc-0b5bfe372007
type: Opaque
";

fn silent(run: &Run) -> String {
    assert_eq!(run.stderr, "");
    run.text().to_owned()
}

#[test]
fn a_secret_is_decrypted_and_what_it_keeps_is_shown_when_that_is_asked_for() {
    assert_eq!(silent(&get(&["secrets", "p1-app-0"]).exits(0)), SECRET);
    let shown = SECRET
        .replace("\"[REDACTED, 10 bytes]\"", "cEBzcy1wMS0wLQ==")
        .replace("\"[REDACTED, 9 bytes]\"", "dXNlci1wMS0w");
    assert_eq!(silent(&get(&["secrets", "p1-app-0", "--reveal"]).exits(0)), shown);
}

#[test]
fn one_object_in_json_is_as_kubectl_prints_it() {
    let args = ["configmaps", "p0-cm-0", "-o", "json"];
    let expected = "\
{
    \"apiVersion\": \"v1\",
    \"data\": {
        \"app.properties\": \"phase=p0\\nindex=0\\n\",
        \"unicode\": \"naïve Ω 漢字\"
    },
    \"kind\": \"ConfigMap\",
    \"metadata\": {
        \"creationTimestamp\": \"2026-11-29T16:38:08Z\",
        \"labels\": {
            \"phase\": \"p0\"
        },
        \"name\": \"p0-cm-0\",
        \"namespace\": \"team-a\",
        \"resourceVersion\": \"85\",
        \"uid\": \"9265b029-ed09-4ee5-828a-254e87526998\"
    }
}
";
    assert_eq!(silent(&get(&args).exits(0)), expected);
    // What is stored in the clear is read without a configuration.
    assert_eq!(silent(&atrest(&[&["get", "--snapshot", LOCAL], &args[..]].concat(), b"").exits(0)), expected);
}

#[test]
fn managed_fields_are_shown_when_they_are_asked_for() {
    let object = json_of(&get(&["secrets", "p1-app-0", "-o", "json", "--show-managed-fields"]).exits(0));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:password": {}, "f:username": {}},
                "f:metadata": {"f:labels": {".": {}, "f:phase": {}}},
                "f:type": {},
            },
            "manager": "kubectl-create",
            "operation": "Update",
            "time": "2026-11-29T16:38:14Z",
        }])
    );
}

#[test]
fn several_objects_are_a_list() {
    let list = json_of(&get(&["secrets", "-n", "team-b", "-o", "json"]).exits(0));
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
    let names: Vec<_> = list["items"].as_array().expect("items").iter().map(name).collect();
    let expected: Vec<_> = ["p2", "p4"]
        .iter()
        .flat_map(|phase| {
            ["app-0", "app-1", "app-2", "app-3", "big", "empty", "tls"].map(|name| format!("{phase}-{name}"))
        })
        .chain(["touched".to_owned()])
        .collect();
    assert_eq!(names, expected);
    assert_eq!(
        (&list["apiVersion"], &list["kind"], &list["metadata"]),
        (&json!("v1"), &json!("List"), &json!({"resourceVersion": ""}))
    );
    // A list of one is a list still, and so is one of none.
    let one = silent(&get(&["namespaces", "-l", "kubernetes.io/metadata.name=team-b"]).exits(0));
    assert_eq!(
        one,
        "\
apiVersion: v1
items:
- apiVersion: v1
  kind: Namespace
  metadata:
    creationTimestamp: \"2026-11-29T16:38:04Z\"
    labels:
      kubernetes.io/metadata.name: team-b
    name: team-b
    resourceVersion: \"73\"
    uid: a3667787-9c8c-4f14-a4a0-2a8304f7bea4
  spec:
    finalizers:
    - kubernetes
  status:
    phase: Active
kind: List
metadata:
  resourceVersion: \"\"
"
    );
    let none = "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n";
    assert_eq!(silent(&get(&["namespaces", "-l", "no=such"]).exits(0)), none);
}

#[test]
fn names_and_tables_have_a_line_for_each_object() {
    assert_eq!(
        silent(&get(&["namespaces,priorityclasses", "-o", "name"]).exits(0)),
        "\
namespace/default
namespace/kube-node-lease
namespace/kube-public
namespace/kube-system
namespace/team-a
namespace/team-b
priorityclass.scheduling.k8s.io/system-cluster-critical
priorityclass.scheduling.k8s.io/system-node-critical
"
    );
    assert_eq!(
        silent(&get(&["widgets.stable.example.com", "-o", "table"]).exits(0)),
        "\
RESOURCE                    NAMESPACE  NAME  CREATED               REVISION  KEY
widgets.stable.example.com  team-a     p0-w  2026-11-29T16:38:08Z        87  identity
widgets.stable.example.com  team-a     p1-w  2026-11-29T16:38:14Z       116  aescbc/key0
widgets.stable.example.com  team-a     p3-w  2026-11-29T16:38:27Z       172  aescbc/key2
widgets.stable.example.com  team-a     p5-w  2026-11-29T16:38:40Z       228  aesgcm/gcm1
widgets.stable.example.com  team-b     p2-w  2026-11-29T16:38:21Z       144  aescbc/key1
widgets.stable.example.com  team-b     p4-w  2026-11-29T16:38:33Z       200  secretbox/box1
"
    );
}

#[test]
fn lines_of_json_say_where_the_object_is_stored() {
    let run = get(&["secrets", "p1-app-0", "-o", "ndjson"]).exits(0);
    let [mut line] = <[Value; 1]>::try_from(run.lines()).expect("one line");
    let object = line.as_object_mut().expect("an object").remove("object").expect("the object");
    assert_eq!(object["data"], json!({"password": "[REDACTED, 10 bytes]", "username": "[REDACTED, 9 bytes]"}));
    assert_eq!(
        line,
        json!({
            "key": "/registry/secrets/team-a/p1-app-0",
            "resource": "secrets",
            "namespace": "team-a",
            "name": "p1-app-0",
            "mod_revision": 107,
            "provider": "aescbc",
            "key_name": "key0",
            "kms_key_id_hash": null,
        })
    );
}

#[test]
fn a_template_is_filled_as_kubectl_fills_it() {
    let path = |args: &[&str]| silent(&get(args).exits(0));
    assert_eq!(
        path(&["namespaces", "-o", "jsonpath={.items[*].metadata.name}"]),
        "default kube-node-lease kube-public kube-system team-a team-b"
    );
    let template = "jsonpath={.metadata.name} {.data.password}{\"\\n\"}";
    assert_eq!(path(&["secrets", "p1-app-0", "-o", template]), "p1-app-0 [REDACTED, 10 bytes]\n");
    assert_eq!(path(&["secrets", "p1-app-0", "--reveal", "-o", template]), "p1-app-0 cEBzcy1wMS0wLQ==\n");
    let lines = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    assert_eq!(
        path(&["configmaps", "-n", "team-b", "-o", lines]),
        "team-b/p2-cm-0\nteam-b/p2-cm-1\nteam-b/p4-cm-0\nteam-b/p4-cm-1\n"
    );
    for (wrong, said) in [
        ("jsonpath={.items[*", "nothing closes what begins at byte 7"),
        ("wide", "it is yaml, json, ndjson, name, table, or jsonpath=TEMPLATE"),
    ] {
        let run = get(&["namespaces", "-o", wrong]).exits(2);
        assert_eq!(
            run.stderr,
            format!(
                "atrest: error: invalid value '{wrong}' for '--output <FORM>': {said}\n\nFor more information, try \
                 '--help'.\n"
            )
        );
    }
}

#[test]
fn labels_and_namespaces_select() {
    let names = |args: &[&str]| silent(&get(&[args, &["-o", "name"]].concat()).exits(0));
    assert_eq!(
        names(&["secrets,configmaps", "-l", "phase in (p4),phase!=p0", "-n", "team-b"]),
        "configmap/p4-cm-0\nconfigmap/p4-cm-1\nsecret/p4-app-0\nsecret/p4-app-1\nsecret/p4-app-2\nsecret/p4-app-3\n\
         secret/p4-big\nsecret/p4-empty\nsecret/p4-tls\n"
    );
    assert_eq!(names(&["secrets", "-l", "phase=p4", "-n", "team-a"]), "");
    assert_eq!(names(&["--resource", "widgets.stable.example.com", "-n", "team-b"]).lines().count(), 2);
    let run = get(&["secrets", "-l", "a in ("]).exits(2);
    assert_eq!(
        run.stderr,
        "atrest: error: invalid value 'a in (' for '--selector <SELECTOR>': expected ',' or ')' at byte 6\n\nFor more \
         information, try '--help'.\n"
    );
}

#[test]
fn an_earlier_revision_is_what_was_stored_then() {
    let generation = |revision: &str| {
        let args = ["secrets", "touched", "--reveal", "--revision", revision, "-o", "jsonpath={.data.gen}"];
        silent(&get(&args).exits(0))
    };
    // 0, 1, 2 and 5.
    assert_eq!(["88", "117", "172", "241"].map(generation), ["MA==", "MQ==", "Mg==", "NQ=="]);
    let before = get(&["secrets", "touched", "--revision", "87"]).exits(1);
    assert_eq!((before.text(), before.stderr.as_str()), ("", "atrest: error: secrets \"touched\" not found\n"));
}

#[test]
fn an_object_that_is_not_there_is_an_error() {
    for (args, said) in [
        (&["secrets", "nope"][..], "secrets \"nope\" not found"),
        (&["secrets", "p1-app-0", "-n", "team-b"], "secrets \"p1-app-0\" not found"),
        (&["namespaces", "team-a", "-l", "no=such"], "namespaces \"team-a\" not found"),
        (&["secrets,configmaps", "nope"], "secrets,configmaps \"nope\" not found"),
    ] {
        let run = get(args).exits(1);
        assert_eq!((run.text(), run.stderr.as_str()), ("", format!("atrest: error: {said}\n").as_str()));
    }
    let run = get(&["secret", "p1-app-0"]).exits(2);
    assert_eq!(run.stderr, "atrest: error: unknown resource secret\natrest: hint: did you mean secrets?\n");
}

#[test]
fn what_is_encrypted_is_named_when_there_is_no_configuration() {
    let said = "\
atrest: warning: /registry/secrets/team-a/p1-app-0 (revision 107): no-provider: written by aescbc/key0, and secrets \
                have no aescbc provider: add it to their providers
atrest: hint: no configuration was named: --encryption-provider-config takes kube-apiserver's
";
    let get = |args: &[&str]| atrest(&[&["get", "--snapshot", LOCAL], args].concat(), b"");
    let run = get(&["secrets", "p1-app-0"]).exits(1);
    assert_eq!((run.text(), run.stderr.as_str()), ("", said));
    // Nothing at all was printed: the one who asked for an object is told why there is none.
    let quiet = get(&["-q", "secrets", "p1-app-0"]).exits(1);
    assert_eq!((quiet.text(), quiet.stderr.as_str()), ("", said));
    // Of several, those that can be read are printed.
    let some = get(&["-q", "secrets", "-n", "team-a", "-o", "name", "-l", "phase"]).exits(1);
    assert_eq!((some.text(), some.stderr.as_str()), (P0, ""));
    let all = get(&["secrets", "-n", "team-a", "-o", "name"]).exits(1);
    assert_eq!(all.stderr.lines().filter(|line| line.contains(": no-provider: written by ")).count(), 21);
}

const P0: &str = "secret/p0-app-0\nsecret/p0-app-1\nsecret/p0-app-2\nsecret/p0-app-3\nsecret/p0-big\nsecret/p0-empty\n\
                  secret/p0-tls\n";
