//! What the operations return: plain data, without key material and without plaintext, in a form that keeps.
//!
//! Field names and the names of the classes are API. A field may be added; [`SCHEMA_VERSION`] changes when one changes its
//! meaning or goes away.

mod backup;
mod changes;
mod class;
mod doctor;
mod get;
mod inspect;
mod key;
#[cfg(feature = "kms")]
mod kms;
mod progress;
#[cfg(feature = "etcd")]
mod rekey;
mod residue;
mod scan;
mod verify;
#[cfg(feature = "etcd")]
mod watch;

pub use backup::{RewriteGroup, RewriteReport};
pub use changes::{DiffReport, DiffRow, Difference, FieldChange, HistoryReport, HistoryRow};
pub use class::Class;
pub use doctor::{
    Axis, DoctorReport, DoctorSource, ExplainReport, Explanation, Figure, FigureValue, Finding, LogText, NotKnown, Unit,
};
pub use get::GetReport;
pub use inspect::{BucketSize, InspectReport, NeededKey, Pages};
pub use key::{EtcdKey, ValueRow, key_id_hash, key_in_words, place_of, short_key_id_hash};
#[cfg(feature = "kms")]
pub use kms::{CheckResult, KmsCheck, KmsCheckReport, KmsLatency};
pub use progress::{NoProgress, Progress};
#[cfg(feature = "etcd")]
pub use rekey::{JournalEntry, NotRewritten, PlanGroup, RekeyPlan, RekeyReport, WrongKey};
pub use residue::{ResidueExample, ResidueGroup, ResiduePlace, ResidueReport};
pub use scan::{Dimension, ScanGroup, ScanReport, UnknownDimension};
pub use verify::{KeyUse, MissingKey, Removable, RemovableAnswer, VerifyGroup, VerifyReport, VerifyRow};
#[cfg(feature = "etcd")]
pub use watch::{ChangeType, WatchReport, WatchRow};

/// The version of the reports' form.
pub const SCHEMA_VERSION: u32 = 1;

/// What to say of values that were not all read at one revision.
pub(crate) fn compaction_note(single_revision: bool) -> Option<String> {
    (!single_revision).then(|| {
        "the revision was compacted while it was read: the values are not of a single point in time".to_owned()
    })
}
