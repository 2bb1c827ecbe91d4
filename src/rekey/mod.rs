//! Rotation while the cluster runs: everything stale is stored again, sealed by the first provider of its resource.
//!
//! Upstream's word for it is *storage migration*. The difference is where it happens: here, at the level of stored bytes. The
//! plaintext is sealed again as it is, neither decoded nor normalised; no admission is asked and no audit event is made.

mod execute;
mod journal;
mod plan;
mod space;
mod write_keys;

pub use execute::{Execution, execute};
pub use journal::{Journal, JournalError};
pub use plan::plan;
pub use space::Space;

use crate::resource::{GroupResource, Selection};
use crate::transformer::{KeyLabel, ResourceTransformer, ResourceTransformers};

/// What to rewrite, and by what.
#[derive(Debug)]
pub struct Options<'a> {
    /// The configuration.
    pub transformers: &'a ResourceTransformers,
    /// Which values.
    pub selection: &'a Selection,
    /// What the reports call the source.
    pub source: String,
    /// Keys that may write although they open none of the values that name them: somebody knows better.
    pub trusted: &'a [KeyLabel],
}

/// Why a rotation cannot begin. The operator can fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// etcd cannot be read.
    #[error("cannot read etcd")]
    Storage(#[from] crate::storage::Error),
    /// No key can match what is selected.
    #[error("the selection cannot be")]
    Selection(#[from] crate::resource::Error),
    /// The provider that writes takes a KMS, and this version cannot ask one.
    #[error("{resource} are written by {key}, and this version cannot write by a KMS")]
    KmsNotSupportedYet {
        /// A resource of which this is so.
        resource: String,
        /// The key that writes.
        key: KeyLabel,
    },
    /// The key that writes is not the one that the API servers have under that name: what it wrote, none could read.
    #[error("{key} in the configuration opens none of the {values} values that are stored under that name")]
    WrongWriteKey {
        /// The key, as PROVIDER/NAME.
        key: String,
        /// How many values name it.
        values: u64,
    },
    /// The journal cannot be opened.
    #[error("journal")]
    Journal(#[from] JournalError),
}

impl Options<'_> {
    /// The lists by which selected values are written, each with a resource that it is for, which may be a wildcard.
    fn write_lists(&self) -> Vec<(GroupResource, &ResourceTransformer)> {
        let of = |resource: &GroupResource| {
            (resource.clone(), self.transformers.transformer_for_resource(&resource.group, &resource.resource))
        };
        match self.selection.resources.as_slice() {
            [] => self.transformers.lists().collect(),
            selected => selected.iter().map(of).collect(),
        }
    }
}

/// Refuses a configuration by which nothing can be written.
fn check_write_keys(options: &Options<'_>) -> Result<(), Error> {
    let mut keys = options.write_lists().into_iter().map(|(resource, list)| (resource, list.write_key()));
    match keys.find(|(_, key)| key.provider.is_kms()) {
        Some((resource, key)) => Err(Error::KmsNotSupportedYet { resource: resource.to_string(), key }),
        None => Ok(()),
    }
}
