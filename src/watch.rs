//! Shows changes of etcd as they happen, decrypted: what an API server's watch shows, with the key that each value is stored under, also
//! while no API server runs, and of what no API server can read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::get::{self, Read, SecretData, Shown};
use crate::object::{Object, changes};
use crate::report::{ChangeType, WatchReport, WatchRow};
use crate::source::{Source as _, StoredValue};
use crate::storage::{Client, Error, Event, EventKind, KeyRange, Ranges, WatchOptions, Watched};
use crate::transformer::envelope::{DekResolver, Wanted};
use crate::verify::Judge;

/// What to watch, and from when.
#[derive(Debug)]
pub struct Options<'a> {
    /// Which objects, and how they are shown.
    pub get: get::Options<'a>,
    /// Only changes after this revision; those that come from now on, when there is none.
    pub since: Option<i64>,
    /// Shows what is there first.
    pub list_first: bool,
    /// When changes are not in etcd's history any more, what is there is shown in their place; otherwise that is the end.
    pub relist: bool,
    /// Shows how far etcd is when nothing changes.
    pub bookmarks: bool,
    /// Ends after so many changes.
    pub max_events: Option<u64>,
    /// Ends after so long.
    pub time: Option<Duration>,
}

/// An etcd that is watched.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The client.
    pub client: Client,
    /// What rows call it, where there are several.
    pub name: Option<String>,
}

/// Why watching ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Changes are not in etcd's history any more. The operator can begin with what is there.
    #[error("changes after revision {since} are compacted away; what is there begins at revision {compacted}")]
    Compacted {
        /// After which revision changes were wanted.
        since: i64,
        /// The first revision that is still there.
        compacted: i64,
    },
    /// The revision is not there yet.
    #[error("revision {since} is in the future: etcd is at {current}")]
    Future {
        /// After which revision changes were wanted.
        since: i64,
        /// Where etcd is.
        current: i64,
    },
    /// What etcd says.
    #[error(transparent)]
    Etcd(#[from] Error),
}

/// How many batches of changes wait to be shown; then etcd is read no further.
const WAITING: usize = 16;
/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(200);

/// What is learned of one range of keys.
enum Message {
    Events(Vec<Event>),
    /// What is there now, of which changes may not be known.
    Listed {
        values: Vec<StoredValue>,
        known: Vec<bool>,
    },
    /// Keys that are not there any more.
    Gone {
        keys: Vec<Vec<u8>>,
        revision: i64,
    },
    Relisted {
        since: i64,
        revision: i64,
    },
    Progress(i64),
    /// Whether there is a connection, from now on.
    Watching(Arc<AtomicBool>),
}

/// Of which etcd, and of which range of keys.
type Sent = ((usize, usize), Result<Message, WatchError>);

/// Hands each change to `visit`, in the order of the revisions of each range of keys: of each prefix of API servers, in each etcd.
///
/// # Errors
///
/// [`WatchError::Compacted`] unless it is to be relisted, [`WatchError::Future`], and what etcd refuses. While etcd is not available it is waited for.
pub async fn watch(
    backends: &[Backend],
    kms: &impl DekResolver,
    options: &Options<'_>,
    is_here: &(dyn Fn(usize, &[u8]) -> bool + Sync),
    stop: &AtomicBool,
    visit: &mut (dyn FnMut(WatchRow) + Send),
) -> Result<WatchReport, WatchError> {
    let (sender, mut messages) = mpsc::channel::<Sent>(WAITING);
    let mut tasks = JoinSet::new();
    let prefixes = options.get.selection.prefixes().unwrap_or_default();
    for (backend, Backend { client, .. }) in backends.iter().enumerate() {
        for (range, prefix) in prefixes.iter().enumerate() {
            let follow = Follow {
                client: client.clone(),
                prefix: prefix.clone(),
                list_first: options.list_first,
                relist: options.relist,
                bookmarks: options.bookmarks,
                known: BTreeSet::new(),
                sender: sender.clone(),
                place: (backend, range),
            };
            tasks.spawn(follow.run(options.since));
        }
    }
    drop(sender);
    let deadline = options.time.map(|time| Instant::now() + time);
    let report = WatchReport::default();
    let places = (0..backends.len()).flat_map(|backend| (0..prefixes.len()).map(move |range| (backend, range)));
    let mut watching = Watching {
        backends,
        options,
        salt: salt(),
        relisted: BTreeSet::new(),
        progress: places.map(|place| (place, 0)).collect(),
        connected: BTreeMap::new(),
        report,
        visit,
    };
    loop {
        let until = deadline.map_or_else(|| Instant::now() + LOOK, |deadline| deadline.min(Instant::now() + LOOK));
        let sent = tokio::time::timeout_at(until, messages.recv()).await;
        let is_over = stop.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match sent {
            Ok(Some((place, message))) => watching.take(place, message?, kms, is_here, stop).await,
            Ok(None) => return Ok(watching.finish()),
            Err(_) => {}
        }
        if is_over || watching.is_enough() {
            return Ok(watching.finish());
        }
    }
}

