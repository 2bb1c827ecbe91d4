use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{EventType, WatchClient, WatchStream};

use super::client::{Client, MAX_ANSWER_BYTES, kv_client};
use super::dial::Leader;
use super::error::Error;
use super::metrics::Method;
use super::range::KeyRange;
use crate::source::StoredValue;

/// What to watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchOptions {
    /// The first revision that is wanted, 0 for what comes from now on.
    pub start_revision: i64,
    /// Whether each change is to come with what was there before.
    pub previous: bool,
    /// Whether etcd is to say from time to time how far it is when nothing changes.
    pub progress_notify: bool,
}

/// One change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key as it is now. Of a deletion only the key is told, and the revision of the deletion.
    pub value: StoredValue,
    /// What was there before, where that was asked for and etcd still has it.
    pub previous: Option<StoredValue>,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was not there before.
    Created,
    /// It was there before.
    Modified,
    /// It is gone.
    Deleted,
}

impl Event {
    fn new(event: etcd_client::Event) -> Option<Self> {
        let etcd_client::proto::PbEvent { r#type, kv, prev_kv } = event.0;
        let of = |kv: etcd_client::proto::PbKeyValue| StoredValue {
            key: kv.key,
            value: kv.value,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
        };
        let value = of(kv?);
        let kind = if r#type == EventType::Delete as i32 {
            EventKind::Deleted
        } else if value.create_revision == value.mod_revision {
            EventKind::Created
        } else {
            EventKind::Modified
        };
        Some(Self { kind, value, previous: prev_kv.map(of) })
    }

    /// The revision of the change.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.value.mod_revision
    }
}

/// What a watch yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// Changes, in the order of their revisions. Those of one revision are together.
    Events(Vec<Event>),
    /// Everything up to this revision was yielded.
    Progress {
        /// The revision.
        revision: i64,
    },
}

/// A watch of etcd that goes on when the connection, or the member behind it, is lost: no change is left out, and none comes twice.
///
/// It has a connection of its own, so that whoever does not take his events holds up nobody else, and memory is bounded by what the
/// connection takes in: etcd keeps the rest.
pub struct Watch {
    client: Client,
    range: KeyRange,
    options: WatchOptions,
    stream: Option<WatchStream>,
    /// A connection that is being made. It is kept when the future that waits for it is dropped.
    opening: Option<Opening>,
    /// The first revision that was not yielded; 0 until it is known.
    next: i64,
    /// The highest revision that etcd is known to have had.
    seen: i64,
    /// Changes of a revision of which more may come: etcd cuts large answers.
    held: Vec<Event>,
    /// What is to be yielded next.
    ready: VecDeque<Watched>,
    /// What etcd said last of how far it is.
    progress: i64,
    /// Whether etcd was asked for that: then some releases answer before they have sent the events up to there.
    asked: bool,
    endpoint: usize,
    /// Before the next connection.
    pause: Duration,
    reconnects: u64,
    compacted: i64,
    connected: Arc<AtomicBool>,
}

type Opening = Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>>;

/// A watch that etcd has taken.
struct Opened {
    stream: WatchStream,
    response: etcd_client::WatchResponse,
    endpoint: usize,
    start: i64,
    /// The revision of the store.
    revision: i64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("range", &self.range).field("next", &self.next).finish_non_exhaustive()
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// For the first answer to the request for a watch.
const CREATE_PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// Watches a range of keys. Nothing is asked before the first event is waited for.
    #[must_use]
    pub fn watch(&self, range: KeyRange, options: WatchOptions) -> Watch {
        Watch {
            client: self.clone(),
            range,
            options,
            stream: None,
            opening: None,
            next: options.start_revision.max(0),
            seen: 0,
            held: Vec::new(),
            ready: VecDeque::new(),
            progress: 0,
            asked: false,
            endpoint: 0,
            pause: Duration::ZERO,
            reconnects: 0,
            compacted: 0,
            connected: Arc::default(),
        }
    }
}

