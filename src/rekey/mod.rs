//! Rotation while the cluster runs: everything stale is stored again, sealed by the first provider of its resource.
//!
//! Upstream's word for it is *storage migration*. The difference is where it happens: here, at the level of stored bytes. The
//! plaintext is sealed again as it is, neither decoded nor normalised; no admission is asked and no audit event is made.

mod execute;
mod journal;
mod plan;

pub use execute::{Execution, execute};
pub use journal::{Journal, JournalError};
pub use plan::plan;

use crate::resource::Selection;
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
    /// The journal cannot be opened.
    #[error("journal")]
    Journal(#[from] JournalError),
}

/// Refuses a configuration by which nothing can be written.
fn check_write_keys(options: &Options<'_>) -> Result<(), Error> {
    let selected = &options.selection.resources;
    let wanted = |resource: &crate::resource::GroupResource| {
        selected.is_empty() || resource.resource == "*" || selected.contains(resource)
    };
    for (resource, list) in options.transformers.lists().filter(|(resource, _)| wanted(resource)) {
        let key = list.write_key();
        if matches!(key.provider, ProviderKind::KmsV1 | ProviderKind::KmsV2) {
            return Err(Error::KmsNotSupportedYet { resource: resource.to_string(), key });
        }
    }
    Ok(())
}