/// For comparing the data of Secrets, and for nothing that is shown.
fn salt() -> [u8; 32] {
    let mut salt = [0; 32];
    // Without randomness, equal data is still equal; the hashes are not shown.
    _ = getrandom::fill(&mut salt);
    salt
}

/// Follows one range of keys.
struct Follow {
    client: Client,
    prefix: Vec<u8>,
    list_first: bool,
    relist: bool,
    bookmarks: bool,
    /// The keys that are there, as far as they are needed to tell which have gone.
    known: BTreeSet<Vec<u8>>,
    sender: mpsc::Sender<Sent>,
    place: (usize, usize),
}

/// Nobody listens any more.
struct Gone;

impl Follow {
    async fn run(mut self, since: Option<i64>) {
        if let Err(error) = self.follow(since).await {
            _ = self.sender.send((self.place, Err(error))).await;
        }
    }

    async fn send(&self, message: Message) -> Result<(), Gone> {
        self.sender.send((self.place, Ok(message))).await.map_err(|_| Gone)
    }

    async fn follow(&mut self, since: Option<i64>) -> Result<(), WatchError> {
        let mut after = match since {
            Some(since) => {
                let current = self.client.get_at(&self.prefix, 0).await?.revision;
                if since > current {
                    // etcd would wait, and not say why.
                    return Err(WatchError::Future { since, current });
                }
                if self.relist {
                    self.learn_keys(since).await?;
                }
                since
            }
            None => self.begin().await?,
        };
        loop {
            let watch_options = WatchOptions {
                start_revision: after.saturating_add(1),
                previous: true,
                progress_notify: self.bookmarks,
            };
            let mut watch = self.client.watch(KeyRange::prefix(&self.prefix), watch_options);
            let connected = Message::Watching(watch.connected());
            if self.send(connected).await.is_err() {
                return Ok(());
            }
            let compacted = loop {
                let message = match watch.next().await {
                    Ok(Watched::Events(events)) => {
                        self.note(&events);
                        Message::Events(events)
                    }
                    Ok(Watched::Progress { revision }) => Message::Progress(revision),
                    Err(Error::Compacted) => break watch.compact_revision(),
                    Err(Error::WentBack { .. }) if self.relist => break 0,
                    Err(error) => return Err(error.into()),
                };
                if self.send(message).await.is_err() {
                    return Ok(());
                }
            };
            let since = watch.next_revision() - 1;
            if !self.relist {
                return Err(WatchError::Compacted { since, compacted });
            }
            match self.list_again(since).await? {
                Ok(revision) => after = revision,
                Err(Gone) => return Ok(()),
            }
        }
    }

