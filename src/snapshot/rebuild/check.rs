use super::Rebuilt;
use crate::snapshot::bbolt::Item;
use crate::snapshot::error::Unverified;
use crate::snapshot::hash::{Crc, StatusSum};
use crate::snapshot::{Error, Snapshot, Status, schema};

pub(super) fn add_record(sum: &mut Crc, revision_key: &[u8], encoded: &[u8]) {
    sum.add(&(revision_key.len() as u64).to_le_bytes());
    sum.add(revision_key);
    sum.add(&(encoded.len() as u64).to_le_bytes());
    sum.add(encoded);
}

/// Reads a finished file as strictly as any, and compares its records with those that were meant.
pub(super) fn verify(again: &Snapshot, sums: [u32; 2], rebuilt: &Rebuilt) -> Result<Status, Error> {
    let refused = |what| Err(Error::Unverified(what));
    let (mut sum, mut others) = (Crc::default(), Crc::default());
    let (mut count, mut wrong) = (0, None);
    let mut status = StatusSum::new(again);
    let map = again.db().map_pages(|bucket, item| match item {
        Item::Element(element) => {
            status.add(bucket, &element);
            let is_record = bucket.name == schema::KEY;
            count += u64::from(is_record);
            add_record(if is_record { &mut sum } else { &mut others }, element.key, element.value);
        }
        Item::Damage(damage) => wrong = Some(damage.to_string()),
        Item::Hazard(hazard) => wrong = Some(hazard.to_string()),
        Item::Slack { page, .. } => wrong = Some(format!("page {page} has bytes behind its elements")),
    });
    if let Some(wrong) = wrong {
        return refused(Unverified::Damage(wrong));
    }
    if count != rebuilt.records || [sum.value(), others.value()] != sums {
        return refused(Unverified::Records);
    }
    let meta = again.db().meta();
    let pages = meta.high_water.saturating_mul(meta.page_size);
    if map.used.len() != meta.high_water || !again.db().warnings().is_empty() || again.db().input().len() != pages {
        return refused(Unverified::UnusedPages);
    }
    Ok(status.finish())
}
