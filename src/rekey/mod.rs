//! Rotation while the cluster runs: everything stale is stored again, sealed by the first provider of its resource.
//!
//! Upstream's word for it is *storage migration*. The difference is where it happens: here, at the level of stored bytes. The
//! plaintext is sealed again as it is, neither decoded nor normalised; no admission is asked and no audit event is made.

mod execute;
mod journal;
mod plan;
mod write_keys;

pub use execute::{Execution, execute};
pub use journal::{Journal, JournalError};
pub use plan::plan;

use crate::resource::{GroupResource, Selection};
use crate::transformer::{KeyLabel, ProviderKind, ResourceTransformers};

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
    /// Whether values of the resource, which may be a wildcard, are selected.
    fn writes(&self, resource: &GroupResource) -> bool {
        let selected = &self.selection.resources;
        selected.is_empty() || resource.resource == "*" || selected.contains(resource)
    }
}

/// Refuses a configuration by which nothing can be written.
fn check_write_keys(options: &Options<'_>) -> Result<(), Error> {
    for (resource, list) in options.transformers.lists().filter(|(resource, _)| options.writes(resource)) {
        let key = list.write_key();
        if matches!(key.provider, ProviderKind::KmsV1 | ProviderKind::KmsV2) {
            return Err(Error::KmsNotSupportedYet { resource: resource.to_string(), key });
        }
    }
    Ok(())
}
