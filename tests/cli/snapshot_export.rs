//! `atrest snapshot export`: the tree, its permissions, and an export that was interrupted.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::fixture::{Dir, LOCAL, local_config, mode, with_keys};
use crate::hostile;
use crate::run::{Run, atrest};

/// Exports what is in a namespace.
fn export(out: &str, more: &[&str]) -> Run {
    let args = [&["snapshot", "export", LOCAL, "--out", out, "-n", "team-b"], more].concat();
    with_keys(&local_config(), &args)
}

/// Only these two widgets, so that everything can be listed.
const WIDGETS: [&str; 2] = ["--resource", "widgets.stable.example.com"];

#[test]
fn a_tree_has_a_file_for_each_object_that_only_its_owner_can_read() {
    let dir = Dir::new();
    let out = dir.arg("out");
    let run = export(&out, &WIDGETS).exits(0);
    assert_eq!(
        (run.text(), run.stderr.clone()),
        ("", format!("atrest: 2 objects at revision 241 written to {out}; 0 values cannot be read\n"))
    );
    let directory = "out/team-b/widgets.stable.example.com";
    let files = ["p2-w.yaml", "p4-w.yaml"].map(|name| format!("{directory}/{name}"));
    let all = [
        ("out/".to_owned(), 0o700),
        ("out/team-b/".to_owned(), 0o700),
        (format!("{directory}/"), 0o700),
        (files[0].clone(), 0o600),
        (files[1].clone(), 0o600),
    ];
    let modes: Vec<_> = dir.files().into_iter().map(|name| (name.clone(), mode(dir.join(&name)))).collect();
    assert_eq!(modes, all);
    assert_eq!(
        std::fs::read_to_string(dir.join(&files[0])).expect("a file"),
        "\
apiVersion: stable.example.com/v1
kind: Widget
metadata:
  creationTimestamp: \"2026-11-29T16:38:21Z\"
  generation: 1
  name: p2-w
  namespace: team-b
  resourceVersion: \"144\"
  uid: UID
spec:
  colour: blue
  phase: p2
  token: widget-token-p2-p2-w
"
        .replace("UID", &uid("p2-w"))
    );
}

/// The UID that `get` shows.
fn uid(name: &str) -> String {
    let args = ["get", "--snapshot", LOCAL, "widgets.stable.example.com", name, "-o", "jsonpath={.metadata.uid}"];
    with_keys(&local_config(), &args).exits(0).text().to_owned()
}

#[test]
fn objects_without_a_namespace_have_a_directory_too() {
    let dir = Dir::new();
    let out = dir.arg("out");
    let run = atrest(&["-q", "snapshot", "export", LOCAL, "--out", &out, "--resource", "namespaces"], b"").exits(0);
    assert_eq!((run.text(), run.stderr.as_str()), ("", ""));
    let names = ["default", "kube-node-lease", "kube-public", "kube-system", "team-a", "team-b"];
    let mut expected = vec!["out/".to_owned(), "out/_cluster/".to_owned(), "out/_cluster/namespaces/".to_owned()];
    expected.extend(names.map(|name| format!("out/_cluster/namespaces/{name}.yaml")));
    assert_eq!(dir.files(), expected);
}

#[test]
fn secrets_are_redacted_unless_they_are_to_be_revealed() {
    let dir = Dir::new();
    let (redacted, revealed) = (dir.arg("redacted"), dir.arg("revealed"));
    export(&redacted, &["--resource", "secrets"]).exits(0);
    export(&revealed, &["--resource", "secrets", "--reveal"]).exits(0);
    let text =
        |name: &str| std::fs::read_to_string(dir.join(name).join("team-b/secrets/p2-app-0.yaml")).expect("a file");
    assert!(text("redacted").contains("  password: \"[REDACTED, 10 bytes]\"\n"), "{}", text("redacted"));
    assert!(text("revealed").contains("  password: cEBzcy1wMi0wLQ==\n"), "{}", text("revealed"));
}