    /// Learns which keys there were at a revision, as far as that is known still.
    async fn learn_keys(&mut self, revision: i64) -> Result<(), WatchError> {
        let pages = Ranges::of_prefixes(&self.client, std::slice::from_ref(&self.prefix));
        let mut pages = pages.keys_only().at_revision(Some(revision));
        while let Some(page) = pages.next_page().await? {
            self.known.extend(page.values.into_iter().map(|value| value.key));
        }
        if !pages.is_consistent() {
            // It is compacted: these were read at a later one.
            self.known.clear();
        }
        Ok(())
    }

    /// Learns what is there, as far as that is wanted, and the revision at which it is.
    async fn begin(&mut self) -> Result<i64, WatchError> {
        let mut pages = Ranges::of_prefixes(&self.client, std::slice::from_ref(&self.prefix));
        if !self.list_first {
            if !self.relist {
                return Ok(self.client.get_at(&self.prefix, 0).await?.revision);
            }
            pages = pages.keys_only();
        }
        let mut first = None;
        while let Some(page) = pages.next_page().await? {
            // Compacted while it is read, it goes on at a later revision: what was changed in between is to be seen all the same.
            first.get_or_insert(page.revision);
            if self.relist {
                self.known.extend(page.values.iter().map(|value| value.key.clone()));
            }
            if self.list_first {
                let known = vec![false; page.values.len()];
                if self.send(Message::Listed { values: page.values, known }).await.is_err() {
                    break;
                }
            }
        }
        // Of an empty range too the revision is known at which it was empty.
        Ok(first.or_else(|| pages.revision()).unwrap_or(0))
    }

    fn note(&mut self, events: &[Event]) {
        if !self.relist {
            return;
        }
        for event in events {
            if event.kind == EventKind::Deleted {
                self.known.remove(&event.value.key);
            } else if !self.known.contains(&event.value.key) {
                self.known.insert(event.value.key.clone());
            }
        }
    }

    /// Shows what is there and is newer than what was seen, and what has gone.
    async fn list_again(&mut self, since: i64) -> Result<Result<i64, Gone>, WatchError> {
        let revision = self.client.get_at(&self.prefix, 0).await?.revision;
        if self.send(Message::Relisted { since, revision }).await.is_err() {
            return Ok(Err(Gone));
        }
        let mut pages =
            Ranges::of_prefixes(&self.client, std::slice::from_ref(&self.prefix)).at_revision(Some(revision));
        let mut there = BTreeSet::new();
        while let Some(mut page) = pages.next_page().await? {
            there.extend(page.values.iter().map(|value| value.key.clone()));
            // In a store that has gone back, nothing that was seen says anything.
            page.values.retain(|value| value.mod_revision > since || revision < since);
            let known = page.values.iter().map(|value| self.known.contains(&value.key)).collect();
            if self.send(Message::Listed { values: page.values, known }).await.is_err() {
                return Ok(Err(Gone));
            }
        }
        let keys = self.known.difference(&there).cloned().collect();
        self.known = there;
        if self.send(Message::Gone { keys, revision }).await.is_err() {
            return Ok(Err(Gone));
        }
        // Also when some of it was read at a later one.
        Ok(Ok(revision))
    }
}

/// The state of a run.
struct Watching<'a> {
    backends: &'a [Backend],
    options: &'a Options<'a>,
    salt: [u8; 32],
    /// Of which etcd changes are missing after which revision, as was told.
    relisted: BTreeSet<(usize, i64)>,
    /// How far each range of keys of each etcd is.
    progress: BTreeMap<(usize, usize), i64>,
    connected: BTreeMap<(usize, usize), Arc<AtomicBool>>,
    report: WatchReport,
    visit: &'a mut (dyn FnMut(WatchRow) + Send),
}