impl Watch {
    /// The next changes. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Compacted`] when changes from the next revision on are not there any more, [`Watch::compact_revision`] then tells from
    /// which on they are; [`Error::WentBack`] when etcd was restored from before what was seen; and what etcd refuses. When it is not
    /// available it is asked again, for ever.
    pub async fn next(&mut self) -> Result<Watched, Error> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let Some(stream) = &mut self.stream else {
                self.connect().await?;
                continue;
            };
            match stream.message().await {
                Ok(Some(response)) => self.take(response)?,
                Ok(None) => self.lose("the stream has ended"),
                Err(error) => {
                    let error = self.client.shared.dialer.error(error);
                    if !error.is_transient() {
                        return Err(error);
                    }
                    self.lose(&error.to_string());
                }
            }
        }
    }

    /// Asks etcd to say how far it is, as soon as the events up to there were sent. Supported from etcd 3.4.25 and 3.5.8 on, and
    /// reliable from 3.4.31 and 3.5.13 on.
    ///
    /// # Errors
    ///
    /// Never when there is no connection: then the next one tells.
    pub async fn request_progress(&mut self) -> Result<(), Error> {
        self.asked = true;
        if let Some(stream) = &mut self.stream
            && let Err(error) = stream.request_progress().await
        {
            self.lose(&error.to_string());
        }
        Ok(())
    }

    /// The first revision that was not yielded yet; 0 before the watch has begun.
    #[must_use]
    pub const fn next_revision(&self) -> i64 {
        self.next
    }

    /// After [`Error::Compacted`], the first revision from which on there are changes.
    #[must_use]
    pub const fn compact_revision(&self) -> i64 {
        self.compacted
    }

    /// How often the connection was lost.
    #[must_use]
    pub const fn reconnects(&self) -> u64 {
        self.reconnects
    }

    /// Whether there is a connection now, for those who wait for changes elsewhere.
    #[must_use]
    pub fn connected(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.connected)
    }

    /// What was held is sent once more.
    fn lose(&mut self, why: &str) {
        tracing::warn!("the connection of a watch is lost, and made again: {why}");
        self.connected.store(false, Ordering::Relaxed);
        self.stream = None;
        self.held.clear();
        self.progress = 0;
        self.reconnects += 1;
        self.wait_longer();
    }

    /// What ends again and again is asked for ever more slowly.
    fn wait_longer(&mut self) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            None => {
                let opening = open(Begin {
                    client: self.client.clone(),
                    range: self.range.clone(),
                    options: self.options,
                    next: self.next,
                    seen: self.seen,
                    endpoint: self.endpoint,
                    pause: self.pause,
                });
                self.opening.insert(Box::pin(opening))
            }
        };
        let opened = opening.await;
        self.opening = None;
        match opened {
            Ok(Opened { stream, response, endpoint, start, revision }) => {
                (self.stream, self.endpoint, self.next) = (Some(stream), endpoint, start);
                self.seen = self.seen.max(revision);
                self.connected.store(true, Ordering::Relaxed);
                if self.reconnects > 0 {
                    tracing::info!(next = self.next, "a watch goes on");
                }
                self.take(response)
            }
            Err(error) if error.is_transient() && !self.client.is_interrupted() => {
                tracing::debug!(%error, "watching again");
                self.wait_longer();
                self.endpoint += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, response: etcd_client::WatchResponse) -> Result<(), Error> {
        let response = response.0;
        if let Some(metrics) = self.client.metrics() {
            metrics.received(Method::WATCH);
        }
        if response.canceled {
            self.stream = None;
            self.held.clear();
            self.connected.store(false, Ordering::Relaxed);
            let message = response.cancel_reason;
            if response.compact_revision > 0 || message.contains("compacted") {
                self.compacted = response.compact_revision;
                return Err(Error::Compacted);
            }
            if message.contains("permission denied") {
                return Err(Error::PermissionDenied);
            }
            self.lose(&message);
            return Ok(());
        }
        if response.created {
            return Ok(());
        }
        let revision = response.header.map_or(0, |header| header.revision);
        self.seen = self.seen.max(revision);
        self.pause = Duration::ZERO;
        if response.events.is_empty() && self.held.is_empty() {
            if !response.fragment && revision + 1 >= self.next {
                let sure = if self.asked { self.progress } else { revision };
                self.next = self.next.max(sure + 1);
                self.progress = revision;
                self.ready.push_back(Watched::Progress { revision });
            }
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.held);
        events.extend(response.events.into_iter().filter_map(|event| Event::new(etcd_client::Event(event))));
        if response.fragment {
            // The last revision may go on in the next part.
            let last = events.last().map_or(0, Event::revision);
            let whole = events.partition_point(|event| event.revision() < last);
            self.held = events.split_off(whole);
        }
        // Of what was yielded before the connection was lost, etcd has sent nothing: it began at the next revision.
        if let Some(last) = events.last() {
            self.next = last.revision() + 1;
            self.seen = self.seen.max(last.revision());
            self.ready.push_back(Watched::Events(events));
        }
        Ok(())
    }
}

/// What it takes to begin a watch.
struct Begin {
    client: Client,
    range: KeyRange,
    options: WatchOptions,
    next: i64,
    seen: i64,
    endpoint: usize,
    pause: Duration,
}

async fn open(begin: Begin) -> Result<Opened, Error> {
    let Begin { client, range, options, next, seen, endpoint, pause } = begin;
    tokio::time::sleep(pause).await;
    let dialer = &client.shared.dialer;
    let first = endpoint % dialer.options().endpoints.len();
    let (endpoint, connection) = dialer.dial(first, Leader::Required).await?;
    client.same_cluster(&connection).await?;
    // Linearizable, so that it is not behind anything that was seen; and kine does not tell when it takes a watch.
    let response = client.limited(Method::RANGE, kv_client(&connection).get(range.start(), None)).await?;
    let revision = response.header().map_or(0, etcd_client::ResponseHeader::revision);
    if revision < seen {
        return Err(Error::WentBack { seen, current: revision });
    }
    let start = if next == 0 { revision + 1 } else { next };
    let mut wanted = etcd_client::WatchOptions::new().with_range(range.end()).with_fragment();
    wanted = wanted.with_start_revision(start);
    if options.previous {
        wanted = wanted.with_prev_key();
    }
    if options.progress_notify {
        wanted = wanted.with_progress_notify();
    }
    let mut watches: WatchClient = connection.watch_client().max_decoding_message_size(MAX_ANSWER_BYTES);
    let counted = client.metrics().map(|metrics| metrics.call(Method::WATCH));
    let begun = tokio::time::timeout(CREATE_PATIENCE, async {
        let mut stream = watches.watch(range.start(), Some(wanted)).await?;
        Ok((stream.message().await?, stream))
    });
    match begun.await {
        Ok(Ok((Some(response), stream))) => Ok(Opened { stream, response, endpoint, start, revision }),
        Ok(Ok((None, _))) => Err(Error::Unavailable { message: "the watch has ended at once".to_owned() }),
        Ok(Err(error)) => {
            if let Some(counted) = counted {
                counted.finish(Some(&error));
            }
            Err(dialer.error(error))
        }
        Err(_) => Err(Error::Unavailable { message: "the watch does not begin".to_owned() }),
    }
}
