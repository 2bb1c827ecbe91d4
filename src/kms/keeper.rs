use std::sync::Arc;
use std::time::{Duration, Instant};

use super::plugin::Plugin;
use super::{Error, Options};
use crate::report::key_id_hash;

/// Keeps the state by which a KMS v2 writes: asks for the status again and again, and takes a new seed when the key changes.
///
/// Stricter than kube-apiserver in one thing: what is not healthy does not prolong the state, also when it names a key ID.
pub(super) async fn keep(plugin: Arc<Plugin>, options: Options) {
    let mut wait = options.status_interval;
    loop {
        tokio::time::sleep(wait).await;
        wait = match renew(&plugin, options.write_validity).await {
            Ok(()) => options.status_interval,
            Err(error) => {
                tracing::warn!(provider = %plugin.provider.label(), "{}", error.chain());
                options.retry_interval
            }
        };
    }
}

async fn renew(plugin: &Plugin, validity: Duration) -> Result<(), Error> {
    let status = plugin.healthy_status().await?;
    if plugin.provider.key_id().is_ok_and(|key_id| key_id == status.key_id) {
        plugin.provider.extend_write_state(Instant::now() + validity);
        return Ok(());
    }
    let (provider, key_id) = (plugin.provider.label(), key_id_hash(&status.key_id));
    tracing::warn!(%provider, %key_id, "the KMS uses another key now");
    plugin.renew_write_state(&status, validity).await
}