impl Watching<'_> {
    fn is_enough(&self) -> bool {
        self.options.max_events.is_some_and(|max| self.report.events >= max)
    }

    /// Whoever is not connected does not know whether anything has changed.
    fn finish(mut self) -> WatchReport {
        self.report.connected = self.connected.values().all(|connected| connected.load(Ordering::Relaxed));
        self.report
    }

    /// What one range of keys is at, and the bookmark that this makes: all ranges of an etcd have come so far.
    fn advance(&mut self, place: (usize, usize), revision: i64) -> Option<i64> {
        let of_etcd = |progress: &BTreeMap<(usize, usize), i64>| {
            progress.range((place.0, 0)..=(place.0, usize::MAX)).map(|(_, revision)| *revision).min()
        };
        let before = of_etcd(&self.progress);
        self.progress.insert(place, revision);
        of_etcd(&self.progress).filter(|now| Some(*now) > before && *now > 0)
    }

    async fn take(
        &mut self,
        place: (usize, usize),
        message: Message,
        kms: &impl DekResolver,
        is_here: &(dyn Fn(usize, &[u8]) -> bool + Sync),
        stop: &AtomicBool,
    ) {
        let backend = place.0;
        let wanted = |key: &[u8]| is_here(backend, key) && get::selects(&self.options.get, key);
        match message {
            Message::Events(mut events) => {
                let last = events.last().map_or(0, Event::revision);
                self.advance(place, last);
                events.retain(|event| wanted(&event.value.key));
                self.resolve(events.iter().flat_map(Event::values), kms, stop).await;
                events.iter().for_each(|event| self.show(backend, event));
            }
            Message::Listed { values, known } => {
                let listed: Vec<_> = values.into_iter().zip(known).filter(|(value, _)| wanted(&value.key)).collect();
                self.resolve(listed.iter().map(|(value, _)| value), kms, stop).await;
                for (value, known) in listed {
                    // What was there before is not known.
                    let kind = if known { EventKind::Modified } else { EventKind::Created };
                    self.show(backend, &Event { kind, value, previous: None });
                }
            }
            Message::Gone { mut keys, revision } => {
                keys.retain(|key| wanted(key));
                for key in keys {
                    let value = StoredValue {
                        key,
                        value: Vec::new(),
                        create_revision: 0,
                        mod_revision: revision,
                        version: 0,
                        lease: 0,
                    };
                    self.show(backend, &Event { kind: EventKind::Deleted, value, previous: None });
                }
            }
            Message::Relisted { since, revision } => {
                // Once for all ranges of keys that are watched.
                if !self.relisted.insert((backend, since)) {
                    return;
                }
                self.report.relisted += 1;
                let message =
                    format!("changes after revision {since} are compacted away: what is there at {revision} follows");
                self.mark(backend, ChangeType::Relisted, revision, message);
            }
            Message::Progress(revision) => {
                if let Some(revision) = self.advance(place, revision) {
                    self.mark(backend, ChangeType::Bookmark, revision, String::new());
                }
            }
            Message::Watching(connected) => _ = self.connected.insert(place, connected),
        }
    }

    async fn resolve<'v>(
        &self,
        values: impl Iterator<Item = &'v StoredValue>,
        kms: &impl DekResolver,
        stop: &AtomicBool,
    ) {
        let get = &self.options.get;
        let pairs = values.map(|value| (&value.key[..], &value.value[..]));
        let wanted = Wanted::by(get.transformers, &get.selection.layout, pairs);
        if !wanted.is_empty() {
            kms.resolve(wanted, stop).await;
        }
    }

    fn name_of(&self, backend: usize) -> Option<String> {
        self.backends.get(backend)?.name.clone()
    }

    /// A row that is no change.
    fn mark(&mut self, backend: usize, change: ChangeType, revision: i64, message: String) {
        let etcd = self.name_of(backend);
        (self.visit)(WatchRow {
            change,
            revision,
            etcd,
            value: None,
            class: None,
            message,
            previous_key: None,
            changed: None,
            object: None,
        });
    }

    fn show(&mut self, backend: usize, event: &Event) {
        if self.is_enough() {
            return;
        }
        let get = &self.options.get;
        let judge = Judge::new(get.transformers, &get.selection.layout);
        let is_deletion = event.kind == EventKind::Deleted;
        let current = (!is_deletion).then(|| get::read(&event.value, get));
        let previous = event.previous.as_ref().map(|value| get::read(value, get));
        // Only what was deleted is shown as it was.
        let (change, shown, stored) = match (event.kind, &current, &previous) {
            (EventKind::Created, Some(Read::Object(..) | Read::Unreadable(_)), _) => {
                (ChangeType::Added, current, &event.value)
            }
            (EventKind::Modified, Some(Read::Other), Some(Read::Object(..))) => {
                (ChangeType::Deleted, previous, event.previous.as_ref().unwrap_or(&event.value))
            }
            (EventKind::Modified, Some(Read::Other), _) | (EventKind::Created, _, _) => return,
            (EventKind::Modified, _, Some(Read::Other)) => (ChangeType::Added, current, &event.value),
            (EventKind::Modified, ..) => (ChangeType::Modified, current, &event.value),
            (EventKind::Deleted, _, Some(Read::Other)) => return,
            (EventKind::Deleted, ..) => {
                (ChangeType::Deleted, previous, event.previous.as_ref().unwrap_or(&event.value))
            }
        };
        let judged = judge.judge(stored).row;
        let (class, message, object) = match shown {
            Some(Read::Object(got, finding)) => {
                let mut object = got.object;
                object.set_resource_version(event.revision());
                let found = finding.map_or((judged.class, String::new()), |finding| (finding.class, finding.message));
                (Some(found.0), found.1, Some(object.value))
            }
            Some(Read::Unreadable(row)) if row.message.is_empty() => {
                // What the other values under the key would tell.
                let message =
                    "authentication failed: another key wrote it, or it is damaged; `atrest verify` tells which";
                (Some(row.class), message.to_owned(), None)
            }
            Some(Read::Unreadable(row)) => (Some(row.class), row.message, None),
            // What has gone while nobody looked.
            _ => (None, String::new(), None),
        };
        self.report.events += 1;
        self.report.unreadable += u64::from(class.is_some_and(|class| !class.is_readable()));
        let previous_key = event
            .previous
            .as_ref()
            .filter(|_| !is_deletion)
            .map(|previous| judge.judge(previous).row.value.label())
            .filter(|label| *label != judged.value.label());
        let changed = (change == ChangeType::Modified).then(|| self.changed(event)).flatten();
        let etcd = self.name_of(backend);
        (self.visit)(WatchRow {
            change,
            revision: event.revision(),
            etcd,
            value: Some(judged.value),
            class,
            message,
            previous_key,
            changed,
            object,
        });
    }

    /// Where an object is another than it was, also within what is not shown of it.
    fn changed(&self, event: &Event) -> Option<Vec<String>> {
        let previous = event.previous.as_ref()?;
        let get = &self.options.get;
        let shown = Shown { secrets: SecretData::Hashed(self.salt), ..get.shown };
        let everything = |_: &Object| true;
        let hashed = get::Options {
            transformers: get.transformers,
            selection: get.selection,
            source: String::new(),
            name: None,
            wants: &everything,
            shown,
        };
        let object = |value| match get::read(value, &hashed) {
            Read::Object(got, _) => Some(got.object),
            _ => None,
        };
        let (before, after) = (object(previous)?, object(&event.value)?);
        let paths = changes(&before.value, &after.value).into_iter().map(|change| change.path);
        Some(paths.filter(|path| path != ".metadata.resourceVersion").collect())
    }
}

impl Event {
    /// What has to be opened of it.
    fn values(&self) -> impl Iterator<Item = &StoredValue> {
        let value = Some(&self.value).filter(|_| self.kind != EventKind::Deleted);
        value.into_iter().chain(&self.previous)
    }
}

/// The backends of a list of clients, of which only several have names.
#[must_use]
pub fn backends(clients: Vec<(Client, String)>) -> Arc<[Backend]> {
    let several = clients.len() > 1;
    clients.into_iter().map(|(client, name)| Backend { client, name: several.then_some(name) }).collect()
}
