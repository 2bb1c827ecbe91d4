use serde::Serialize;

use super::SCHEMA_VERSION;

/// Where a fault is. The names are API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// How the API server is started: its flags, its files and their mounts.
    Configuration,
    /// Admission to the API server: priority and fairness, webhooks, what a request may be.
    ApiserverAdmission,
    /// What the API server does with objects: decoding, filtering, encoding.
    ApiserverSerialization,
    /// The API server's watch cache.
    ApiserverCache,
    /// The transformer: prefixes, keys, the stored bytes themselves.
    Transformer,
    /// The KMS plugin, or what is behind it.
    Kms,
    /// The way from the API server to etcd.
    Network,
    /// etcd's consensus: leader, heartbeats, proposals.
    Raft,
    /// etcd's write-ahead log, and so its disk.
    Wal,
    /// etcd's database file: commits, compaction, defragmentation.
    Backend,
    /// etcd's store: revisions, size, quota.
    Mvcc,
    /// etcd's watches.
    Watch,
    /// etcd's leases.
    Lease,
    /// Requests that are larger than etcd takes.
    RequestLimit,
    /// The clocks of the machines.
    Clock,
}

impl Axis {
    /// The axis as people call it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Configuration => "API server configuration",
            Self::ApiserverAdmission => "API server admission",
            Self::ApiserverSerialization => "API server serialization",
            Self::ApiserverCache => "API server cache",
            Self::Transformer => "transformer",
            Self::Kms => "KMS",
            Self::Network => "network",
            Self::Raft => "Raft",
            Self::Wal => "WAL",
            Self::Backend => "backend",
            Self::Mvcc => "MVCC",
            Self::Watch => "Watch",
            Self::Lease => "Lease",
            Self::RequestLimit => "request limit",
            Self::Clock => "clock",
        }
    }
}

/// What a figure is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FigureValue {
    /// A count.
    Count(u64),
    /// A measured number; it is finite.
    Number(f64),
    /// A word.
    Text(String),
}

/// What a figure is counted in. The names are API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// No number.
    Text,
}

/// One figure of the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was looked at.
    pub what: String,
    /// What it came to.
    pub value: FigureValue,
    /// What it is counted in.
    pub unit: Unit,
    /// Whether it is at least so much: the last bucket of a histogram has no upper end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Where it is from, and over which time.
    pub source: String,
}

/// A row of the decision table that holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The row. The names are API.
    pub row: &'static str,
    /// The axis that it names.
    pub axis: Axis,
    /// What is the matter, in a sentence.
    pub title: String,
    /// Whether it is as it should be, and good to know only.
    pub expected: bool,
    /// What shows it.
    pub evidence: Vec<Figure>,
    /// What to do next, in order.
    pub next: Vec<String>,
}

/// A row that could not be decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotKnown {
    /// The row.
    pub row: &'static str,
    /// The axis that it would name.
    pub axis: Axis,
    /// What the row says when it holds.
    pub title: String,
    /// What would have to be there.
    pub missing: Vec<String>,
    /// What points to the row all the same: its confirmation, without its symptom.
    pub hints: Vec<Figure>,
}

/// What was asked to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorSource {
    /// The kind: `etcd`, `kms`, `apiserver-metrics`, …
    pub kind: &'static str,
    /// The URL or the file.
    pub name: String,
    /// Whether it could be read.
    pub read: bool,
    /// What is in it, or why it could not be read.
    pub detail: String,
}

/// An error text that a log has, by its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogText {
    /// The explanation. The names are API.
    pub explanation: &'static str,
    /// Where the fault is then.
    pub axis: Axis,
    /// What it means.
    pub meaning: &'static str,
    /// How many lines say so.
    pub count: u64,
    /// When the first was written, where the log tells.
    pub first: Option<String>,
    /// When the last was written.
    pub last: Option<String>,
    /// etcd keys that are named, up to a few.
    pub keys: Vec<String>,
}

/// What `doctor` says.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The first row that holds.
    pub answer: Option<Finding>,
    /// The further rows that hold.
    pub findings: Vec<Finding>,
    /// The rows that could not be decided, and what is missing.
    pub not_known: Vec<NotKnown>,
    /// Known error texts in the log.
    pub log: Vec<LogText>,
    /// What was measured, whether it decided anything or not.
    pub measured: Vec<Figure>,
    /// What was looked at.
    pub sources: Vec<DoctorSource>,
}

impl DoctorReport {
    pub(crate) fn new() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            answer: None,
            findings: Vec::new(),
            not_known: Vec::new(),
            log: Vec::new(),
            measured: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// Whether a row holds that is not as it should be.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        self.answer.iter().chain(&self.findings).any(|finding| !finding.expected)
    }
}

impl DoctorReport {
    /// The rows that are not known and that something points to, when no row holds that is a fault.
    pub fn perhaps(&self) -> impl Iterator<Item = &NotKnown> {
        let none = !self.has_findings();
        self.not_known.iter().filter(move |row| none && !row.hints.is_empty())
    }
}

/// What an error text means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The explanation. The names are API.
    pub id: &'static str,
    /// Where the fault is.
    pub axis: Axis,
    /// The words that were recognised.
    pub recognised: String,
    /// What it means, precisely.
    pub meaning: &'static str,
    /// What it comes of, the likely first.
    pub causes: Vec<&'static str>,
    /// What to do next, in order.
    pub next: Vec<String>,
}

/// What `doctor explain` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether the text is known.
    pub known: bool,
    /// What it means, the most specific first.
    pub explanations: Vec<Explanation>,
    /// etcd keys that are named in it.
    pub keys: Vec<String>,
    /// Figures that are named in it.
    pub figures: Vec<Figure>,
    /// What to collect, when the text is not known.
    pub collect: Vec<&'static str>,
}
