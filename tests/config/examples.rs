//! `config-examples/` holds files that load, each with its line in the README.

use std::path::Path;

use atrest::config::{Options, load};

/// Files that run the KMS plugin. Its own tests look at them.
const OTHERS: [&str; 2] = ["atrest-kms-plugin.service", "kms-plugin-static-pod.yaml"];

#[test]
fn every_example_loads_and_is_listed() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("config-examples");
    let readme = std::fs::read_to_string(directory.join("README.md")).expect("README.md");
    let mut names: Vec<_> = std::fs::read_dir(&directory)
        .expect("examples")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| name != "README.md")
        .collect();
    names.sort();
    for name in &names {
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in the README");
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        let text = std::fs::read(directory.join(name)).expect("a file");
        let loaded = load(&text, &Options { automatic_reload: true }).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(loaded.warnings, [], "{name}");
    }
    let listed = readme.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(listed, names.len(), "the README lists files that are not there");
}

#[test]
fn no_example_holds_a_key_that_could_be_real() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("config-examples");
    for entry in std::fs::read_dir(&directory).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.ends_with("README.md") || OTHERS.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        let text = std::fs::read(&path).expect("a file");
        let loaded = load(&text, &Options::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let providers = loaded.config.resources.iter().flat_map(|entry| &entry.providers);
        for key in providers.flat_map(|provider| provider.keys()) {
            assert!(key.secret.expose().starts_with(b"example-"), "{}: {}", path.display(), key.name);
        }
    }
}