#[test]
fn an_export_goes_on_only_when_that_is_asked_for() {
    let dir = Dir::new();
    for (out, form) in [("tree", "yaml"), ("lines", "ndjson")] {
        let out = dir.arg(out);
        let args = [&WIDGETS[..], &["-o", form]].concat();
        export(&out, &args).exits(0);
        let before = dir.files();
        let run = export(&out, &args).exits(2);
        assert_eq!(
            run.stderr,
            format!(
                "atrest: error: {out} is there already, and is not an empty directory\natrest: hint: go on with an \
                 interrupted export with --resume, or name another place with --out\n"
            )
        );
        assert_eq!(dir.files(), before);
        let run = export(&out, &[&args[..], &["--resume"]].concat()).exits(0);
        assert_eq!(
            run.stderr,
            format!(
                "atrest: 0 objects at revision 241 written to {out}, 2 were there already; 0 values cannot be read\n"
            )
        );
        assert_eq!(dir.files(), before);
    }
    assert_eq!(mode(dir.join("lines")), 0o600);
}

#[test]
fn a_tree_goes_on_where_it_was_interrupted() {
    let dir = Dir::new();
    let out = dir.arg("out");
    export(&out, &[]).exits(0);
    let whole = dir.files();
    let gone = dir.join("out/team-b/secrets/touched.yaml");
    let kept = dir.join("out/team-b/secrets/p2-tls.yaml");
    let text = std::fs::read(&gone).expect("a file");
    std::fs::remove_file(&gone).expect("a file");
    // What was being written has another name, and is written again.
    dir.write("out/team-b/secrets/touched.yaml.part", "apiVers");
    // A crash may have left less of a file than was written to it.
    let cut = std::fs::read(&kept).expect("a file");
    std::fs::write(&kept, &cut[..cut.len() / 2]).expect("a file");
    let run = export(&out, &["--resume"]).exits(0);
    assert!(run.stderr.starts_with("atrest: 2 objects at revision 241 written to "), "{}", run.stderr);
    assert_eq!(dir.files(), whole);
    assert_eq!(std::fs::read(&gone).expect("a file"), text);
    assert_eq!(std::fs::read(&kept).expect("a file"), cut);
}

/// Resuming with another snapshot, revision or --reveal mixed both without a word.
#[test]
fn an_export_goes_on_only_with_what_is_the_same() {
    let dir = Dir::new();
    let (tree, lines) = (dir.arg("tree"), dir.arg("lines"));
    let secrets = ["--resource", "secrets"];
    export(&tree, &secrets).exits(0);
    export(&lines, &[&secrets[..], &["-o", "ndjson"]].concat()).exits(0);
    let other = ["--resume", "--reveal"];
    for (out, form) in [(&tree, "yaml"), (&lines, "ndjson")] {
        let run = export(out, &[&secrets[..], &other, &["-o", form]].concat()).exits(2);
        assert!(run.stderr.contains("holds something else than this export writes"), "{}", run.stderr);
        let run = export(out, &[&secrets[..], &["--resume", "--revision", "150", "-o", form]].concat()).exits(2);
        assert!(run.stderr.contains("holds something else than this export writes"), "{}", run.stderr);
    }
}

/// Only what came after the last line was written, and what could not be read the first time was lost.
#[test]
fn lines_go_on_with_everything_that_has_none() {
    let dir = Dir::new();
    let (out, whole) = (dir.arg("lines"), dir.arg("whole"));
    let args = ["snapshot", "export", LOCAL, "-o", "ndjson", "-n", "team-a", "--out"];
    let config = local_config();
    with_keys(&config, &[&args[..], &[&whole]].concat()).exits(0);
    // Without a configuration, only what is stored in the clear.
    let run = atrest(&[&args[..], &[&out]].concat(), b"").exits(1);
    let told = run.stderr.lines().rev().take(2).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            format!("atrest: 11 objects at revision 241 written to {out}; 30 values cannot be read").as_str(),
            "atrest: hint: no configuration was named: --encryption-provider-config takes kube-apiserver's"
        ]
    );
    let run = with_keys(&config, &[&args[..], &[&out, "--resume"]].concat()).exits(0);
    assert_eq!(
        run.stderr,
        format!(
            "atrest: 30 objects at revision 241 written to {out}, 11 were there already; 0 values cannot be read\n"
        )
    );
    let lines = |path: &str| {
        let text = std::fs::read_to_string(path).expect("a file");
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&out), lines(&whole));
}

