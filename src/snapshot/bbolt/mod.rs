//! bbolt's file format, version 2: the B+tree in which etcd keeps everything (`go.etcd.io/bbolt`, `internal/common`).
//!
//! ```text
//! page     id u64 · flags u16 · count u16 · overflow u32 · body          little-endian
//! branch   count × { pos u32 · key length u32 · child u64 } · keys
//! leaf     count × { flags u32 · pos u32 · key length u32 · value length u32 } · keys and values
//! bucket   as a value: root u64 · sequence u64, and, when root is 0, a page of its own
//! ```
//!
//! The reader trusts nothing: a page is visited once at most, whatever refers to it, so that a walk ends after as much work as
//! the file is long, and nothing is allocated for bytes that are not there.

mod damage;
mod freelist;
mod leaf;
mod meta;
mod page;
mod walk;
mod writer;

use std::ops::ControlFlow;

pub use damage::{Damage, DamageKind, Error, FreelistProblem, Hazard, HazardKind, NoMeta, Warning};
pub use leaf::Element;
pub(crate) use leaf::Leaf;
pub use meta::{InvalidMeta, Meta, MetaChoice};
pub use page::PageSet;
pub(crate) use page::{LEAF, PageHeader, Pager};
pub use walk::Item;
use walk::Walk;
pub use writer::Writer;

use super::input::Input;

/// What to do about a part that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing that is read may be damaged.
    #[default]
    Strict,
    /// What can be read is, and what cannot is reported.
    Salvage,
}

/// A bucket: etcd has one level of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The name.
    pub name: Vec<u8>,
    /// The page of its tree; 0 when it is inline.
    pub root: u64,
    /// The number of the last sequence drawn; etcd draws none.
    pub sequence: u64,
    inline: Option<Inline>,
}

