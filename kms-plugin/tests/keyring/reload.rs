//! A plugin that runs for months sees what happens to its file.

use std::io::Write;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use atrest::report::key_id_hash;
use atrest_kms_plugin::backend::keyring::KeyringBackend;
use atrest_kms_plugin::backend::{Backend as _, Error};

use crate::backend::secret;
use crate::folder::{Folder, PASSPHRASE, backend, by_passphrase, keyring, set_mode, states};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged of this folder's files. The subscriber is the process's: the file is read on a thread of its own.
fn logged(folder: &Folder) -> Vec<String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber =
            tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false).with_target(false).without_time();
        tracing::subscriber::set_global_default(subscriber.finish()).expect("the only one");
    });
    let text = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let of_folder = folder.path("").display().to_string();
    text.lines().filter(|line| line.contains(&of_folder)).map(|line| line.trim_start().to_owned()).collect()
}

#[tokio::test]
async fn a_rotation_is_in_force_at_once() {
    let folder = Folder::new();
    let backend = backend(&folder.keygen("k"));
    let wrapped = backend.encrypt(&secret(b"seed")).await.unwrap();
    for _ in 0..20 {
        let new = folder.run(&["rotate", "--keyring", "k", "-o", "json"]).exits(0).key_id();
        assert_eq!(backend.current_key_id().await.unwrap(), new);
        assert_eq!(backend.encrypt(&secret(b"seed")).await.unwrap().key_id, new);
    }
    assert_eq!(backend.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
}

/// Only the other node's plugin has asked for its key since the file was copied; this one gets its ciphertext first.
#[tokio::test]
async fn a_key_that_is_asked_for_before_the_file_was_read_again() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let early = backend(&path);
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    let wrapped = backend(&path).encrypt(&secret(b"seed")).await.unwrap();
    assert_eq!(early.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_logged_once() {
    let folder = Folder::new();
    logged(&folder);
    let path = folder.keygen("k");
    let backend = backend(&path);
    let id = backend.current_key_id().await.unwrap();
    let wrapped = backend.encrypt(&secret(b"seed")).await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    let file = path.display();
    let kept = "; the keys that were read before stay in force";
    let broken: [(&[u8], String); 5] = [
        (b"", format!("{file}: it is damaged at line 1, column 0{kept}")),
        (&whole[..100], format!("{file}: it is damaged at line 7, column 5{kept}")),
        (b"{\"format\": \"other\"}", format!("{file}: it is not a keyring{kept}")),
        (
            b"{\"format\": \"atrest-keyring\", \"version\": 2}",
            format!("{file}: it is a keyring of format version 2; this program reads version 1{kept}"),
        ),
        (
            b"{\"format\": \"atrest-keyring\", \"version\": 1, \"seal\": \"none\", \"content\": {\"keys\": [], \"retired\": []}}",
            format!("{file}: it does not have exactly one current key{kept}"),
        ),
    ];
    for (at, (text, expected)) in broken.iter().enumerate() {
        std::fs::write(&path, text).unwrap();
        for _ in 0..3 {
            assert_eq!(backend.current_key_id().await.unwrap(), id);
            assert_eq!(backend.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
            assert_eq!(backend.encrypt(&secret(b"seed")).await.unwrap().key_id, id);
        }
        assert_eq!(backend.warning().as_ref(), Some(expected));
        let log = logged(&folder);
        assert_eq!(log.len(), at + 1, "{log:#?}");
        assert_eq!(log[at], format!("ERROR {expected}"));
    }
    let error = backend.reload().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if *text == broken[4].1), "{error}");
    assert_eq!(logged(&folder).len(), broken.len());
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    assert_eq!(backend.warning(), None);
}

#[tokio::test]
async fn a_file_that_is_gone_or_open_to_others_changes_nothing() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let backend = backend(&path);
    let id = backend.current_key_id().await.unwrap();
    let kept = "; the keys that were read before stay in force";
    set_mode(&path, 0o640);
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    let expected = "it is not sealed, and others than its owner have access to it (mode 640)";
    assert_eq!(backend.warning().unwrap(), format!("{}: {expected}{kept}", path.display()));
    set_mode(&path, 0o600);
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    assert_eq!(backend.warning(), None);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    let expected = "cannot read it: No such file or directory (os error 2)";
    assert_eq!(backend.warning().unwrap(), format!("{}: {expected}{kept}", path.display()));
    std::fs::create_dir(&path).unwrap();
    assert_eq!(backend.current_key_id().await.unwrap(), id);
    assert_eq!(backend.warning().unwrap(), format!("{}: it is not a regular file{kept}", path.display()));
}

fn lacks(path: &std::path::Path, count: &str, ids: &[&str]) -> String {
    let hashes: Vec<_> = ids.iter().map(|id| key_id_hash(id)).collect();
    format!(
        "{}: it lacks {count} that it had before and that were not retired ({}), so it is taken for an older file: put the newer one \
         back; the keys that were read before stay in force",
        path.display(),
        hashes.join(", ")
    )
}

