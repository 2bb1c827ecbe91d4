//! Where a fault is: the API server, the transformer, the KMS, the network or etcd.
//!
//! What was gathered is [`Evidence`]; [`diagnose`] answers with a decision table, and says of every row whether it holds,
//! does not, or cannot be known from what is there. [`explain`] says what an error text means. All of this does no I/O:
//! it works with nothing but files, and when etcd is down. `probe` measures a running etcd.

mod decide;
mod evidence;
mod explain;
mod figure;
mod log;
mod manifest;
pub mod metrics;
pub mod probe;

pub use decide::{diagnose, rows};
pub use evidence::{
    Clock, Compaction, ConfigurationErrors, EtcdProbe, Evidence, KmsProbe, MemberProbe, Timing, TransformerSpeed,
    WriteProbe,
};
pub use explain::explain;
pub use log::{LogMatch, LogSummary};
pub use manifest::{ApiserverManifest, InvalidManifest, KmsSocket, ManifestProblem};
