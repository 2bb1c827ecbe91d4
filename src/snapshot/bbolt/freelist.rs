use super::damage::FreelistProblem;
use super::meta::Meta;
use super::page::{FREELIST, PageSet, Pager};
use crate::snapshot::input::Input;

/// The count of a page whose real count is the first of its numbers.
const COUNT_FOLLOWS: u16 = 0xFFFF;

/// Compares the stored freelist with the pages that are used, and adds its own pages to them. Reading does not need it.
pub(super) fn check(input: &Input, meta: &Meta, used: &mut PageSet) -> Option<FreelistProblem> {
    let page = meta.freelist?;
    let mut pager = Pager::new(input);
    let Ok(header) = pager.header(meta, page) else { return Some(FreelistProblem::NoPage(page)) };
    if header.flags != FREELIST || header.id != page {
        return Some(FreelistProblem::Flags(header.flags));
    }
    let Ok(bytes) = pager.run(meta, page, header.overflow) else { return Some(FreelistProblem::NoPage(page)) };
    let mut numbers = bytes
        .get(16..)
        .unwrap_or_default()
        .chunks_exact(8)
        .map(|chunk| chunk.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk)));
    let count = match header.count {
        COUNT_FOLLOWS => numbers.next().unwrap_or(0),
        count => u64::from(count),
    };
    if count > numbers.len() as u64 {
        return Some(FreelistProblem::Count(count));
    }
    let free: Vec<_> = numbers.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
    if !used.insert_run(page, u64::from(header.overflow) + 1) {
        return Some(FreelistProblem::UsedPage(page));
    }
    if let Some(page) = free.iter().find(|page| **page >= meta.high_water) {
        return Some(FreelistProblem::OutOfBounds(*page));
    }
    if let Some((_, page)) = free.iter().zip(free.iter().skip(1)).find(|(page, next)| page >= next) {
        return Some(FreelistProblem::Order(*page));
    }
    if let Some(page) = free.iter().find(|page| used.contains(**page)) {
        return Some(FreelistProblem::UsedPage(*page));
    }
    let unused = used.pages() - used.len();
    let missing = unused.saturating_sub(free.len() as u64);
    (missing > 0).then_some(FreelistProblem::Incomplete { missing })
}