/// A backup tool put last month's file back after a rotation: the plugin dropped the key that encrypted everything since, of which it
/// held the last copy, answered Decrypt with NotFound, and Status with ok. Now the file is refused as a broken one is.
#[tokio::test]
async fn an_older_file_is_refused() {
    let folder = Folder::new();
    logged(&folder);
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let older = std::fs::read(&path).unwrap();
    let second = folder.run(&["rotate", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    let newer = std::fs::read(&path).unwrap();
    let backend = backend(&path);
    let wrapped = backend.encrypt(&secret(b"seed")).await.unwrap();
    assert_eq!(wrapped.key_id, second);
    std::fs::write(&path, &older).unwrap();
    let expected = lacks(&path, "1 key", &[&second]);
    for _ in 0..3 {
        assert_eq!(backend.current_key_id().await.unwrap(), second);
        assert_eq!(backend.decrypt(&wrapped).await.unwrap(), secret(b"seed"));
        assert_eq!(backend.encrypt(&secret(b"seed")).await.unwrap().key_id, second);
        assert_eq!(backend.warning().as_ref(), Some(&expected));
        assert!(matches!(backend.reload().await, Err(Error::Unavailable(text)) if text == expected));
    }
    assert_eq!(logged(&folder), [format!("ERROR {expected}")]);
    // A key that was made in the older file does not bring the other one back.
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    assert_eq!(backend.warning(), Some(expected));
    std::fs::write(&path, newer).unwrap();
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    assert_eq!(backend.warning(), None);
    // Whoever means it restarts the plugin.
    std::fs::write(&path, older).unwrap();
    let restarted = crate::folder::backend(&path);
    assert_eq!((restarted.current_key_id().await.unwrap(), restarted.warning()), (first, None));
}

#[tokio::test]
async fn a_file_of_other_keys_is_refused() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let second = folder.run(&["rotate", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    let backend = backend(&path);
    let other = folder.keygen("other");
    let text = std::fs::read_to_string(&other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    assert_eq!(backend.warning(), Some(lacks(&path, "2 keys", &[&first, &second])));
    // Nor is another key a key of the same name.
    let id = states(&keyring(&path))[0].0.clone();
    let third = crate::folder::backend(&path);
    assert_eq!(third.current_key_id().await.unwrap(), id);
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["content"]["keys"][0]["key"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into();
    std::fs::write(&path, json.to_string()).unwrap();
    assert_eq!(third.current_key_id().await.unwrap(), id);
    assert_eq!(third.warning(), Some(lacks(&path, "1 key", &[&id])));
}

#[tokio::test]
async fn a_retired_key_is_not_missed() {
    let folder = Folder::new();
    let path = folder.keygen("k");
    let first = states(&keyring(&path))[0].0.clone();
    let backend = backend(&path);
    folder.run(&["rotate", "--keyring", "k"]).exits(0);
    folder.run(&["retire", &first, "--yes", "--force", "--keyring", "k"]).exits(0);
    backend.reload().await.unwrap();
    assert_eq!(backend.warning(), None);
}

#[tokio::test]
async fn a_sealed_file_is_read_again_and_sealed_anew_too() {
    let folder = Folder::new();
    folder.write("p", PASSPHRASE);
    let path = folder.path("k");
    let first = folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    let backend = KeyringBackend::open(&path, by_passphrase(folder.path("p"))).unwrap();
    // With the same salt nobody asks for the passphrase again.
    std::fs::rename(folder.path("p"), folder.path("q")).unwrap();
    let second = folder.run(&["rotate", "--passphrase-file", "q", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    // With another it is needed.
    let args = ["reseal", "--passphrase-file", "q", "--new-passphrase-file", "q", "--keyring", "k"];
    folder.run(&args).exits(0);
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    let expected = format!(
        "{}: cannot read the passphrase in {}: No such file or directory (os error 2); the keys that were read before stay in force",
        path.display(),
        folder.path("p").display()
    );
    assert_eq!(backend.warning(), Some(expected));
    std::fs::rename(folder.path("q"), folder.path("p")).unwrap();
    backend.reload().await.unwrap();
    assert_eq!(backend.warning(), None);
    // And a file that is not sealed any more is not taken: anybody could have written it.
    folder.run(&["reseal", "--passphrase-file", "p", "--new-plain", "--keyring", "k"]).exits(0);
    assert_eq!(backend.current_key_id().await.unwrap(), second);
    let expected = "it is not sealed, although a passphrase is given; the keys that were read before stay in force";
    assert_eq!(backend.warning(), Some(format!("{}: {expected}", path.display())));
    assert_eq!(states(&keyring(&path)).iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), [first, second]);
}

/// The file of the passphrase came back, and the keyring's own looks as before.
#[tokio::test]
async fn what_failed_is_tried_again_without_being_told() {
    let folder = Folder::new();
    logged(&folder);
    folder.write("p", PASSPHRASE);
    folder.write("q", PASSPHRASE);
    folder.run(&["keygen", "--passphrase-file", "p", "--keyring", "k"]).exits(0);
    let backend = KeyringBackend::open(&folder.path("k"), by_passphrase(folder.path("q"))).unwrap();
    std::fs::remove_file(folder.path("q")).unwrap();
    folder.run(&["reseal", "--passphrase-file", "p", "--new-passphrase-file", "p", "--keyring", "k"]).exits(0);
    let new = folder.run(&["rotate", "--passphrase-file", "p", "--keyring", "k", "-o", "json"]).exits(0).key_id();
    assert_ne!(backend.current_key_id().await.unwrap(), new);
    assert!(backend.warning().is_some());
    std::fs::rename(folder.path("p"), folder.path("q")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while backend.current_key_id().await.unwrap() != new {
        assert!(Instant::now() < deadline, "{:?}", backend.warning());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(backend.warning(), None);
    let errors: Vec<_> = logged(&folder).into_iter().filter(|line| line.starts_with("ERROR")).collect();
    assert_eq!(errors.len(), 1, "{errors:#?}");
}
