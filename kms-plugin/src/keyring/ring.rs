use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::kek::Kek;
use super::{Error, KeyId};

/// The most keys of a keyring.
const MAX_KEYS: usize = 1024;
/// The most retired keys that are remembered.
const MAX_RETIRED: usize = 4096;
/// How long a key is kept that has stopped encrypting. kube-apiserver asks for the current key once a minute, and if that fails goes on
/// writing by the one before for three minutes.
const SETTLING: Duration = Duration::minutes(10);

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Decrypts, so that every plugin knows it before one encrypts by it.
    Staged,
    /// Encrypts and decrypts. There is one.
    Current,
    /// Decrypts what it encrypted before.
    DecryptOnly,
}

impl State {
    /// As it is in the file and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Current => "current",
            Self::DecryptOnly => "decrypt-only",
        }
    }
}

/// A key and what is known of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) id: KeyId,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created: OffsetDateTime,
    pub(crate) state: State,
    /// When it stopped encrypting. Files of the first release do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub(crate) deactivated: Option<OffsetDateTime>,
    #[serde(rename = "key")]
    pub(crate) kek: Kek,
}

/// A key as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its name.
    pub id: KeyId,
    /// When it was made.
    pub created: OffsetDateTime,
    /// What it does.
    pub state: State,
    /// When it stopped encrypting, where that is known.
    pub deactivated: Option<OffsetDateTime>,
}

/// A key that was removed. Its name stays, so that no other key gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retired {
    /// Its name.
    pub id: KeyId,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created: OffsetDateTime,
    /// When it was removed.
    #[serde(with = "time::serde::rfc3339")]
    pub retired: OffsetDateTime,
}

impl Retired {
    /// The day and time of removal, as in RFC 3339.
    #[must_use]
    pub fn when(&self) -> String {
        rfc3339(self.retired)
    }
}

/// Several keys, of which one is current; all names differ, those of retired keys among them.
#[derive(Debug)]
pub struct Ring {
    keys: Vec<Entry>,
    retired: Vec<Retired>,
}

impl Ring {
    /// A keyring with one new key.
    pub(crate) fn generate(now: OffsetDateTime) -> Result<Self, Error> {
        let mut ring = Self { keys: Vec::new(), retired: Vec::new() };
        ring.push(State::Current, now)?;
        Ok(ring)
    }

