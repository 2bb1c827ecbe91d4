use std::ops::ControlFlow;

use super::{RebuildOptions, Rebuilt};
use crate::snapshot::bbolt::Element;
use crate::snapshot::records::{self, RecordKind};
use crate::snapshot::{BadRecord, Error, Snapshot, View, schema};

/// Where a record is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) key_len: u8,
    pub(super) len: u32,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// The records that will be written.
pub(super) struct Planned {
    pub(super) places: Vec<Place>,
    pub(super) history_dropped: bool,
    pub(super) rebuilt: Rebuilt,
}

pub(super) fn plan(snapshot: &Snapshot, options: &RebuildOptions<'_>) -> Result<Planned, Error> {
    let drops = |key: &[u8]| options.drop_key.is_some_and(|drop_key| drop_key(key));
    let bucket = snapshot.db().bucket(schema::KEY).ok_or(Error::NoKeyBucket { buckets: Vec::new() })?;
    let mut places = Vec::new();
    let mut rebuilt = Rebuilt::default();
    let mut bad = None;
    // The last revision of all records, and of those that stay.
    let (mut last, mut last_kept) = (None, None);
    let element = |element: Element<'_>| {
        let record = match records::parse(&element) {
            Ok(record) => record,
            Err(error) => {
                let Element { page, index, offset, .. } = element;
                bad = Some(BadRecord { page, element: index, offset, error });
                return ControlFlow::Break(());
            }
        };
        rebuilt.records_before += 1;
        last = Some(record.revision.main);
        if record.kind() != RecordKind::RevisionBump && drops(record.kv.key) {
            rebuilt.dropped += 1;
            return ControlFlow::Continue(());
        }
        last_kept = last;
        let (Ok(key_len), Ok(len)) = (u8::try_from(element.key.len()), u32::try_from(element.value.len())) else {
            return ControlFlow::Continue(());
        };
        places.push(Place { offset: element.offset, key_len, len });
        ControlFlow::Continue(())
    };
    snapshot.db().elements(bucket, element, |_| {})?;
    if let Some(bad) = bad {
        return Err(Error::BadRecord(bad));
    }
    rebuilt.head = snapshot.meta().head(last);
    // Were it not said that the store was compacted there, its revision would go backwards.
    let history_dropped = options.drop_history || snapshot.meta().head(last_kept) < rebuilt.head;
    if history_dropped {
        let live = snapshot.live_offsets(&View::default())?;
        places.retain(|place| live.binary_search(&(place.offset + u64::from(place.key_len))).is_ok());
    }
    Ok(Planned { places, history_dropped, rebuilt })
}
