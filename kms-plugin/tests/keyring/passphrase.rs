//! Where the passphrase comes from.

use crate::folder::{Folder, PASSPHRASE, finish, set_mode};

fn sealed() -> Folder {
    let folder = Folder::new();
    folder.vector("passphrase.json");
    folder
}

const LIST: [&str; 4] = ["list", "--keyring", "passphrase.json", "--passphrase-file"];

#[test]
fn one_newline_at_its_end_does_not_count() {
    let folder = sealed();
    for (name, text, status) in [
        ("bare", PASSPHRASE.to_owned(), 0),
        ("newline", format!("{PASSPHRASE}\n"), 0),
        ("two", format!("{PASSPHRASE}\n\n"), 3),
        ("before", format!("\n{PASSPHRASE}"), 3),
        ("space", format!("{PASSPHRASE} "), 3),
    ] {
        folder.write(name, text);
        folder.run(&[&LIST[..], &[name]].concat()).exits(status);
    }
}

#[test]
fn an_empty_one_is_refused() {
    let folder = Folder::new();
    for text in ["", "\n"] {
        folder.write("p", text);
        let run = folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k"]).exits(2);
        assert_eq!(run.stderr, "atrest-kms-plugin: error: k: the passphrase in p is empty\n");
    }
    folder.write("p", vec![b'x'; 64 * 1024 + 1]);
    let run = folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k"]).exits(2);
    assert_eq!(run.stderr, "atrest-kms-plugin: error: k: the passphrase in p is too long\n");
    let run = folder.run(&["keygen", "--passphrase-file", "q", "--keyring", "k"]).exits(3);
    let expected =
        "atrest-kms-plugin: error: k: cannot read the passphrase in q: No such file or directory (os error 2)\n";
    assert_eq!(run.stderr, expected);
    assert_eq!(folder.names(), ["p"]);
}

#[test]
fn one_of_any_bytes_is_taken_as_it_is() {
    let folder = Folder::new();
    folder.write("p", (0..=255).collect::<Vec<u8>>());
    folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k"]).exits(0);
    folder.run(&["list", "--passphrase-file", "p", "--keyring", "k"]).exits(0);
    folder.write("p", (0..255).collect::<Vec<u8>>());
    folder.run(&["list", "--passphrase-file", "p", "--keyring", "k"]).exits(3);
}

#[test]
fn what_could_be_read_or_guessed_is_warned_about() {
    let folder = Folder::new();
    let path = folder.write("p", "correct horse battery staple");
    for (mode, name) in [(0o644, "k644"), (0o640, "k640")] {
        set_mode(&path, mode);
        let run = folder.run(&["keygen", "--passphrase-file", "p", "--keyring", name]).exits(0);
        let expected = format!("WARN others than its owner can read the secret in p (mode {mode:o})");
        assert_eq!(run.stderr.trim(), expected);
    }
    folder.write("short", "hunter2");
    let run = folder.run(&["keygen", "--passphrase-file", "short", "--keyring", "l"]).exits(0);
    let expected = "WARN the passphrase in short has fewer than 16 bytes, and whoever gets the keyring can try many";
    assert_eq!(run.stderr.trim(), expected);
}

/// As a shell makes it: `--passphrase-file <(pass show atrest)`. It was read before the other end had written.
#[test]
fn one_may_come_through_a_pipe() {
    let folder = sealed();
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap();
    assert_eq!(made.code(), Some(0));
    let pipe = folder.path("pipe");
    let writer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::fs::write(pipe, PASSPHRASE).unwrap();
    });
    folder.run(&[&LIST[..], &["pipe"]].concat()).exits(0);
    writer.join().unwrap();
}

#[test]
fn a_credential_of_systemd_is_a_file_with_a_passphrase() {
    let folder = sealed();
    std::fs::create_dir(folder.path("credentials")).unwrap();
    set_mode(&folder.write("credentials/keyring", PASSPHRASE), 0o440);
    let with = |name: &str| {
        let mut command = folder.command(&["list", "--credential", name, "--keyring", "passphrase.json"]);
        command.env("CREDENTIALS_DIRECTORY", folder.path("credentials"));
        finish(&mut command)
    };
    assert_eq!(with("keyring").exits(0).stderr, "");
    let run = with("other").exits(3);
    assert!(run.stderr.contains(": cannot read the passphrase in "), "{}", run.stderr);
    for name in ["", ".", "..", "../credentials/keyring", "/etc/passwd", "a/b", "keyring/"] {
        let run = with(name).exits(2);
        let expected =
            "atrest-kms-plugin: error: passphrase.json: a credential's name is that of a file, without a folder\n";
        assert_eq!(run.stderr, expected, "{name}");
    }
    let run = folder.run(&["list", "--credential", "keyring", "--keyring", "passphrase.json"]).exits(2);
    let expected = "atrest-kms-plugin: error: passphrase.json: systemd gave this process no credentials\natrest-kms-plugin: hint: it \
                    works in a unit with LoadCredential= or LoadCredentialEncrypted=, which sets CREDENTIALS_DIRECTORY\n";
    assert_eq!(run.stderr, expected);
}
