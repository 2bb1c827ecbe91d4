use std::collections::VecDeque;
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
    /// The first revision that was not yielded; 0 until it is known.
    next: i64,
    /// Changes of a revision of which more may come: etcd cuts large answers.
    held: Vec<Event>,
    /// What is to be yielded next.
    ready: VecDeque<Watched>,
    /// What etcd said last of how far it is.
    progress: i64,
    /// Whether etcd was asked for that: then some releases answer before they have sent the events up to there.
    asked: bool,
    endpoint: usize,
    pause: Duration,
    reconnects: u64,
    compacted: i64,
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
            next: options.start_revision,
            held: Vec::new(),
            ready: VecDeque::new(),
            progress: 0,
            asked: false,
            endpoint: 0,
            pause: FIRST_PAUSE,
            reconnects: 0,
            compacted: 0,
        }
    }
}

impl Watch {
    /// The next changes. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Compacted`] when changes from the next revision on are not there any more, [`Watch::compact_revision`] then tells from
    /// which on they are; and what etcd refuses. When it is not available it is asked again, for ever.
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

    /// What was held is sent once more.
    fn lose(&mut self, why: &str) {
        tracing::debug!(why, next = self.next, "a watch begins anew");
        self.stream = None;
        self.held.clear();
        self.reconnects += 1;
    }

    async fn connect(&mut self) -> Result<(), Error> {
        match self.open().await {
            Ok(()) => Ok(()),
            Err(error) if error.is_transient() && !self.client.is_interrupted() => {
                tracing::debug!(%error, "watching again");
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.endpoint += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        let dialer = &self.client.shared.dialer;
        let first = self.endpoint % dialer.options().endpoints.len();
        let (at, client) = dialer.dial(first, Leader::Required).await?;
        self.client.same_cluster(&client).await?;
        self.endpoint = at;
        if self.next == 0 {
            // Asked for before, since kine does not tell when it takes a watch.
            let response = self.client.limited(Method::RANGE, kv_client(&client).get(self.range.start(), None)).await?;
            self.next = response.header().map_or(0, etcd_client::ResponseHeader::revision) + 1;
        }
        let options = etcd_client::WatchOptions::new().with_range(self.range.end()).with_fragment();
        let mut options = options.with_start_revision(self.next);
        if self.options.previous {
            options = options.with_prev_key();
        }
        if self.options.progress_notify {
            options = options.with_progress_notify();
        }
        let mut watches: WatchClient = client.watch_client().max_decoding_message_size(MAX_ANSWER_BYTES);
        let counted = self.client.metrics().map(|metrics| metrics.call(Method::WATCH));
        let begun = tokio::time::timeout(CREATE_PATIENCE, async {
            let mut stream = watches.watch(self.range.start(), Some(options)).await?;
            Ok((stream.message().await?, stream))
        });
        let (response, stream) = match begun.await {
            Ok(Ok((Some(response), stream))) => (response, stream),
            Ok(Ok((None, _))) => return Err(Error::Unavailable { message: "the watch has ended at once".to_owned() }),
            Ok(Err(error)) => {
                if let Some(counted) = counted {
                    counted.finish(Some(&error));
                }
                return Err(dialer.error(error));
            }
            Err(_) => return Err(Error::Unavailable { message: "the watch does not begin".to_owned() }),
        };
        self.stream = Some(stream);
        self.pause = FIRST_PAUSE;
        self.take(response)
    }

    fn take(&mut self, response: etcd_client::WatchResponse) -> Result<(), Error> {
        let response = response.0;
        if let Some(metrics) = self.client.metrics() {
            metrics.received(Method::WATCH);
        }
        if response.canceled {
            self.stream = None;
            self.held.clear();
            if response.compact_revision > 0 {
                self.compacted = response.compact_revision;
                return Err(Error::Compacted);
            }
            let message = response.cancel_reason;
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
            self.ready.push_back(Watched::Events(events));
        }
        Ok(())
    }
}