#[test]
fn a_line_that_was_cut_off_is_written_again() {
    let dir = Dir::new();
    let out = dir.arg("lines");
    let args = [&WIDGETS[..], &["-o", "ndjson"]].concat();
    export(&out, &args).exits(0);
    let whole = std::fs::read(&out).expect("a file");
    for kept in [whole.len() - 1, whole.len() - 200, 5] {
        std::fs::write(&out, &whole[..kept]).expect("a file");
        export(&out, &[&args[..], &["--resume"]].concat()).exits(0);
        assert!(std::fs::read(&out).expect("a file") == whole, "{kept}");
    }
}

/// It was cut off at its first line that is not JSON: a file that somebody named by mistake was emptied.
#[test]
fn a_file_that_no_export_has_written_stays_as_it_is() {
    let dir = Dir::new();
    for (text, line) in [("notes\nof mine\n", 1), ("notes", 1), ("{\"key\":\"/a\"}\n{\"name\":\"b\"}\n", 2)] {
        let out = dir.write("notes", text);
        let run = export(&out, &["-o", "ndjson", "--resume"]).exits(2);
        assert_eq!(
            (run.text(), run.stderr.clone()),
            ("", format!("atrest: error: {out} was not written by an export: its line {line} has no etcd key\n"))
        );
        assert_eq!(std::fs::read_to_string(&out).expect("a file"), text);
    }
}

#[test]
fn no_link_is_followed() {
    let dir = Dir::new();
    let elsewhere = dir.arg("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    let file = dir.write("file", "precious");
    let link = |to: &str, name: &str| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        symlink(to, path).expect("a link");
    };
    link(&elsewhere, "root");
    link(&elsewhere, "namespace/team-b");
    link(&elsewhere, "resource/team-b/widgets.stable.example.com");
    for out in ["root", "namespace", "resource"] {
        let run = export(&dir.arg(out), &[&WIDGETS[..], &["--resume"]].concat()).exits(4);
        let told = format!("atrest: error: cannot write {}", dir.arg(out));
        assert!(run.stderr.starts_with(&told), "{}", run.stderr);
    }
    // A link in place of a file is not looked through, and one of the name that is written first is replaced.
    link(&file, "name/team-b/widgets.stable.example.com/p2-w.yaml");
    link(&file, "name/team-b/widgets.stable.example.com/p4-w.yaml.part");
    export(&dir.arg("name"), &[&WIDGETS[..], &["--resume"]].concat()).exits(4);
    std::fs::remove_file(dir.join("name/team-b/widgets.stable.example.com/p2-w.yaml")).expect("a link");
    export(&dir.arg("name"), &[&WIDGETS[..], &["--resume"]].concat()).exits(0);
    assert!(dir.join("name/team-b/widgets.stable.example.com/p4-w.yaml").symlink_metadata().expect("a file").is_file());
    link(&file, "lines");
    export(&dir.arg("lines"), &["-o", "ndjson", "--resume"]).exits(2);
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "precious");
    assert_eq!(std::fs::read_dir(&elsewhere).expect("a directory").count(), 0);
}

