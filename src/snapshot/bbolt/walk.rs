use std::ops::ControlFlow;

use super::damage::{Damage, DamageKind, Hazard, HazardKind};
use super::leaf::{Child, Element, Leaf, children};
use super::meta::Meta;
use super::page::{BRANCH, LEAF, PageHeader, PageSet, Pager};
use crate::snapshot::input::Input;

/// What a walk meets.
#[derive(Debug)]
pub enum Item<'a> {
    /// An element of a leaf.
    Element(Element<'a>),
    /// Something that cannot be read. The walk goes on behind it.
    Damage(Damage),
    /// Something that can be read, and on which etcd fails later.
    Hazard(Hazard),
    /// Bytes behind the elements of a page, where bbolt writes none.
    Slack {
        /// The page.
        page: u64,
        /// Where in the file the bytes begin.
        offset: u64,
        /// The bytes, the first and last of which are not zero.
        bytes: &'a [u8],
    },
}

/// Far more than any tree has: the marks of the pages end a walk already.
const MAX_DEPTH: usize = 32;

/// A branch that is being walked.
struct Frame {
    children: std::vec::IntoIter<Child>,
    /// Up to which key the branch goes.
    high: Option<Vec<u8>>,
}

/// The keys that belong into a page.
#[derive(Clone, Debug, Default)]
struct Bounds {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Walks a tree in the order of its keys. Each page is visited once at most, whatever refers to it.
pub(super) struct Walk<'a, 'm> {
    pub(super) meta: Meta,
    pub(super) input: &'a Input,
    pub(super) used: &'m mut PageSet,
    /// Whether elements are buckets.
    pub(super) of_buckets: bool,
    pub(super) slack: bool,
}

type Visit<'v> = &'v mut dyn FnMut(Item<'_>) -> ControlFlow<()>;

impl Walk<'_, '_> {
    pub(super) fn tree(&mut self, root: u64, visit: Visit<'_>) -> ControlFlow<()> {
        let mut pager = Pager::new(self.input);
        let mut stack: Vec<Frame> = Vec::new();
        let mut next = Some((root, Bounds::default()));
        let mut last_key = Vec::new();
        let meta = self.meta;
        loop {
            let (page, bounds) = match next.take() {
                Some(next) => next,
                None => {
                    let Some(frame) = stack.last_mut() else { return ControlFlow::Continue(()) };
                    let Some((low, page)) = frame.children.next() else {
                        stack.pop();
                        continue;
                    };
                    let high = frame.children.as_slice().first().map(|(key, _)| key.clone());
                    (page, Bounds { low, high: high.or_else(|| frame.high.clone()) })
                }
            };
            let damage = |element: Option<u16>, kind| {
                Item::Damage(Damage {
                    page,
                    element,
                    offset: page.saturating_mul(meta.page_size),
                    kind,
                    lost: Some((bounds.low.clone(), bounds.high.clone())),
                })
            };
            if stack.len() >= MAX_DEPTH {
                visit(damage(None, DamageKind::TooDeep))?;
                continue;
            }
            let header = match self.enter(&mut pager, page) {
                Ok(header) => header,
                Err(kind) => {
                    visit(damage(None, kind))?;
                    continue;
                }
            };
            let bytes = match pager.run(&self.meta, page, header.overflow) {
                Ok(bytes) => bytes,
                Err(kind) => {
                    visit(damage(None, kind))?;
                    continue;
                }
            };
            if header.flags == BRANCH {
                match children(bytes, header) {
                    Ok(children) if children.is_empty() => visit(damage(None, DamageKind::EmptyBranch))?,
                    Ok(children) => {
                        if children.len() == 1 {
                            visit(Item::Hazard(Hazard { page, kind: HazardKind::OneChild }))?;
                        }
                        let first = children.first().map(|(key, _)| key.as_slice());
                        if !stack.is_empty() && first != Some(&bounds.low) {
                            visit(Item::Hazard(Hazard { page, kind: HazardKind::Separator }))?;
                        }
                        if let Some(index) = out_of_order(&children, &bounds) {
                            // The children are walked all the same: nothing is lost by it.
                            let offset = page.saturating_mul(meta.page_size);
                            let (element, kind) = (Some(index), DamageKind::KeyOrder);
                            visit(Item::Damage(Damage { page, element, offset, kind, lost: None }))?;
                        }
                        stack.push(Frame { children: children.into_iter(), high: bounds.high });
                    }
                    Err((index, kind)) => visit(damage(Some(index), kind))?,
                }
                continue;
            }
            match Leaf::new(page, page * self.meta.page_size, bytes, header) {
                Ok(leaf) => {
                    let first = leaf.element(0).ok().map(|element| element.key);
                    if !stack.is_empty() && first.is_some_and(|first| first != bounds.low) {
                        visit(Item::Hazard(Hazard { page, kind: HazardKind::Separator }))?;
                    }
                    self.leaf(leaf, &bounds, &mut last_key, visit)?;
                }
                Err(kind) => visit(damage(None, kind))?,
            }
        }
    }

    /// Marks a page as used.
    fn enter(&mut self, pager: &mut Pager<'_>, page: u64) -> Result<PageHeader, DamageKind> {
        let header = pager.header(&self.meta, page)?;
        if header.id != page {
            return Err(DamageKind::PageId(header.id));
        }
        if header.flags != BRANCH && header.flags != LEAF {
            return Err(DamageKind::Flags(header.flags));
        }
        let pages = u64::from(header.overflow) + 1;
        if page + pages > self.meta.high_water {
            return Err(DamageKind::OutOfBounds { high_water: self.meta.high_water });
        }
        if page + pages > self.used.pages() {
            return Err(DamageKind::PastEnd { file_len: self.input.len() });
        }
        if !self.used.insert_run(page, pages) {
            return Err(DamageKind::SharedPage);
        }
        Ok(header)
    }

    /// The elements of the page of an inline bucket.
    pub(super) fn inline(&self, page: u64, offset: u64, bytes: &[u8], visit: Visit<'_>) -> ControlFlow<()> {
        let damage = |kind| Item::Damage(Damage { page, element: None, offset, kind, lost: Some((Vec::new(), None)) });
        let Some(header) = PageHeader::parse(bytes) else { return visit(damage(DamageKind::Bucket)) };
        if header.flags != LEAF {
            return visit(damage(DamageKind::Flags(header.flags)));
        }
        match Leaf::new(page, offset, bytes, header) {
            Ok(leaf) => self.leaf(leaf, &Bounds::default(), &mut Vec::new(), visit),
            Err(kind) => visit(damage(kind)),
        }
    }

    fn leaf(&self, leaf: Leaf<'_>, bounds: &Bounds, last_key: &mut Vec<u8>, visit: Visit<'_>) -> ControlFlow<()> {
        let damage = |index, kind, lost| {
            let offset = leaf.offset + 16 + 16 * u64::from(index);
            Item::Damage(Damage { page: leaf.page, element: Some(index), offset, kind, lost })
        };
        let overlap = leaf.overlap();
        // Elements that share bytes could be more work than the file is long.
        let mut left = leaf.bytes.len();
        for index in 0..leaf.count {
            if overlap == Some(index) {
                visit(damage(index, DamageKind::Overlap, None))?;
            }
            let element = match leaf.element(index) {
                Ok(element) => element,
                Err(kind) => {
                    visit(damage(index, kind, None))?;
                    continue;
                }
            };
            let Some(rest) = left.checked_sub(element.key.len() + element.value.len()) else {
                if overlap != Some(index) {
                    visit(damage(index, DamageKind::Overlap, None))?;
                }
                continue;
            };
            left = rest;
            let in_bounds = element.key >= bounds.low.as_slice()
                && bounds.high.as_ref().is_none_or(|high| element.key < high.as_slice());
            // The first key may be empty of bytes before it only when nothing came yet: keys are never empty.
            if !in_bounds || (!last_key.is_empty() && element.key <= last_key.as_slice()) {
                visit(damage(index, DamageKind::KeyOrder, None))?;
            } else {
                last_key.clear();
                last_key.extend_from_slice(element.key);
            }
            if element.is_bucket && !self.of_buckets {
                visit(damage(index, DamageKind::ElementFlags(1), None))?;
                continue;
            }
            visit(Item::Element(element))?;
        }
        if self.slack {
            let end = leaf.data_end();
            let rest = leaf.bytes.get(end..).unwrap_or_default();
            if let Some(first) = rest.iter().position(|byte| *byte != 0) {
                let last = rest.iter().rposition(|byte| *byte != 0).unwrap_or(first);
                let bytes = rest.get(first..=last).unwrap_or_default();
                visit(Item::Slack { page: leaf.page, offset: leaf.offset + (end + first) as u64, bytes })?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The first child whose key is not behind the one before it, or not where the branch's parent has it.
fn out_of_order(children: &[Child], bounds: &Bounds) -> Option<u16> {
    let mut last: Option<&[u8]> = None;
    let at = children.iter().position(|(key, _)| {
        let in_order = last.is_none_or(|last| key.as_slice() > last)
            && *key >= bounds.low
            && bounds.high.as_ref().is_none_or(|high| key < high);
        last = Some(key);
        !in_order
    });
    at.and_then(|at| u16::try_from(at).ok())
}
