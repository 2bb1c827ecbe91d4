use std::fmt;

/// How much of its quota etcd's database takes.
///
/// A database that reaches its quota raises the NOSPACE alarm, and every put of every API server fails. Compaction alone does not
/// make it smaller (`server/storage/quota.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    used: u64,
    quota: u64,
}

const MIB: u64 = 1024 * 1024;
/// etcd's default.
const DEFAULT_QUOTA: u64 = 2048 * MIB;
/// The largest that etcd suggests.
const LARGEST_QUOTA: u64 = 8192 * MIB;

impl Space {
    /// The quota is not told by etcd: without one that is given it is the default, or the largest for a database that would not
    /// fit into the default.
    #[must_use]
    pub fn new(db_size: i64, quota: Option<u64>) -> Self {
        let used = u64::try_from(db_size).unwrap_or(0);
        let likely = if used < DEFAULT_QUOTA / 10 * 9 { DEFAULT_QUOTA } else { LARGEST_QUOTA };
        Self { used, quota: quota.unwrap_or(likely) }
    }

    /// Whether writing should end, to leave room for everybody else.
    #[must_use]
    pub fn is_nearly_used(self) -> bool {
        self.used >= self.quota / 100 * 95
    }

    /// Whether so many bytes more would take more than 80 % of the quota.
    #[must_use]
    pub fn is_scarce_after(self, growth: u64) -> bool {
        self.used.saturating_add(growth) >= self.quota / 100 * 80
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, quota) = (self.used / MIB, self.quota / MIB);
        write!(f, "its database has {used} of {quota} MiB (--quota-backend-bytes): compact and defragment it first")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_left_for_the_others() {
        let space = |used: i64, quota: Option<u64>| Space::new(used * 1024 * 1024, quota.map(|quota| quota * MIB));
        assert!(!space(100, Some(200)).is_nearly_used());
        assert!(space(191, Some(200)).is_nearly_used());
        assert!(space(100, Some(200)).is_scarce_after(61 * MIB));
        assert!(!space(100, Some(200)).is_scarce_after(50 * MIB));
        assert_eq!(space(100, None), space(100, Some(2048)));
        assert_eq!(space(1900, None), space(1900, Some(8192)));
    }
}
