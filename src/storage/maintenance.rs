//! What a member of etcd says of itself, and how fast it answers. Nothing is tried again here: what fails is an answer too.

use std::time::{Duration, Instant};

use etcd_client::{AlarmAction, AlarmType, GetOptions};

use super::client::{Client, Live};
use super::error::Error;
use super::metrics::Method;

/// How a member of the cluster stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// The version of etcd.
    pub version: String,
    /// The member's ID.
    pub member_id: u64,
    /// The cluster's ID.
    pub cluster_id: u64,
    /// The ID of the leader; 0 without one.
    pub leader: u64,
    /// Raft's term.
    pub raft_term: u64,
    /// The last entry of the log.
    pub raft_index: u64,
    /// The last entry that was applied.
    pub raft_applied_index: u64,
    /// The size of the database file in bytes.
    pub db_size: u64,
    /// How much of it is in use.
    pub db_size_in_use: u64,
    /// The quota in bytes; 0 when it does not tell, as before 3.6.
    pub quota: u64,
    /// The revision of the store.
    pub revision: i64,
    /// What it says is wrong.
    pub errors: Vec<String>,
}

/// What a member has raised an alarm for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The database has reached its quota.
    NoSpace,
    /// The data differs from the other members'.
    Corrupt,
}

impl Alarm {
    /// etcd's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }
}

impl Client {
    /// Asks the member that is connected to.
    ///
    /// # Errors
    ///
    /// When it does not answer, or does not answer such requests, as kine does not in all versions.
    pub async fn member_status(&self) -> Result<MemberStatus, Error> {
        let Live { mut client, .. } = self.live().await;
        let status = self.limited(Method::STATUS, client.status()).await?;
        let header = status.header();
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        Ok(MemberStatus {
            version: status.version().to_owned(),
            member_id: header.map_or(0, etcd_client::ResponseHeader::member_id),
            cluster_id: header.map_or(0, etcd_client::ResponseHeader::cluster_id),
            leader: status.leader(),
            raft_term: status.raft_term(),
            raft_index: status.raft_index(),
            raft_applied_index: status.raft_applied_index(),
            db_size: bytes(status.db_size()),
            db_size_in_use: bytes(status.raft_used_db_size()),
            quota: bytes(status.db_size_quota()),
            revision: header.map_or(0, etcd_client::ResponseHeader::revision),
            errors: status.errors().to_vec(),
        })
    }

    /// The alarms of the cluster, with the member that has raised each.
    ///
    /// # Errors
    ///
    /// As [`Client::member_status`].
    pub async fn alarms(&self) -> Result<Vec<(u64, Alarm)>, Error> {
        let Live { mut client, .. } = self.live().await;
        let answer = self.limited(Method::ALARM, client.alarm(AlarmAction::Get, AlarmType::None, None)).await?;
        let alarm = |alarm| match alarm {
            AlarmType::Nospace => Some(Alarm::NoSpace),
            AlarmType::Corrupt => Some(Alarm::Corrupt),
            AlarmType::None => None,
        };
        let raised = answer.alarms().iter();
        Ok(raised.filter_map(|member| Some((member.member_id(), alarm(member.alarm())?))).collect())
    }

    /// How many leases there are.
    ///
    /// # Errors
    ///
    /// As [`Client::member_status`].
    pub async fn leases(&self) -> Result<u64, Error> {
        let Live { mut client, .. } = self.live().await;
        Ok(self.limited(Method::LEASES, client.leases()).await?.leases().len() as u64)
    }

    /// How long one read of a key takes: of the whole cluster, or, when it is serializable, of one member alone.
    ///
    /// # Errors
    ///
    /// As etcd answers.
    pub async fn timed_get(&self, key: &[u8], serializable: bool) -> Result<Duration, Error> {
        let mut options = GetOptions::new().with_keys_only();
        if serializable {
            options = options.with_serializable();
        }
        let Live { mut kv, .. } = self.live().await;
        let begun = Instant::now();
        self.limited(Method::RANGE, kv.get(key, Some(options))).await?;
        Ok(begun.elapsed())
    }

    /// Deletes a key that is ours alone, whatever its revision: etcd 3.5.1 takes a plain delete when it is full, and refuses
    /// every transaction.
    pub(crate) async fn delete_own(&self, key: &[u8]) -> Result<(), Error> {
        let Live { mut kv, .. } = self.live().await;
        self.limited(Method::DELETE_RANGE, kv.delete(key, None)).await?;
        Ok(())
    }
}
