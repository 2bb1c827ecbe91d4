use std::path::PathBuf;
use std::time::Duration;

use super::log::LogSummary;
use super::manifest::ManifestProblem;
use super::metrics::Target;
use crate::report::DoctorSource;

/// Everything that was gathered. What nobody gave is not there, and nothing is concluded from that.
#[derive(Debug, Default)]
pub struct Evidence {
    /// What was looked at, and whether it could be read.
    pub sources: Vec<DoctorSource>,
    /// `/metrics` of API servers.
    pub apiservers: Vec<Target>,
    /// `/metrics` of members of etcd.
    pub etcd_metrics: Vec<Target>,
    /// What was measured at etcd itself.
    pub etcd: Option<EtcdProbe>,
    /// What KMS plugins answered.
    pub kms: Vec<KmsProbe>,
    /// How fast the providers of the configuration are here.
    pub transformers: Vec<TransformerSpeed>,
    /// What is wrong with the configuration, a line each; empty when kube-apiserver accepts it.
    pub configuration: Vec<ConfigurationErrors>,
    /// What is wrong with the manifest.
    pub manifest: Vec<ManifestProblem>,
    /// Known error texts.
    pub log: Option<LogSummary>,
    /// The clocks of others.
    pub clocks: Vec<Clock>,
}

/// A configuration that kube-apiserver does not accept.
#[derive(Debug)]
pub struct ConfigurationErrors {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, with the place; no text that may be a key.
    pub errors: Vec<String>,
}

/// Calls that were timed one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    sorted: Vec<Duration>,
}

impl Timing {
    /// Of these times, in any order.
    #[must_use]
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times }
    }

    /// How many calls were timed.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.sorted.len()
    }

    /// So many of a hundred calls were not slower; nothing without calls.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * percent).div_ceil(100).saturating_sub(1);
        self.sorted.get(rank).copied()
    }
}

/// What was measured at etcd.
#[derive(Debug, Default)]
pub struct EtcdProbe {
    /// Each endpoint.
    pub members: Vec<MemberProbe>,
    /// Reads that the whole cluster agrees to, as those of API servers are.
    pub linearizable: Timing,
    /// Reads that one member answers alone.
    pub serializable: Timing,
    /// Why a read failed.
    pub read_error: Option<String>,
    /// Writes and deletes of a throw-away key.
    pub write: Option<WriteProbe>,
    /// Alarms: the member in hexadecimal, and `NOSPACE` or `CORRUPT`; nothing when they could not be asked for.
    pub alarms: Option<Vec<(String, &'static str)>>,
    /// How many leases there are; nothing when they could not be asked for.
    pub leases: Option<u64>,
    /// What API servers have compacted last.
    pub compaction: Option<Compaction>,
}

/// An endpoint of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberProbe {
    /// The endpoint.
    pub endpoint: String,
    /// Why it does not answer; the rest is empty then.
    pub error: Option<String>,
    /// How long a connection took.
    pub connected_in: Option<Duration>,
    /// The version; empty when it does not tell.
    pub version: String,
    /// Its ID.
    pub member_id: u64,
    /// The cluster's ID; 0 when it does not tell.
    pub cluster_id: u64,
    /// The leader's ID; 0 without a leader.
    pub leader: u64,
    /// The term.
    pub raft_term: u64,
    /// The last entry of the log.
    pub raft_index: u64,
    /// The last entry that was applied.
    pub raft_applied_index: u64,
    /// The size of the database file.
    pub db_size: u64,
    /// How much of it is in use.
    pub db_size_in_use: u64,
    /// etcd's quota; 0 when it does not tell, as before 3.6.
    pub quota: u64,
    /// The revision of the store.
    pub revision: i64,
    /// What it says is wrong.
    pub errors: Vec<String>,
}

/// Writes of a throw-away key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteProbe {
    /// The key, outside of what API servers store.
    pub key: String,
    /// Each write, a compare and swap.
    pub times: Timing,
    /// Why one failed.
    pub error: Option<String>,
    /// Whether it failed because the quota is reached.
    pub no_space: bool,
    /// Whether the key is gone again.
    pub removed: bool,
}

/// API servers' `compact_rev_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The revision that is compacted.
    pub revision: i64,
    /// The revision of the store now.
    pub current: i64,
}

/// What a KMS plugin answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmsProbe {
    /// The provider's name.
    pub name: String,
    /// The socket.
    pub endpoint: String,
    /// Why nobody answers there.
    pub error: Option<String>,
    /// Checks that failed: the name, and why.
    pub failed: Vec<(String, String)>,
    /// How long calls took: the method, the middle, and 99 of 100.
    pub latency: Vec<(&'static str, Duration, Duration)>,
    /// The timeout of the configuration.
    pub timeout: Duration,
}

/// How fast a provider is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformerSpeed {
    /// The provider and the key, like `aescbc/key1`.
    pub label: String,
    /// The size of the value.
    pub bytes: u64,
    /// Sealing it.
    pub seal: Timing,
    /// Opening it.
    pub open: Timing,
}

/// Another machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The URL that told.
    pub source: String,
    /// How many seconds it is before ours; negative when it is behind.
    pub ahead_seconds: i64,
    /// How much of that the answer's way and the header's whole seconds can be.
    pub uncertain_seconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let timing = Timing::new((1..=200).rev().map(Duration::from_micros).collect());
        assert_eq!(timing.calls(), 200);
        assert_eq!([50, 99, 100].map(|p| timing.percentile(p).unwrap().as_micros()), [100, 198, 200]);
        assert_eq!(Timing::default().percentile(50), None);
    }
}