    /// What was read, if it is a keyring.
    pub(crate) fn new(keys: Vec<Entry>, retired: Vec<Retired>) -> Result<Self, Error> {
        if keys.len() > MAX_KEYS || retired.len() > MAX_RETIRED {
            return Err(Error::Full);
        }
        if keys.iter().filter(|key| key.state == State::Current).count() != 1 {
            return Err(Error::Invalid("it does not have exactly one current key"));
        }
        let mut ids: Vec<_> = keys.iter().map(|key| &key.id).chain(retired.iter().map(|key| &key.id)).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::Invalid("two of its keys have the same ID"));
        }
        Ok(Self { keys, retired })
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.keys
    }

    /// The keys, in the order in which they were made.
    pub fn keys(&self) -> impl Iterator<Item = KeyInfo> {
        self.keys.iter().map(Entry::info)
    }

    /// The retired keys.
    #[must_use]
    pub fn retired(&self) -> &[Retired] {
        &self.retired
    }

    /// The key that encrypts.
    ///
    /// # Errors
    ///
    /// Never: a keyring has one.
    pub(crate) fn current(&self) -> Result<&Entry, Error> {
        self.keys
            .iter()
            .find(|key| key.state == State::Current)
            .ok_or(Error::Invalid("it does not have exactly one current key"))
    }

    pub(crate) fn get(&self, key_id: &str) -> Option<&Entry> {
        self.keys.iter().find(|key| key.id.as_str() == key_id)
    }

    pub(crate) fn get_retired(&self, key_id: &str) -> Option<&Retired> {
        self.retired.iter().find(|key| key.id.as_str() == key_id)
    }

    /// Makes a new key that decrypts, and does not encrypt yet.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub fn stage(&mut self, now: OffsetDateTime) -> Result<KeyInfo, Error> {
        self.push(State::Staged, now)
    }

    /// Makes a new key that encrypts from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub fn rotate(&mut self, now: OffsetDateTime) -> Result<KeyInfo, Error> {
        let new = self.push(State::Staged, now)?;
        self.make_current(&new.id, now);
        Ok(KeyInfo { state: State::Current, ..new })
    }

    /// Lets a key encrypt that every plugin knows: that one, or else the only one that is staged.
    ///
    /// # Errors
    ///
    /// When there is no such key, or it is not clear which.
    pub fn activate(&mut self, key_id: Option<&str>, now: OffsetDateTime) -> Result<KeyInfo, Error> {
        let id = match key_id {
            Some(key_id) => self.find(key_id)?.id.clone(),
            None => {
                let mut staged = self.keys.iter().filter(|key| key.state == State::Staged);
                match (staged.next(), staged.count()) {
                    (None, _) => return Err(Error::NothingStaged),
                    (Some(key), 0) => key.id.clone(),
                    (Some(_), others) => return Err(Error::SeveralStaged { count: others.saturating_add(1) }),
                }
            }
        };
        self.make_current(&id, now);
        Ok(self.find(id.as_str())?.info())
    }

    /// Removes a key, and remembers its name.
    ///
    /// # Errors
    ///
    /// When there is no such key, or it is the current one.
    pub fn retire(&mut self, key_id: &str, now: OffsetDateTime) -> Result<Retired, Error> {
        let key = self.retirable(key_id)?;
        if self.retired.len() >= MAX_RETIRED {
            return Err(Error::Full);
        }
        let retired = Retired { id: key.id, created: key.created, retired: to_the_second(now) };
        self.keys.retain(|key| key.id != retired.id);
        self.retired.push(retired.clone());
        Ok(retired)
    }

    /// A key that can be retired as far as the keyring knows.
    ///
    /// # Errors
    ///
    /// When there is no such key, or it is the current one.
    pub fn retirable(&self, key_id: &str) -> Result<KeyInfo, Error> {
        let key = self.find(key_id)?;
        if key.state == State::Current {
            return Err(Error::CurrentKey { key_id: key_id.to_owned() });
        }
        Ok(key.info())
    }

    /// Whether no API server writes by a key any more that has stopped encrypting.
    ///
    /// # Errors
    ///
    /// [`Error::Settling`], with the time that it takes.
    pub fn check_settled(&self, key_id: &str, now: OffsetDateTime) -> Result<(), Error> {
        let since = self.find(key_id).ok().and_then(|key| key.deactivated);
        let left = since.map_or(Duration::ZERO, |since| SETTLING - (now - since));
        if left.is_positive() {
            let seconds = left.whole_seconds().unsigned_abs().saturating_add(1);
            return Err(Error::Settling { key_id: key_id.to_owned(), seconds });
        }
        Ok(())
    }

    /// The key with an ID, or with the hash of one as Kubernetes' metrics show it.
    fn find(&self, key_id: &str) -> Result<&Entry, Error> {
        if let Some(key) = self.keys.iter().find(|key| key.id.hash() == key_id) {
            return Ok(key);
        }
        let key_id = key_id.to_owned();
        match (self.get(&key_id), self.get_retired(&key_id)) {
            (Some(key), _) => Ok(key),
            (None, Some(retired)) => Err(Error::Retired { key_id, when: retired.when() }),
            (None, None) => Err(Error::UnknownKey { key_id }),
        }
    }

    fn push(&mut self, state: State, now: OffsetDateTime) -> Result<KeyInfo, Error> {
        if self.keys.len() >= MAX_KEYS {
            return Err(Error::Full);
        }
        let id = KeyId::generate(now)?;
        if self.get(id.as_str()).is_some() || self.get_retired(id.as_str()).is_some() {
            // 64 bits that were random before.
            return Err(Error::Random);
        }
        let entry = Entry { id, created: to_the_second(now), state, deactivated: None, kek: Kek::generate()? };
        let info = entry.info();
        self.keys.push(entry);
        Ok(info)
    }

    fn make_current(&mut self, id: &KeyId, now: OffsetDateTime) {
        for key in &mut self.keys {
            if key.id == *id {
                key.state = State::Current;
                key.deactivated = None;
            } else if key.state == State::Current {
                key.state = State::DecryptOnly;
                key.deactivated = Some(to_the_second(now));
            }
        }
    }
}

impl Entry {
    fn info(&self) -> KeyInfo {
        KeyInfo { id: self.id.clone(), created: self.created, state: self.state, deactivated: self.deactivated }
    }
}

/// As RFC 3339 has it; the year is of four digits, since it was parsed from such a text or is the clock's.
#[must_use]
pub fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.unix_timestamp().to_string())
}

