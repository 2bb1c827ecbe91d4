//! Several processes at one file, and processes that end in the middle.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use atrest_kms_plugin::keyring::State;

use crate::folder::{Folder, keyring, states};

#[test]
fn of_rotations_at_the_same_time_none_is_lost() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let start = || folder.command(&["rotate", "--keyring", "k", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..12).map(|_| start()).collect();
    let mut shown = BTreeSet::from([states(&keyring(&path))[0].0.clone()]);
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        shown.insert(json["keys"][0]["key_id"].as_str().unwrap().to_owned());
    }
    let found = states(&keyring(&path));
    let ids: BTreeSet<_> = found.iter().map(|(id, _)| id.clone()).collect();
    assert!(shown.is_subset(&ids), "{shown:?} {ids:?}");
    assert_eq!((found.len(), ids.len()), (13, 13));
    assert_eq!(found.iter().filter(|(_, state)| *state == State::Current).count(), 1);
    assert_eq!(folder.names(), ["k"]);
}

/// Two loops of rotations in one folder, of `keyring` and of `keyring.b`: 21 of 150 failed, since the one removed what the other was about
/// to put in its place.
#[test]
fn rotations_of_files_with_similar_names_leave_each_other_alone() {
    let folder = Folder::new();
    for name in ["keyring", "keyring.b"] {
        folder.keygen(name);
    }
    std::thread::scope(|scope| {
        for name in ["keyring", "keyring.b"] {
            let folder = &folder;
            scope.spawn(move || {
                for _ in 0..60 {
                    folder.run(&["rotate", "--keyring", name]).exits(0);
                }
            });
        }
    });
    assert_eq!(["keyring", "keyring.b"].map(|name| states(&keyring(&folder.path(name))).len()), [61, 61]);
    assert_eq!(folder.names(), ["keyring", "keyring.b"]);
}

#[test]
fn of_keyrings_that_are_made_at_the_same_time_one_is() {
    let folder = Folder::new();
    let start = || {
        let mut command = folder.command(&["keygen", "--plain", "--keyring", "k"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(|_| start()).collect();
    let mut codes = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        if output.status.code() == Some(1) {
            let expected = "atrest-kms-plugin: error: k: it exists already, and is not overwritten\natrest-kms-plugin: hint: a new key for it is \
                            made by `rotate`\n";
            assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
        }
        codes.push(output.status.code());
    }
    codes.sort();
    assert_eq!(codes, [&[Some(0)][..], &[Some(1); 7]].concat());
    assert_eq!(folder.names(), ["k"]);
}

/// A plugin that started while the file was half there had no keys, and its API server no secrets.
#[test]
fn a_rotation_that_is_killed_leaves_the_old_file_or_the_new_one() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let mut known: Vec<_> = states(&keyring(&path)).into_iter().map(|(id, _)| id).collect();
    for round in 0..80 {
        let mut child =
            folder.command(&["rotate", "--keyring", "k"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 150));
        _ = child.kill();
        child.wait().unwrap();
        let now: Vec<_> = states(&keyring(&path)).into_iter().map(|(id, _)| id).collect();
        assert!(now.starts_with(&known) && now.len() <= known.len() + 1, "{known:?} {now:?}");
        known = now;
    }
    // What the killed ones left is keys in the clear; the next change removes it.
    let left = folder.write(".k.abcdefghijkl.atrest-new", "keys");
    folder.write(".k.other", "of somebody else");
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    assert!(!left.exists());
    assert_eq!(folder.names(), [".k.other", "k"]);
}