#[test]
fn no_object_is_written_outside_of_the_directory() {
    let dir = Dir::new();
    let names = ["..", "../../../../escape", "a/b", ".hidden", "x\0y", "ü", "%2E", &"n".repeat(400)];
    let keys: Vec<_> = names.iter().map(|name| format!("/registry/configmaps/ns/{name}")).collect();
    let mut objects: Vec<_> =
        keys.iter().zip(names).map(|(key, name)| (key.as_bytes(), configmap("ns", name))).collect();
    objects.push((b"/registry/configmaps/../evil", configmap("..", "evil")));
    objects.push((b"/registry/configmaps/ns/not\xffutf8", configmap("ns", "x")));
    let file = dir.write("in/hostile.db", hostile::snapshot(&objects));
    let out = dir.arg("work/out");
    std::fs::create_dir(dir.join("work")).expect("a directory");
    let run = atrest(&["snapshot", "export", &file, "--out", &out], b"").exits(1);
    let last = format!("atrest: 9 objects at revision 11 written to {out}; 1 value cannot be read");
    assert_eq!(run.stderr.lines().last(), Some(last.as_str()));
    let below = |directory: &str, names: &[&str]| -> Vec<String> {
        let names = names.iter().map(|name| format!("work/out/{directory}/{name}"));
        [format!("work/out/{directory}/")].into_iter().chain(names).collect()
    };
    let long = format!("{}~{}.yaml", "n".repeat(200), LONG);
    let in_namespace = ["%252E.yaml", "%2E..yaml", "%2Ehidden.yaml", "%C3%BC.yaml", &long, "x%00y.yaml"];
    // What has a slash in its name is no object of a namespace: it goes by its key.
    let by_key =
        ["..%2F..%2F..%2F..%2Fescape", "a%2Fb"].map(|name| format!("%2Fregistry%2Fconfigmaps%2Fns%2F{name}.yaml"));
    let expected = [
        vec!["in/".to_owned(), "in/hostile.db".to_owned(), "work/".to_owned(), "work/out/".to_owned()],
        below("%2E.", &[]),
        below("%2E./configmaps", &["evil.yaml"]),
        below("_cluster", &[]),
        below("_cluster/configmaps", &[&by_key[0], &by_key[1]]),
        below("ns", &[]),
        below("ns/configmaps", &in_namespace),
    ];
    assert_eq!(dir.files(), expected.concat());
    // Nor does a name reach the terminal as it is.
    let names = atrest(&["-q", "get", "--snapshot", &file, "-o", "name"], b"").exits(1);
    assert!(names.text().contains("\nconfigmap/x\\u{0}y\n"), "{}", names.text());
    // Lines are whole lines, whatever is in them.
    let lines = dir.arg("lines");
    atrest(&["-q", "snapshot", "export", &file, "-o", "ndjson", "--out", &lines], b"");
    let text = std::fs::read_to_string(&lines).expect("a file");
    let parsed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let again = atrest(&["snapshot", "export", &file, "-o", "ndjson", "--out", &lines, "--resume"], b"");
    assert!(again.stderr.contains(&format!(", {} were there already;", parsed.len())), "{}", again.stderr);
    assert_eq!(std::fs::read_to_string(&lines).expect("a file"), text);
}

/// The hash of so long a name.
const LONG: &str = "28f51993138c4c62";

fn configmap(namespace: &str, name: &str) -> Vec<u8> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
    });
    object.to_string().into_bytes()
}

/// The second was written over the first, and both were counted.
#[test]
fn objects_of_one_name_below_two_prefixes_have_a_file_each() {
    let dir = Dir::new();
    let objects: [(&[u8], Vec<u8>); 2] = [
        (b"/registry/configmaps/ns/a.b", configmap("ns", "a.b")),
        (b"/kubernetes.io/configmaps/ns/a.b", configmap("ns", "a.b")),
    ];
    let file = dir.write("two.db", hostile::snapshot(&objects));
    let out = dir.arg("out");
    let args = ["snapshot", "export", &file, "--out", &out];
    let run = atrest(&args, b"").exits(0);
    assert_eq!(run.stderr, format!("atrest: 2 objects at revision 3 written to {out}; 0 values cannot be read\n"));
    // The hash is of the key.
    let second = "out/ns/configmaps/a.b.~HASH.yaml".replace("HASH", SECOND);
    let files = ["out/", "out/ns/", "out/ns/configmaps/", "out/ns/configmaps/a.b.yaml", &second, "two.db"];
    assert_eq!(dir.files(), files);
    // Whichever of them is missing is written again.
    for (name, revision) in [("out/ns/configmaps/a.b.yaml", 3), (&*second, 2)] {
        let text = std::fs::read_to_string(dir.join(name)).expect("a file");
        assert!(text.contains(&format!("  resourceVersion: \"{revision}\"\n")), "{text}");
        std::fs::remove_file(dir.join(name)).expect("a file");
        atrest(&[&args[..], &["--resume"]].concat(), b"").exits(0);
        assert_eq!(std::fs::read_to_string(dir.join(name)).expect("a file"), text);
    }
    assert_eq!(dir.files(), files);
}

const SECOND: &str = "4fc935eeb2a11b60";