fn to_the_second(time: OffsetDateTime) -> OffsetDateTime {
    time.replace_nanosecond(0).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const DAY_1: OffsetDateTime = datetime!(2026-01-31 10:00:00.5 UTC);
    const DAY_2: OffsetDateTime = datetime!(2026-02-01 10:00:00 UTC);

    fn states(ring: &Ring) -> Vec<State> {
        ring.keys().map(|key| key.state).collect()
    }

    #[test]
    fn a_new_key_takes_over_from_the_current_one() {
        let mut ring = Ring::generate(DAY_1).unwrap();
        let first = ring.keys().next().unwrap();
        assert_eq!((rfc3339(first.created), first.state), ("2026-01-31T10:00:00Z".to_owned(), State::Current));
        let second = ring.rotate(DAY_2).unwrap();
        assert_eq!(states(&ring), [State::DecryptOnly, State::Current]);
        assert_eq!(ring.current().unwrap().id, second.id);
        assert_ne!(ring.entries()[0].kek, ring.entries()[1].kek);
    }

    #[test]
    fn a_staged_key_encrypts_when_it_is_activated() {
        let mut ring = Ring::generate(DAY_1).unwrap();
        let first = ring.keys().next().unwrap().id;
        let staged = ring.stage(DAY_2).unwrap();
        assert_eq!(states(&ring), [State::Current, State::Staged]);
        assert_eq!(ring.activate(None, DAY_2).unwrap(), KeyInfo { state: State::Current, ..staged });
        assert_eq!(states(&ring), [State::DecryptOnly, State::Current]);
        // And back.
        ring.activate(Some(first.as_str()), DAY_2).unwrap();
        assert_eq!(states(&ring), [State::Current, State::DecryptOnly]);
        // The old one is not staged: it has encrypted.
        assert!(matches!(ring.activate(None, DAY_2), Err(Error::NothingStaged)));
    }

    #[test]
    fn of_several_staged_keys_one_has_to_be_named() {
        let mut ring = Ring::generate(DAY_1).unwrap();
        ring.stage(DAY_1).unwrap();
        let second = ring.stage(DAY_2).unwrap().id;
        assert!(matches!(ring.activate(None, DAY_2), Err(Error::SeveralStaged { count: 2 })));
        ring.activate(Some(second.as_str()), DAY_2).unwrap();
        assert_eq!(states(&ring), [State::DecryptOnly, State::Staged, State::Current]);
    }

    #[test]
    fn a_retired_key_is_remembered_and_the_current_one_is_not_retired() {
        let mut ring = Ring::generate(DAY_1).unwrap();
        let first = ring.keys().next().unwrap().id;
        assert!(
            matches!(ring.retire(first.as_str(), DAY_2), Err(Error::CurrentKey { key_id }) if key_id == first.as_str())
        );
        ring.rotate(DAY_2).unwrap();
        let retired = ring.retire(first.as_str(), DAY_2).unwrap();
        assert_eq!(retired.when(), "2026-02-01T10:00:00Z");
        assert_eq!(ring.retired(), std::slice::from_ref(&retired));
        assert!(ring.get(first.as_str()).is_none());
        assert!(
            matches!(ring.retire(first.as_str(), DAY_2), Err(Error::Retired { when, .. }) if when == "2026-02-01T10:00:00Z")
        );
        assert!(matches!(ring.activate(Some("other"), DAY_2), Err(Error::UnknownKey { key_id }) if key_id == "other"));
    }

    /// kube-apiserver goes on writing by the old key for minutes after a rotation, and what it wrote was lost with the key.
    #[test]
    fn a_key_is_settled_ten_minutes_after_it_stopped_encrypting() {
        let mut ring = Ring::generate(DAY_1).unwrap();
        let first = ring.keys().next().unwrap().id;
        ring.check_settled(first.as_str(), DAY_1).unwrap();
        let second = ring.rotate(DAY_2).unwrap().id;
        assert_eq!(ring.keys().map(|key| key.deactivated).collect::<Vec<_>>(), [Some(DAY_2), None]);
        let left = |ring: &Ring, id: &KeyId, seconds: i64| match ring
            .check_settled(id.as_str(), DAY_2 + Duration::seconds(seconds))
        {
            Ok(()) => 0,
            Err(Error::Settling { seconds, .. }) => seconds,
            Err(other) => panic!("{other}"),
        };
        assert_eq!([0, 1, 599, 600, 601].map(|at| left(&ring, &first, at)), [601, 600, 2, 0, 0]);
        // One that encrypts again has stopped when it stops again.
        ring.activate(Some(first.as_str()), DAY_2 + Duration::hours(1)).unwrap();
        let hour_later = DAY_2 + Duration::hours(1);
        assert_eq!(ring.keys().map(|key| key.deactivated).collect::<Vec<_>>(), [None, Some(hour_later)]);
        assert_eq!(left(&ring, &second, 3600 + 300), 301);
        // To let the current one encrypt changes nothing.
        ring.activate(Some(first.as_str()), DAY_2 + Duration::hours(2)).unwrap();
        assert_eq!(ring.keys().map(|key| key.deactivated).collect::<Vec<_>>(), [None, Some(hour_later)]);
        // A key that was only staged has never encrypted.
        let staged = ring.stage(DAY_2).unwrap().id;
        assert_eq!(left(&ring, &staged, 0), 0);
    }

    #[test]
    fn what_is_no_keyring() {
        let entry = |id: &str, state| Entry {
            id: KeyId::parse(id).unwrap(),
            created: DAY_1,
            state,
            deactivated: None,
            kek: Kek::generate().unwrap(),
        };
        let gone = |id: &str| Retired { id: KeyId::parse(id).unwrap(), created: DAY_1, retired: DAY_2 };
        let none = "it does not have exactly one current key";
        let twice = "two of its keys have the same ID";
        for (keys, retired, expected) in [
            (vec![], vec![], none),
            (vec![entry("a", State::Staged)], vec![], none),
            (vec![entry("a", State::Current), entry("b", State::Current)], vec![], none),
            (vec![entry("a", State::Current), entry("a", State::Staged)], vec![], twice),
            (vec![entry("a", State::Current)], vec![gone("a")], twice),
            (vec![entry("a", State::Current)], vec![gone("b"), gone("b")], twice),
        ] {
            let error = Ring::new(keys, retired).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(matches!(Ring::new(vec![], vec![gone("a"); MAX_RETIRED + 1]), Err(Error::Full)));
    }
}
