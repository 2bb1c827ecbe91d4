use rayon::prelude::*;

use super::codec::Codec;
use super::continue_token::{decode_continue, encode_continue};
use super::error::{Cause, StorageError};
use super::get::check_minimum;
use super::options::{Compatibility, ListOptions, ResourceVersionMatch};
use super::transformer::StorageTransformer;
use super::versioner::Versioner;
use super::{Operation, Store, shown};
use crate::source::StoredValue;
use crate::storage::{Error, ListResponse};

/// What was listed.
#[derive(Clone, Debug)]
pub struct List<O> {
    /// The objects, in the order of their keys.
    pub items: Vec<O>,
    /// The revision at which all of them were read.
    pub resource_version: i64,
    /// With which the list goes on; empty at its end.
    pub continue_token: String,
    /// How many more there are, where that is known.
    pub remaining_item_count: Option<i64>,
    /// Objects that cannot be read, where they are collected.
    pub corrupt: Vec<CorruptItem>,
}

/// An object of a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptItem {
    /// The complete etcd key.
    pub key: Vec<u8>,
    /// The revision of the value.
    pub mod_revision: i64,
    /// Why.
    pub message: String,
}

/// What becomes of objects that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Corrupt {
    /// The list fails, as upstream does it: at the first of them, or with the gate for it after all of them.
    #[default]
    Fail,
    /// They are listed apart.
    Collect,
}

/// So many objects that cannot be read are told.
const MAX_CORRUPT: usize = 100;
/// The largest page to which a list with a selector grows.
const MAX_PAGE: i64 = 10_000;
/// Fewer values are opened sooner where they are: on another core they are cold.
const PARALLEL: usize = 50_000;
/// After so many, others have their turn on this thread.
const TURN: usize = 256;

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                                list without the continue parameter.";
const INCONSISTENT_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
     continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the \
     provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first \
     chunk was returned and now may show up in the list.";

/// Where a list begins, and at which revision.
struct Start {
    /// Where the first page begins; at the prefix when there is none.
    key: Option<Vec<u8>>,
    /// 0 is the latest.
    revision: i64,
}

/// What went wrong so far with objects of a list.
struct Trouble {
    collect: Corrupt,
    gate: bool,
    compatibility: Compatibility,
    causes: Vec<Cause>,
    corrupt: Vec<CorruptItem>,
}

impl Trouble {
    /// Whether the list goes on.
    fn add(&mut self, value: &StoredValue, error: StorageError) -> Result<(), StorageError> {
        if self.collect == Corrupt::Collect {
            let message = error.to_string();
            self.corrupt.push(CorruptItem { key: value.key.clone(), mod_revision: value.mod_revision, message });
            return Ok(());
        }
        if !self.gate {
            return Err(error);
        }
        let too_many = || Cause {
            kind: Cause::TOO_MANY,
            field: String::new(),
            message: "too many errors, the list is truncated".to_owned(),
        };
        if self.causes.len() >= MAX_CORRUPT {
            self.causes.push(too_many());
            return Err(self.take());
        }
        let message = error.to_string();
        self.causes.push(Cause { kind: Cause::UNEXPECTED, field: shown(&value.key), message });
        if self.compatibility >= Compatibility::V1_37 && self.causes.len() == MAX_CORRUPT {
            self.causes.push(too_many());
            return Err(self.take());
        }
        Ok(())
    }

    fn take(&mut self) -> StorageError {
        StorageError::CorruptList { causes: std::mem::take(&mut self.causes) }
    }

    fn finish(&mut self) -> Result<Vec<CorruptItem>, StorageError> {
        if self.causes.is_empty() { Ok(std::mem::take(&mut self.corrupt)) } else { Err(self.take()) }
    }
}

