use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::get::{self, Options, Read};
use crate::object::changes;
use crate::report::{DiffReport, DiffRow, Difference, Progress, ValueRow};
use crate::snapshot::{Error, Values};
use crate::source::{Source, StoredValue};
use crate::transformer::Header;
use crate::transformer::envelope::{DekResolver, Wanted};

/// Both values of a key, or the one that there is.
struct Pair {
    from: Option<StoredValue>,
    to: Option<StoredValue>,
}

/// Values of one side, in the order of their keys, one after the other.
struct Side {
    values: Values,
    page: std::iter::Peekable<std::vec::IntoIter<StoredValue>>,
}

impl Side {
    fn new(values: Values) -> Self {
        Self { values, page: Vec::new().into_iter().peekable() }
    }

    fn key(&mut self) -> Result<Option<&[u8]>, Error> {
        if self.page.peek().is_none() {
            self.page = self.values.next_values()?.unwrap_or_default().into_iter().peekable();
        }
        Ok(self.page.peek().map(|value| &value.key[..]))
    }
}

/// As many pairs are compared at once.
const PAIRS: usize = 4096;

/// Compares two snapshots, or two revisions of one, value by value. Both must come in the order of their keys.
///
/// # Errors
///
/// When one of them cannot be read.
pub async fn diff(
    from: (String, Values),
    to: (String, Values),
    options: &Options<'_>,
    kms: &impl DekResolver,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<DiffReport, Error> {
    let mut report = DiffReport::new(from.0, to.0);
    report.from_revision = from.1.revision().unwrap_or(0);
    report.to_revision = to.1.revision().unwrap_or(0);
    for problems in [from.1.problems(), to.1.problems()] {
        report.complete &= problems.is_clean();
        report.notes.extend(problems.lines().into_iter().take(20).map(|line| format!("damaged: {line}")));
    }
    let expected = from.1.len().max(to.1.len()) as u64;
    let (mut from, mut to) = (Side::new(from.1), Side::new(to.1));
    progress.begin("comparing", Some(expected));
    while !stop.load(Ordering::Relaxed) {
        let (pairs, same) = next_pairs(&mut from, &mut to)?;
        report.same += same;
        progress.advance(pairs.len() as u64 + same);
        if pairs.is_empty() && same == 0 {
            break;
        }
        let layout = &options.selection.layout;
        let values = pairs.iter().flat_map(|pair| [&pair.from, &pair.to]).flatten();
        let wanted = Wanted::by(options.transformers, layout, values.map(|value| (&value.key[..], &value.value[..])));
        if !wanted.is_empty() {
            kms.resolve(wanted, stop).await;
        }
        let rows: Vec<_> = pairs.par_iter().filter_map(|pair| compare(pair, options)).collect();
        report.rows.extend(rows);
    }
    progress.end();
    report.complete &= !stop.load(Ordering::Relaxed);
    Ok(report)
}

/// The next keys whose stored values are not the same in both, and how many are.
fn next_pairs(from: &mut Side, to: &mut Side) -> Result<(Vec<Pair>, u64), Error> {
    let mut pairs = Vec::new();
    let mut same = 0;
    while pairs.len() < PAIRS && same < 16 * PAIRS as u64 {
        let order = match (from.key()?, to.key()?) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(from), Some(to)) => from.cmp(to),
        };
        let from = if order.is_le() { from.page.next() } else { None };
        let to = if order.is_ge() { to.page.next() } else { None };
        if from.is_some() && from == to {
            same += 1;
        } else {
            pairs.push(Pair { from, to });
        }
    }
    Ok((pairs, same))
}

/// What became of a value; nothing when it is not selected.
fn compare(pair: &Pair, options: &Options<'_>) -> Option<DiffRow> {
    let shown = pair.to.as_ref().or(pair.from.as_ref())?;
    let layout = &options.selection.layout;
    let location = layout.locate(&shown.key);
    if !options.selection.includes(&location) {
        return None;
    }
    let row = |difference, changes| DiffRow {
        value: ValueRow::of(shown, &location, &Header::parse(&shown.value)),
        difference,
        from_revision: pair.from.as_ref().map(|value| value.mod_revision),
        to_revision: pair.to.as_ref().map(|value| value.mod_revision),
        changes,
    };
    let (from, to) = match (&pair.from, &pair.to) {
        (Some(from), Some(to)) => (from, to),
        (None, _) => return Some(row(Difference::Added, Vec::new())),
        (_, None) => return Some(row(Difference::Removed, Vec::new())),
    };
    let object = |value| match get::read(value, options) {
        Read::Object(got, _) => Some(got.object),
        _ => None,
    };
    let (Some(before), Some(after)) = (object(from), object(to)) else {
        // What is no object is compared as bytes.
        let is_plain = |value: &StoredValue| matches!(Header::parse(&value.value), Header::Plaintext);
        let difference = match (is_plain(from) && is_plain(to), from.value == to.value) {
            (true, true) => Difference::Resealed,
            (true, false) => Difference::Changed,
            (false, _) => Difference::Unreadable,
        };
        return Some(row(difference, Vec::new()));
    };
    let differs = |path: &str| path != ".metadata.resourceVersion";
    let found: Vec<_> = changes(&before.value, &after.value)
        .into_iter()
        .filter(|change| differs(&change.path))
        .map(Into::into)
        .collect();
    let difference = match (from.create_revision == to.create_revision, found.is_empty()) {
        (false, false) => Difference::Recreated,
        (_, true) => Difference::Resealed,
        (true, false) => Difference::Changed,
    };
    Some(row(difference, found))
}
