//! Whatever is in the file.

use std::sync::LazyLock;

use atrest_kms_plugin::keyring::{Document, Error, Keyring, State};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::folder::{Folder, keyring, states, vectors};

static VECTORS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| ["plain.json", "passphrase.json"].map(|name| std::fs::read(vectors().join(name)).expect(name)));

/// A change of a keyring.
#[derive(Clone, Debug)]
enum Change {
    Rotate,
    Stage,
    Activate(Option<Index>),
    Retire(Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Rotate),
        Just(Change::Stage),
        proptest::option::of(any::<Index>()).prop_map(Change::Activate),
        any::<Index>().prop_map(Change::Retire),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_a_keyring_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..512)) {
        _ = Document::parse(&text).and_then(Document::open_unsealed);
    }

    #[test]
    fn a_changed_keyring_is_a_keyring_or_an_error(
        which in 0..2_usize,
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in any::<Index>(),
        twice in any::<bool>(),
    ) {
        let mut text = VECTORS[which].clone();
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if twice {
            let from = cut.index(text.len());
            text.extend_from_within(from..);
        } else {
            text.truncate(cut.index(text.len()) + 1);
        }
        _ = Document::parse(&text).and_then(Document::open_unsealed);
    }

    /// The parameters are refused while the file is read: nothing is derived, so nothing is allocated.
    #[test]
    fn parameters_of_the_derivation(memory in any::<u64>(), passes in any::<u64>(), lanes in any::<u64>(), salt in 0..100_usize) {
        let salt = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![7; salt]);
        let text = format!(
            "{{\"format\":\"atrest-keyring\",\"version\":1,\"sealed\":\"\",\"seal\":{{\"passphrase\":{{\"kdf\":\"argon2id\",\
             \"memory_kib\":{memory},\"passes\":{passes},\"lanes\":{lanes},\"salt\":\"{salt}\"}}}}}}"
        );
        match Document::parse(text.as_bytes()) {
            Ok(_) => prop_assert!((8192..=1_048_576).contains(&memory) && (1..=4_194_304 / memory).contains(&passes) && lanes <= 16),
            Err(Error::KdfBounds | Error::Malformed { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// After any changes the file says what the changes say, one key is current, and no name was given twice.
    #[test]
    fn any_changes_leave_a_keyring(changes in proptest::collection::vec(change(), 1..16)) {
        let folder = Folder::new();
        let path = folder.path("k");
        let opener = atrest_kms_plugin::keyring::Opener::Plain;
        let now = time::macros::datetime!(2026-01-31 10:00:00 UTC);
        Keyring::create(&path, &opener, now).unwrap();
        let mut names = vec![states(&keyring(&path))[0].0.clone()];
        let mut current = names[0].clone();
        for change in changes {
            let before = states(&keyring(&path));
            match change {
                Change::Rotate => {
                    let (_, key) = Keyring::update(&path, &opener, |ring| ring.rotate(now)).unwrap();
                    current = key.id.as_str().to_owned();
                    names.push(current.clone());
                }
                Change::Stage => {
                    let (_, key) = Keyring::update(&path, &opener, |ring| ring.stage(now)).unwrap();
                    names.push(key.id.as_str().to_owned());
                }
                Change::Activate(which) => {
                    let which = which.map(|which| which.get(&before).0.clone());
                    let staged: Vec<_> = before.iter().filter(|(_, state)| *state == State::Staged).collect();
                    let activated = Keyring::update(&path, &opener, |ring| ring.activate(which.as_deref(), now));
                    match (which, staged.as_slice()) {
                        (Some(id), _) => { activated.unwrap(); current = id; }
                        (None, [only]) => { activated.unwrap(); current = only.0.clone(); }
                        (None, []) => prop_assert!(matches!(activated, Err(Error::NothingStaged))),
                        (None, several) => {
                            let expected = several.len();
                            let is_refused = matches!(activated, Err(Error::SeveralStaged { count }) if count == expected);
                            prop_assert!(is_refused);
                        }
                    }
                }
                Change::Retire(which) => {
                    let id = which.get(&before).0.clone();
                    let retired = Keyring::update(&path, &opener, |ring| ring.retire(&id, now));
                    if id == current {
                        let is_refused = matches!(retired, Err(Error::CurrentKey { .. }));
                        prop_assert!(is_refused);
                    } else {
                        retired.unwrap();
                    }
                }
            }
            let after = keyring(&path);
            let are_current: Vec<_> =
                states(&after).into_iter().filter(|(_, state)| *state == State::Current).map(|(id, _)| id).collect();
            prop_assert_eq!(&are_current, std::slice::from_ref(&current));
            let mut found: Vec<_> = states(&after).into_iter().map(|(id, _)| id).collect();
            found.extend(after.ring().retired().iter().map(|key| key.id.as_str().to_owned()));
            found.sort();
            let mut expected = names.clone();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn nesting_is_no_recursion() {
    for open in ["[", "{\"format\":", "{\"content\":{\"keys\":[{\"id\":["] {
        let text = open.repeat(1024 * 1024 / open.len());
        assert!(matches!(Document::parse(text.as_bytes()), Err(Error::Malformed { .. })), "{open}");
    }
}

/// Each is a way to say something else than what is authenticated, or than what a person reads.
#[test]
fn ambiguous_files_are_refused() {
    let plain = String::from_utf8(VECTORS[0].clone()).unwrap();
    let sealed = String::from_utf8(VECTORS[1].clone()).unwrap();
    let refused = [
        ("two formats", plain.replacen("{", "{\"format\": \"atrest-keyring\",", 1)),
        ("two versions", plain.replacen("{", "{\"version\": 1,", 1)),
        ("an unknown field", plain.replacen("{", "{\"comment\": \"\",", 1)),
        ("an unknown field of a key", plain.replacen("\"id\"", "\"note\": 1, \"id\"", 1)),
        ("an unknown field of the seal", sealed.replacen("\"kdf\"", "\"note\": 1, \"kdf\"", 1)),
        ("both", sealed.replacen("{", "{\"content\": {\"keys\": [], \"retired\": []},", 1)),
        ("neither", "{\"format\":\"atrest-keyring\",\"version\":1,\"seal\":\"none\"}".to_owned()),
        ("another derivation", sealed.replacen("argon2id", "argon2i", 1)),
        ("another seal", plain.replacen("\"none\"", "\"rot13\"", 1)),
        ("another state", plain.replacen("\"staged\"", "\"retired\"", 1)),
        ("a time without a zone", plain.replacen("2026-01-31T10:00:00Z", "2026-01-31T10:00:00", 1)),
        ("something behind it", format!("{plain}{plain}")),
    ];
    for (what, text) in refused {
        assert!(text != plain && text != sealed, "{what}");
        let error = Document::parse(text.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. } | Error::Invalid(_)), "{what}: {error}");
    }
}