#[derive(Clone, PartialEq, Eq)]
struct Inline {
    page: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl Bucket {
    /// Whether it is kept within the page of the root bucket.
    #[must_use]
    pub const fn is_inline(&self) -> bool {
        self.inline.is_some()
    }

    fn parse(element: &Element<'_>) -> Result<Self, DamageKind> {
        let (root, rest) = element.value.split_first_chunk().ok_or(DamageKind::Bucket)?;
        let (sequence, page) = rest.split_first_chunk().ok_or(DamageKind::Bucket)?;
        let root = u64::from_le_bytes(*root);
        let inline = match root {
            0 if page.len() < 16 => return Err(DamageKind::Bucket),
            0 => Some(Inline {
                page: element.page,
                offset: element.offset + element.key.len() as u64 + 16,
                bytes: page.to_vec(),
            }),
            _ if !page.is_empty() => return Err(DamageKind::Bucket),
            _ => None,
        };
        Ok(Self { name: element.key.to_vec(), root, sequence: u64::from_le_bytes(*sequence), inline })
    }
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket")
            .field("name", &self.name.escape_ascii().to_string())
            .field("root", &self.root)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// How a database is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What to do about damage.
    pub mode: Mode,
    /// Which meta page to believe.
    pub meta: MetaChoice,
}

/// An open database.
#[derive(Debug)]
pub struct Db {
    input: Input,
    meta: Meta,
    metas: [Result<Meta, InvalidMeta>; 2],
    mode: Mode,
    buckets: Vec<Bucket>,
    /// The pages of the metas and of the root bucket.
    root_pages: PageSet,
    warnings: Vec<Warning>,
    damage: Vec<Damage>,
}

/// More buckets than etcd will ever have.
const MAX_BUCKETS: usize = 10_000;
/// What is kept of the damage in the root bucket.
const MAX_DAMAGE: usize = 1000;

impl Db {
    /// Finds the meta pages and reads the root bucket.
    ///
    /// # Errors
    ///
    /// When it is no such database; in [`Mode::Strict`] also when the root bucket is damaged.
    pub fn open(input: Input, options: Options) -> Result<Self, Error> {
        let metas = meta::read(&input, options.meta, options.mode == Mode::Salvage)?;
        let meta = metas.chosen;
        let pages = meta.high_water.min(input.len().div_ceil(meta.page_size));
        let mut root_pages = PageSet::new(pages);
        root_pages.insert_run(0, 2);
        let mut buckets = Vec::new();
        let mut damage = Vec::new();
        let walk = &mut Walk { meta, input: &input, used: &mut root_pages, of_buckets: true, slack: false };
        _ = walk.tree(meta.root, &mut |item| {
            let found = match item {
                Item::Element(element) if !element.is_bucket || buckets.len() >= MAX_BUCKETS => {
                    // etcd has nothing but buckets here, and not so many.
                    let kind = if element.is_bucket { DamageKind::TooManyBuckets } else { DamageKind::ElementFlags(0) };
                    let index = Some(element.index);
                    Err(Damage { page: element.page, element: index, offset: element.offset, kind, lost: None })
                }
                Item::Element(element) => Bucket::parse(&element).map(|bucket| buckets.push(bucket)).map_err(|kind| {
                    let index = Some(element.index);
                    Damage { page: element.page, element: index, offset: element.offset, kind, lost: None }
                }),
                Item::Damage(damage) => Err(damage),
                Item::Hazard(_) | Item::Slack { .. } => Ok(()),
            };
            if let Err(found) = found {
                if damage.len() < MAX_DAMAGE {
                    damage.push(found);
                }
                if options.mode == Mode::Strict {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        match (options.mode, damage.pop()) {
            (Mode::Strict, Some(damage)) => return Err(Error::Damaged(damage)),
            (_, last) => damage.extend(last),
        }
        let metas_of_both = metas.both;
        let mode = options.mode;
        Ok(Self { input, meta, metas: metas_of_both, mode, buckets, root_pages, warnings: metas.warnings, damage })
    }

    /// The bytes.
    #[must_use]
    pub const fn input(&self) -> &Input {
        &self.input
    }

    /// The meta page that is believed.
    #[must_use]
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Both meta pages.
    pub const fn metas(&self) -> &[Result<Meta, InvalidMeta>; 2] {
        &self.metas
    }

    /// What is done about damage.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The buckets in the order of their names.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// A bucket by its name.
    #[must_use]
    pub fn bucket(&self, name: &[u8]) -> Option<&Bucket> {
        self.buckets.iter().find(|bucket| bucket.name == name)
    }

    /// What was not as it should be when the file was opened.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What of the root bucket cannot be read. In [`Mode::Strict`] there is none.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Visits the elements of a bucket in the order of their keys, and what is damaged among them.
    ///
    /// Returns whether it was walked to the end: `visit` ends it by breaking.
    pub fn walk(&self, bucket: &Bucket, mut visit: impl FnMut(Item<'_>) -> ControlFlow<()>) -> bool {
        self.walk_marking(bucket, &mut self.root_pages.clone(), false, &mut visit).is_continue()
    }

    /// Like [`walk`](Self::walk), but stops with the first damage where the database is read strictly.
    ///
    /// # Errors
    ///
    /// The damage. In [`Mode::Salvage`] it is handed to `damaged`, and the walk goes on.
    pub fn elements(
        &self,
        bucket: &Bucket,
        mut visit: impl FnMut(Element<'_>) -> ControlFlow<()>,
        mut damaged: impl FnMut(Damage),
    ) -> Result<(), Error> {
        let mut first = None;
        self.walk(bucket, |item| match item {
            Item::Element(element) => visit(element),
            Item::Damage(damage) if self.mode == Mode::Strict => {
                first = Some(damage);
                ControlFlow::Break(())
            }
            Item::Damage(damage) => {
                damaged(damage);
                ControlFlow::Continue(())
            }
            Item::Hazard(_) | Item::Slack { .. } => ControlFlow::Continue(()),
        });
        first.map_or(Ok(()), |damage| Err(Error::Damaged(damage)))
    }

    /// Visits the elements of all buckets, each page once: buckets cannot share any.
    ///
    /// # Errors
    ///
    /// As [`elements`](Self::elements).
    pub fn all_elements(
        &self,
        mut visit: impl FnMut(&Bucket, Element<'_>),
        mut damaged: impl FnMut(Damage),
    ) -> Result<(), Error> {
        let mut used = self.root_pages.clone();
        for bucket in &self.buckets {
            let mut first = None;
            _ = self.walk_marking(bucket, &mut used, false, &mut |item| {
                match item {
                    Item::Element(element) => visit(bucket, element),
                    Item::Damage(damage) if self.mode == Mode::Strict => {
                        first = Some(damage);
                        return ControlFlow::Break(());
                    }
                    Item::Damage(damage) => damaged(damage),
                    Item::Hazard(_) | Item::Slack { .. } => {}
                }
                ControlFlow::Continue(())
            });
            if let Some(damage) = first {
                return Err(Error::Damaged(damage));
            }
        }
        Ok(())
    }

    fn walk_marking(
        &self,
        bucket: &Bucket,
        used: &mut PageSet,
        slack: bool,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut walk = Walk { meta: self.meta, input: &self.input, used, of_buckets: false, slack };
        match &bucket.inline {
            Some(inline) => walk.inline(inline.page, inline.offset, &inline.bytes, visit),
            None => walk.tree(bucket.root, visit),
        }
    }

    /// Walks everything, and returns which pages are used. Whatever a free page holds is left over from before.
    ///
    /// `visit` is told the bucket with each item; slack is reported too.
    pub fn map_pages(&self, mut visit: impl FnMut(&Bucket, Item<'_>)) -> PageMap {
        let mut used = self.root_pages.clone();
        for bucket in &self.buckets {
            _ = self.walk_marking(bucket, &mut used, true, &mut |item| {
                visit(bucket, item);
                ControlFlow::Continue(())
            });
        }
        let freelist = freelist::check(&self.input, &self.meta, &mut used);
        PageMap { used, freelist }
    }

    /// Whether someone wrote to the file since it was opened. What was read may then be of two states.
    ///
    /// # Errors
    ///
    /// When the file cannot be looked at any more.
    pub fn has_changed(&self) -> std::io::Result<bool> {
        Ok(self.input.has_changed()?
            || meta::read(&self.input, MetaChoice::Auto, true).map_or(true, |now| {
                now.both.iter().flatten().map(|meta| meta.txid).max()
                    != self.metas.iter().flatten().map(|meta| meta.txid).max()
            }))
    }
}

/// What the pages of a file are used for.
#[derive(Debug)]
pub struct PageMap {
    /// The pages of the metas, the trees and the freelist.
    pub used: PageSet,
    /// What is wrong with the stored freelist.
    pub freelist: Option<FreelistProblem>,
}