impl<C: Codec, T: StorageTransformer> Store<C, T> {
    /// Lists the objects below a key, or the one under it, all at one revision (upstream `GetList`).
    ///
    /// With a limit, [`List::continue_token`] goes on at the same revision. With a selector, pages grow until there are enough objects.
    ///
    /// # Errors
    ///
    /// [`StorageError::BadRequest`], [`StorageError::TooLargeResourceVersion`], [`StorageError::Expired`] with a token that goes on at a
    /// newer revision where there was one, [`StorageError::Internal`], [`StorageError::Decode`] or [`StorageError::CorruptList`] when
    /// objects cannot be read, and what etcd says.
    pub async fn get_list(&self, key: &str, options: &ListOptions<C::Object>) -> Result<List<C::Object>, StorageError> {
        let prefix = self.prepare_key(key, options.recursive)?;
        let start = validate(&prefix, options)?;
        let paging = options.limit > 0;
        let mut limit = options.limit.max(0);
        let mut trouble = Trouble {
            collect: options.corrupt,
            gate: self.inner.options.allow_unsafe_malformed_object_deletion,
            compatibility: self.inner.options.compatibility,
            causes: Vec::new(),
            corrupt: Vec::new(),
        };
        let mut items = Vec::new();
        let (mut at, mut revision) = (start.key, start.revision);
        let (mut fetched, mut evaluated) = (0, 0);
        let (mut remaining, mut next) = (None, None);
        loop {
            let page = self.page(&prefix, at.as_deref(), limit, revision, options).await?;
            check_minimum(&options.resource_version, page.revision)?;
            fetched += page.values.len();
            let mut has_more = (page.values.len() as i64) < page.count;
            if page.values.is_empty() && has_more {
                let message = "no results were found, but etcd indicated there were more values remaining".to_owned();
                return Err(StorageError::InvalidKey { message });
            }
            if revision == 0 {
                revision = page.revision;
            }
            let count = page.count;
            let wanted = if paging { usize::try_from(options.limit).unwrap_or(usize::MAX) } else { usize::MAX };
            let taken = self.take_page(page.values, wanted, options, &mut items, &mut trouble).await?;
            evaluated += taken.evaluated;
            has_more |= taken.more;
            let stop = !has_more || !paging || items.len() >= wanted;
            if stop {
                if has_more && let Some(last) = taken.last {
                    next = Some([&last[..], b"\0"].concat());
                    remaining = options.predicate.is_empty().then_some(count - taken.looked_at);
                }
                break;
            }
            at = taken.last.map(|last| [&last[..], b"\0"].concat());
            limit = limit.saturating_mul(2).min(MAX_PAGE.max(limit));
        }
        let corrupt = trouble.finish()?;
        if revision == 0 {
            let message = "illegal resource version from storage: 0".to_owned();
            return Err(StorageError::InvalidKey { message });
        }
        if let Some(metrics) = self.metrics() {
            metrics.list(self.resource(), fetched, evaluated, items.len());
        }
        let continue_token = match next {
            Some(key) => encode_continue(&key, &prefix, revision)
                .map_err(|error| StorageError::InvalidKey { message: error.to_string() })?,
            None => String::new(),
        };
        Ok(List { items, resource_version: revision, continue_token, remaining_item_count: remaining, corrupt })
    }

    /// One page, from the key on.
    async fn page(
        &self,
        prefix: &str,
        at: Option<&[u8]>,
        limit: i64,
        revision: i64,
        options: &ListOptions<C::Object>,
    ) -> Result<ListResponse, StorageError> {
        let client = &self.inner.client;
        let response = if options.recursive {
            self.request(Operation::List, client.list(prefix.as_bytes(), at, limit, revision)).await
        } else {
            let got = self.request(Operation::Get, client.get_at(prefix.as_bytes(), revision)).await;
            got.map(|response| {
                let values: Vec<_> = response.value.into_iter().collect();
                ListResponse { count: values.len() as i64, values, revision: response.revision }
            })
        };
        response.map_err(|error| match error {
            Error::FutureRevision => {
                StorageError::TooLargeResourceVersion { asked: revision, current: 0, retry_after_seconds: 0 }
            }
            Error::Compacted => compacted(&options.continue_token, at, prefix),
            error => StorageError::Etcd(error),
        })
    }

