//! Where stored values come from: etcd, and whatever else keeps them, all yield the same thing.

/// One key of etcd at one revision.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The complete etcd key.
    pub key: Vec<u8>,
    /// The stored bytes: ciphertext, or the serialized object.
    pub value: Vec<u8>,
    /// The revision at which the key was created.
    pub create_revision: i64,
    /// The revision of this value.
    pub mod_revision: i64,
    /// How many times the key was written since it was created.
    pub version: i64,
    /// The lease that the key is attached to; 0 is none.
    pub lease: i64,
}

/// Says what it is and not what is in it: the value may be a secret in the clear.
impl std::fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredValue")
            .field("key", &self.key.escape_ascii().to_string())
            .field("value", &format_args!("[{} bytes]", self.value.len()))
            .field("mod_revision", &self.mod_revision)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Some stored values, in the order of their keys.
#[derive(Debug)]
pub struct Page {
    /// The values.
    pub values: Vec<StoredValue>,
    /// The revision at which they were read.
    pub revision: i64,
}

/// Yields stored values page by page, so that a store of any size is read in flat memory.
pub trait Source {
    /// Why a page could not be read.
    type Error;

    /// The next page, or `None` behind the last.
    fn next_page(&mut self) -> impl Future<Output = Result<Option<Page>, Self::Error>> + Send;

    /// How many values there will be in all, as far as that is known.
    fn expected(&self) -> Option<u64>;

    /// The revision that is read, once it is known.
    fn revision(&self) -> Option<i64>;

    /// Whether all pages so far are of one revision.
    fn is_consistent(&self) -> bool;
}
