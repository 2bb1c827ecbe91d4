use serde::Serialize;

use super::{SCHEMA_VERSION, VerifyRow};

/// What was read when objects were asked for.
#[derive(Clone, Debug, Serialize)]
pub struct GetReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read.
    pub source: String,
    /// The revision at which it was read.
    pub revision: i64,
    /// Whether it was read to the end.
    pub complete: bool,
    /// How many objects there were.
    pub objects: u64,
    /// Values that cannot be read, or that kube-apiserver does not take as they are.
    pub findings: Vec<VerifyRow>,
}

impl GetReport {
    pub(crate) fn new(source: String) -> Self {
        Self { schema_version: SCHEMA_VERSION, source, revision: 0, complete: true, objects: 0, findings: Vec::new() }
    }
}