    /// Takes objects from a page until there are enough.
    async fn take_page(
        &self,
        values: Vec<StoredValue>,
        wanted: usize,
        options: &ListOptions<C::Object>,
        items: &mut Vec<C::Object>,
        trouble: &mut Trouble,
    ) -> Result<Taken, StorageError> {
        self.inner.sizes.note_all(&values);
        self.inner.transformer.prepare_read(&values.iter().collect::<Vec<_>>()).await;
        let mut taken = Taken { looked_at: 0, evaluated: 0, more: false, last: None };
        // Behind a selector, what comes after the last object that is wanted must not be opened.
        let in_parallel = values.len() >= PARALLEL && (options.predicate.is_empty() || wanted == usize::MAX);
        if in_parallel {
            let store = self.clone();
            let read = tokio::task::spawn_blocking(move || {
                let read = |value: StoredValue| (store.read_item(&value), value);
                values.into_par_iter().map(read).collect::<Vec<_>>()
            });
            let read = read.await.map_err(|_| StorageError::Timeout {
                key: String::new(),
                message: "the objects were not decoded".to_owned(),
            })?;
            items.reserve(read.len().min(wanted));
            for (object, value) in read {
                if items.len() >= wanted {
                    taken.more = true;
                    break;
                }
                taken.take(object, value, options, items, trouble)?;
            }
        } else {
            for value in values {
                if items.len() >= wanted {
                    taken.more = true;
                    break;
                }
                if taken.looked_at % TURN as i64 == TURN as i64 - 1 {
                    tokio::task::yield_now().await;
                }
                taken.take(self.read_item(&value), value, options, items, trouble)?;
            }
        }
        Ok(taken)
    }

    /// The object in a value of a list.
    fn read_item(&self, value: &StoredValue) -> Result<C::Object, StorageError> {
        let opened = self.open(value).map_err(|error| match error {
            StorageError::Internal { source, .. } => StorageError::Internal { key: Some(shown(&value.key)), source },
            error => error,
        })?;
        self.decode_counted(&value.key, opened.data, value.mod_revision)
    }
}

/// What was taken from a page.
struct Taken {
    /// Those too that cannot be read.
    looked_at: i64,
    evaluated: usize,
    /// Whether there was more than was wanted.
    more: bool,
    /// The last key that was looked at.
    last: Option<Vec<u8>>,
}

impl Taken {
    fn take<O>(
        &mut self,
        object: Result<O, StorageError>,
        value: StoredValue,
        options: &ListOptions<O>,
        items: &mut Vec<O>,
        trouble: &mut Trouble,
    ) -> Result<(), StorageError> {
        self.looked_at += 1;
        match object {
            Ok(object) => {
                self.evaluated += 1;
                if options.predicate.matches(&object) {
                    items.push(object);
                }
            }
            Err(error) => trouble.add(&value, error)?,
        }
        self.last = Some(value.key);
        Ok(())
    }
}

/// Upstream `storage.ValidateListOptions`.
fn validate<O>(prefix: &str, options: &ListOptions<O>) -> Result<Start, StorageError> {
    let bad_request = |message: String| Err(StorageError::BadRequest { message });
    if options.recursive && !options.continue_token.is_empty() {
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return bad_request("specifying resource version is not allowed when using continue".to_owned());
        }
        return match decode_continue(&options.continue_token, prefix) {
            Ok((key, revision)) => Ok(Start { key: Some(key.into_bytes()), revision: revision.max(0) }),
            Err(error) => bad_request(format!("invalid continue token: {error}")),
        };
    }
    if options.resource_version.is_empty() {
        return Ok(Start { key: None, revision: 0 });
    }
    let asked = Versioner.parse_resource_version(&options.resource_version)?;
    let asked = i64::try_from(asked).unwrap_or(i64::MAX);
    let revision = match options.resource_version_match {
        Some(ResourceVersionMatch::NotOlderThan) => 0,
        Some(ResourceVersionMatch::Exact) => asked,
        // What was so before there was a choice.
        None if options.limit > 0 && options.recursive => asked,
        None => 0,
    };
    Ok(Start { key: None, revision })
}

/// The revision of a list is not there any more.
fn compacted(token: &str, at: Option<&[u8]>, prefix: &str) -> StorageError {
    match token.is_empty() {
        true => StorageError::Expired { message: TOO_OLD.to_owned(), continue_token: None },
        false => compacted_continue(at, prefix),
    }
}

/// The same of a list that goes on: with a token that does so at a newer revision.
pub(super) fn compacted_continue(at: Option<&[u8]>, prefix: &str) -> StorageError {
    let token = at.and_then(|at| encode_continue(at, prefix, -1).ok());
    let message = if token.is_some() { INCONSISTENT_CONTINUE } else { CONTINUE_TOO_OLD };
    StorageError::Expired { message: message.to_owned(), continue_token: token }
}
