//! Where the keys lie, and who can get at them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use atrest_kms_plugin::keyring::{Error, Keyring, Opener};

use crate::folder::{Folder, keyring, set_mode, states};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_keyring_is_for_its_owner_alone_whatever_the_umask() {
    let folder = Folder::new();
    let program = env!("CARGO_BIN_EXE_atrest-kms-plugin");
    let script = "umask 0000; \"$0\" keygen --plain --keyring k && \"$0\" rotate --keyring k";
    let status = Command::new("sh").args(["-c", script, program]).current_dir(folder.path("")).status();
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(mode(&folder.path("k")), 0o600);
    assert_eq!(folder.names(), ["k"]);
}

#[test]
fn nothing_is_overwritten() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let before = std::fs::read(&path).unwrap();
    let run = folder.run(&["keygen", "--plain", "--keyring", "k"]).exits(1);
    let expected = "atrest-kms-plugin: error: k: it exists already, and is not overwritten\natrest-kms-plugin: hint: a new key for it is \
                    made by `rotate`\n";
    assert_eq!(run.stderr, expected);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // Not through a link that leads nowhere, either.
    symlink(folder.path("elsewhere"), folder.path("link")).unwrap();
    folder.run(&["keygen", "--plain", "--keyring", "link"]).exits(1);
    assert_eq!(folder.names(), ["k", "link"]);
}

#[test]
fn keys_in_the_clear_that_others_can_reach_are_not_used() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    for bits in [0o604, 0o640, 0o660, 0o601] {
        set_mode(&path, bits);
        for args in [&["list"][..], &["rotate"]] {
            let run = folder.run(&[args, &["--keyring", "k"]].concat()).exits(2);
            let expected = format!(
                "atrest-kms-plugin: error: k: it is not sealed, and others than its owner have access to it (mode {bits:03o})\n\
                 atrest-kms-plugin: hint: chmod 600 k\n"
            );
            assert_eq!(run.stderr, expected);
        }
    }
    set_mode(&path, 0o400);
    folder.run(&["list", "--keyring", "k"]).exits(0);
}

#[test]
fn owner_group_and_mode_stay() {
    let folder = Folder::new();
    folder.write("p", "correct horse battery staple");
    folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k"]).exits(0);
    let path = folder.path("k");
    set_mode(&path, 0o640);
    // Root may give it to anybody; others keep what they have.
    let group =
        if std::fs::metadata(&path).unwrap().uid() == 0 { 12345 } else { std::fs::metadata(&path).unwrap().gid() };
    std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    folder.run(&["rotate", "--passphrase-file", "p", "--keyring", "k"]).exits(0);
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid(), mode(&path)), (before.uid(), group, 0o640));
    assert_ne!(after.ino(), before.ino());
    // Without the seal that mode is too open; nothing was gained by unsealing it.
    folder.run(&["reseal", "--passphrase-file", "p", "--new-plain", "--keyring", "k"]).exits(0);
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_link_is_read_and_not_replaced() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    symlink("k", folder.path("link")).unwrap();
    assert_eq!(states(&keyring(&folder.path("link"))), states(&keyring(&path)));
    let run = folder.run(&["rotate", "--keyring", "link"]).exits(2);
    assert_eq!(run.stderr, "atrest-kms-plugin: error: link: it is a symbolic link: name the file itself\n");
    assert!(std::fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert_eq!(states(&keyring(&path)).len(), 1);
}

#[test]
fn what_is_no_file() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("dir")).unwrap();
    assert_eq!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().code(), Some(0));
    for name in ["dir", "pipe"] {
        let error = Keyring::open(&folder.path(name), &Opener::Plain).unwrap_err();
        assert!(matches!(error, Error::NotAFile), "{error}");
    }
    let run = folder.run(&["list", "--keyring", "none"]).exits(3);
    let expected = "atrest-kms-plugin: error: none: cannot read it: No such file or directory (os error 2)\n";
    assert_eq!(run.stderr, expected);
    let run = folder.run(&["keygen", "--plain", "--keyring", "no/such/k"]).exits(3);
    assert!(run.stderr.starts_with("atrest-kms-plugin: error: no/such/k: cannot write beside it: "), "{}", run.stderr);
}

#[test]
fn a_file_larger_than_any_keyring_is_not_read() {
    let folder = Folder::new();
    let path = folder.write("k", vec![b' '; 1024 * 1024 + 1]);
    assert!(matches!(Keyring::open(&path, &Opener::Plain), Err(Error::TooLarge)));
}

#[test]
fn a_failed_change_leaves_the_file_and_nothing_beside_it() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let before = std::fs::read(&path).unwrap();
    folder.run(&["rotate", "--activate", "other", "--keyring", "k"]).exits(1);
    folder.run(&["reseal", "--new-passphrase-file", "none", "--keyring", "k"]).exits(3);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(folder.names(), ["k"]);
}
