//! The requests of `storage.Interface`, in the shapes of etcd's own client for Kubernetes (`clientv3/kubernetes`).

use etcd_client::{CompactionOptions, Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};

use super::client::{Client, Live, stored_value};
use super::error::Error;
use super::metrics::Method;
use super::range::{KeyRange, Ranges};
use crate::source::{Source as _, StoredValue};

/// One key at a revision.
#[derive(Debug)]
pub struct GetResponse {
    /// The value; nothing when the key is not there.
    pub value: Option<StoredValue>,
    /// The revision of the store when it was read.
    pub revision: i64,
}

/// A page of a range.
#[derive(Debug)]
pub struct ListResponse {
    /// The values, in the order of their keys.
    pub values: Vec<StoredValue>,
    /// How many keys there are from the first one that was asked for, also beyond this page.
    pub count: i64,
    /// The revision of the store when it was read.
    pub revision: i64,
}

/// What a compactor was told by `compact_rev_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompactRevision {
    /// The key was as expected, and is written.
    Won {
        /// The revision of the store.
        revision: i64,
    },
    /// Somebody else has written the key.
    Lost {
        /// The version of the key.
        version: i64,
        /// The revision that it holds.
        compacted: i64,
        /// The revision of the store.
        revision: i64,
    },
}

/// Where API servers agree on what is compacted. It has no prefix.
pub(super) const COMPACT_REV_KEY: &str = "compact_rev_key";

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.map_or(0, etcd_client::ResponseHeader::revision)
}

impl Client {
    /// Reads one key at a revision, 0 for the latest.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, or refuses.
    pub async fn get_at(&self, key: &[u8], revision: i64) -> Result<GetResponse, Error> {
        let mut response = self.range(key, GetOptions::new().with_limit(1).with_revision(revision)).await?;
        let revision = revision_of(response.header());
        Ok(GetResponse { value: response.take_kvs().into_iter().next().map(stored_value), revision })
    }

    /// Reads the keys that begin with `prefix`, from `start` on where that is given, at a revision, 0 for the latest; at most
    /// `limit` of them, 0 for all.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, or refuses.
    pub async fn list(
        &self,
        prefix: &[u8],
        start: Option<&[u8]>,
        limit: i64,
        revision: i64,
    ) -> Result<ListResponse, Error> {
        let range = KeyRange::prefix(prefix);
        let start = start.unwrap_or(prefix);
        let options =
            |limit, revision| GetOptions::new().with_range(range.end()).with_limit(limit).with_revision(revision);
        match self.range(start, options(limit, revision)).await {
            Ok(mut response) => Ok(ListResponse {
                count: response.count(),
                revision: revision_of(response.header()),
                values: response.take_kvs().into_iter().map(stored_value).collect(),
            }),
            Err(Error::AnswerTooLarge) => self.list_in_parts(start, limit, revision, options).await,
            Err(error) => Err(error),
        }
    }

    /// The same in several answers of one revision, where one would be larger than the client takes.
    async fn list_in_parts(
        &self,
        start: &[u8],
        limit: i64,
        revision: i64,
        options: impl Fn(i64, i64) -> GetOptions,
    ) -> Result<ListResponse, Error> {
        let mut list = ListResponse { values: Vec::new(), count: 0, revision };
        let mut next = start.to_vec();
        let mut part = if limit > 0 { limit / 2 } else { 4096 }.clamp(1, 4096);
        loop {
            let wanted = if limit > 0 { part.min(limit - list.values.len() as i64) } else { part };
            let mut response = match self.range(next.as_slice(), options(wanted, list.revision)).await {
                Err(Error::AnswerTooLarge) if part > 1 => {
                    part /= 2;
                    continue;
                }
                response => response?,
            };
            if list.values.is_empty() {
                list.count = response.count();
            }
            // The header tells where the store is, whatever revision was read.
            if list.revision == 0 {
                list.revision = revision_of(response.header());
            }
            let more = response.more();
            list.values.extend(response.take_kvs().into_iter().map(stored_value));
            match list.values.last() {
                Some(last) if more && (limit == 0 || (list.values.len() as i64) < limit) => {
                    next.clone_from(&last.key);
                    next.push(0);
                }
                _ => return Ok(list),
            }
        }
    }

    /// Counts the keys that begin with a prefix.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, or refuses.
    pub async fn count(&self, prefix: &[u8]) -> Result<i64, Error> {
        let options = GetOptions::new().with_range(KeyRange::prefix(prefix).end()).with_count_only();
        Ok(self.range(prefix, options).await?.count())
    }

    /// The keys that begin with a prefix, without their values.
    ///
    /// # Errors
    ///
    /// When etcd stays unavailable, or refuses.
    pub async fn keys(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut pages = Ranges::new(self, [KeyRange::prefix(prefix)]).keys_only();
        let mut keys = Vec::new();
        while let Some(page) = pages.next_page().await? {
            keys.extend(page.values.into_iter().map(|value| value.key));
        }
        Ok(keys)
    }

    /// Grants a lease of so many seconds, and gives its ID. etcd chooses it.
    ///
    /// # Errors
    ///
    /// As etcd answers.
    pub async fn grant_lease(&self, seconds: i64) -> Result<i64, Error> {
        let Live { client, generation, .. } = self.live().await;
        let mut leases = client.lease_client();
        let granted = self.limited(Method::LEASE_GRANT, leases.grant(seconds, None)).await;
        Ok(self.reconnecting(generation, granted)?.id())
    }

    /// Has etcd forget what was there before a revision. The revision itself can still be read.
    ///
    /// # Errors
    ///
    /// As etcd answers; [`Error::Compacted`] when it was done already.
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let Live { client, generation, .. } = self.live().await;
        let mut kv = client.kv_client();
        let compacted = self.limited(Method::COMPACT, kv.compact(revision, None::<CompactionOptions>)).await;
        self.reconnecting(generation, compacted)?;
        Ok(())
    }

    /// Writes `compact_rev_key` when its version is the expected one, and reads it otherwise.
    pub(super) async fn write_compact_revision(&self, version: i64, revision: i64) -> Result<CompactRevision, Error> {
        let txn = Txn::new()
            .when([Compare::version(COMPACT_REV_KEY, CompareOp::Equal, version)])
            .and_then([TxnOp::put(COMPACT_REV_KEY, revision.to_string(), None)])
            .or_else([TxnOp::get(COMPACT_REV_KEY, None)]);
        let response = self.txn(txn).await?;
        let revision = revision_of(response.header());
        if response.succeeded() {
            return Ok(CompactRevision::Won { revision });
        }
        let stored = response.op_responses().into_iter().find_map(|response| match response {
            TxnOpResponse::Get(mut range) => range.take_kvs().into_iter().next(),
            _ => None,
        });
        let version = stored.as_ref().map_or(0, etcd_client::KeyValue::version);
        let compacted = stored.and_then(|kv| kv.value_str().ok()?.parse().ok()).unwrap_or(0);
        Ok(CompactRevision::Lost { version, compacted, revision })
    }
}
