use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::census::Census;
use super::markers;
use crate::report::{Progress, ResiduePlace, ResidueReport};
use crate::snapshot::bbolt::Item;
use crate::snapshot::{Carved, Error, Problems, RecordKind, Snapshot, View};

/// Looks through the database: what its tree has, and what the tree has not.
pub(super) fn look_through(
    snapshot: &Snapshot,
    census: &mut Census<'_>,
    report: &mut ResidueReport,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let live = snapshot.live_offsets(&View::default())?;
    let mut problems = Problems::default();
    let mut revisions = Vec::new();
    snapshot.records(&mut problems, |record| {
        if stop.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        revisions.push(record.revision);
        if record.kind() == RecordKind::Put {
            let is_live = live.binary_search(&record.offset).is_ok();
            let place = if is_live { ResiduePlace::Live } else { ResiduePlace::History };
            census.value(place, record.kv.key, record.kv.value, record.offset, false);
        }
        progress.advance(1);
        ControlFlow::Continue(())
    })?;
    report.complete &= problems.is_clean();
    report.notes.extend(problems.lines().into_iter().take(20).map(|line| format!("damaged: {line}")));
    revisions.sort_unstable();
    let mut slack = Vec::new();
    let map = snapshot.db().map_pages(|_, item| {
        if let Item::Slack { offset, bytes, .. } = item {
            slack.push((offset, bytes.len() as u64));
        }
    });
    if !slack.is_empty() {
        report.notes.push(format!("{} pages have bytes behind their elements, where bbolt writes none", slack.len()));
    }
    let input = snapshot.db().input();
    for (offset, len) in slack {
        markers::find(input, offset, len, &mut |marked| census.marked(ResiduePlace::PageSlack, marked))?;
    }
    let mut raw: Vec<(u64, u64)> = Vec::new();
    snapshot.carve(&map.used, |carved| match carved {
        Carved::Record(record) if record.kind() == RecordKind::Put => {
            let is_copy = revisions.binary_search(&record.revision).is_ok();
            census.value(ResiduePlace::FreePages, record.kv.key, record.kv.value, record.offset, is_copy);
        }
        Carved::Record(_) | Carved::Page(_) => {}
        // A value may go on in the next page.
        Carved::Raw { offset, len } => match raw.last_mut() {
            Some((start, before)) if *start + *before == offset => *before += len,
            _ => raw.push((offset, len)),
        },
    })?;
    for (offset, len) in raw {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        markers::find(input, offset, len, &mut |marked| census.marked(ResiduePlace::FreePages, marked))?;
    }
    let meta = snapshot.db().meta();
    let tail = meta.high_water.saturating_mul(meta.page_size);
    markers::find(input, tail, input.len().saturating_sub(tail), &mut |marked| {
        census.marked(ResiduePlace::FileTail, marked);
    })?;
    Ok(())
}
