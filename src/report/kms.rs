use serde::Serialize;

use super::SCHEMA_VERSION;

/// What a check of a plugin came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// As kube-apiserver wants it.
    Pass,
    /// kube-apiserver works with it, and somebody should know.
    Warn,
    /// kube-apiserver does not work with it, or will not some day.
    Fail,
    /// Not looked at.
    Skip,
}

impl CheckResult {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// One check of a plugin. The names are API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KmsCheck {
    /// `socket`, `v2` or `v1beta1`.
    pub api: &'static str,
    /// What was looked at.
    pub name: &'static str,
    /// What it came to.
    pub result: CheckResult,
    /// Why, and what to do.
    pub detail: String,
}

/// How long calls took, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KmsLatency {
    /// `v2` or `v1beta1`.
    pub api: &'static str,
    /// The method.
    pub method: &'static str,
    /// How many calls were made, one after the other.
    pub calls: u64,
    /// Half of them were faster.
    pub p50_us: u64,
    /// 95 of 100 were faster.
    pub p95_us: u64,
    /// 99 of 100 were faster.
    pub p99_us: u64,
    /// The slowest.
    pub max_us: u64,
}

/// What `kms check` says of a plugin.
#[derive(Clone, Debug, Serialize)]
pub struct KmsCheckReport {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The plugin's socket.
    pub endpoint: String,
    /// The timeout of the configuration, in milliseconds.
    pub timeout_ms: u64,
    /// Whether no check has failed.
    pub ok: bool,
    /// The checks, in the order in which they were made.
    pub checks: Vec<KmsCheck>,
    /// How long calls took.
    pub latency: Vec<KmsLatency>,
    /// The timeout that the latency suggests, in milliseconds.
    pub recommended_timeout_ms: Option<u64>,
    /// The hash of the key ID that encrypts now, of KMS v2.
    pub kms_key_id_hash: Option<String>,
}

impl KmsCheckReport {
    pub(crate) fn new(endpoint: String, timeout_ms: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            endpoint,
            timeout_ms,
            ok: true,
            checks: Vec::new(),
            latency: Vec::new(),
            recommended_timeout_ms: None,
            kms_key_id_hash: None,
        }
    }

    /// How many checks came to that.
    #[must_use]
    pub fn count(&self, result: CheckResult) -> usize {
        self.checks.iter().filter(|check| check.result == result).count()
    }
}
