use std::fmt;

use super::damage::{Error, NoMeta, Warning};
use crate::snapshot::input::Input;

/// The size of a page's header, in bytes.
pub(super) const HEADER: u64 = 16;
/// The size of a meta page's body, in bytes.
const BODY: usize = 64;
/// The flags of a meta page.
pub(super) const FLAGS: u16 = 0x04;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// The page number that says that the freelist is not stored: etcd on Linux never stores it.
const NO_FREELIST: u64 = u64::MAX;
const MIN_PAGE_SIZE: u64 = 512;
const MAX_PAGE_SIZE: u64 = 16 * 1024 * 1024;
/// Two meta pages and the root bucket's page.
const MIN_HIGH_WATER: u64 = 3;

/// One of the two pages that say where the tree begins (bbolt `internal/common/meta.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The size of a page, in bytes.
    pub page_size: u64,
    /// The page of the root bucket.
    pub root: u64,
    /// The page of the freelist, unless it is not stored.
    pub freelist: Option<u64>,
    /// The first page that was never allocated: the high-water mark.
    pub high_water: u64,
    /// The transaction that wrote it.
    pub txid: u64,
}

/// Why a meta page is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidMeta {
    /// The file ends before it.
    Missing,
    /// Not bbolt's magic number.
    Magic,
    /// The magic number backwards: the file comes from a big-endian machine (s390x).
    BigEndian,
    /// Another version of the format.
    Version(u32),
    /// The checksum does not match: the page is damaged, or its last write was not finished.
    Checksum,
    /// The checksum is 0, which bbolt up to 1.3.6 took, and later versions do not.
    NoChecksum,
    /// The size of a page is no power of two from 512 bytes to 16 MiB.
    PageSize(u32),
    /// The file has no room for two pages of that size.
    FileTooSmall,
    /// The root bucket's page is a meta page, or was never allocated.
    Root(u64),
    /// The high-water mark cannot be.
    HighWater(u64),
}

impl fmt::Display for InvalidMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the file ends before it"),
            Self::Magic => f.write_str("not bbolt's magic number"),
            Self::BigEndian => f.write_str("written by a big-endian machine"),
            Self::Version(version) => write!(f, "version {version}, not 2"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::NoChecksum => f.write_str("no checksum"),
            Self::PageSize(size) => write!(f, "a page size of {size} bytes"),
            Self::FileTooSmall => f.write_str("the file is smaller than two of its pages"),
            Self::Root(page) => write!(f, "page {page} as the root"),
            Self::HighWater(page) => write!(f, "a high-water mark of {page}"),
        }
    }
}

/// Which meta page to believe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaChoice {
    /// The newer one that is valid.
    #[default]
    Auto,
    /// The first.
    First,
    /// The second. In the database of a data directory the older one often still has the state before the last commit.
    Second,
}

/// A meta page, with what is wrong with it although it can be used.
#[derive(Clone, Copy)]
struct Candidate {
    meta: Meta,
    without_checksum: bool,
}

/// What the meta pages say.
pub(super) struct Metas {
    pub(super) chosen: Meta,
    pub(super) both: [Result<Meta, InvalidMeta>; 2],
    pub(super) warnings: Vec<Warning>,
}

/// Finds the meta pages and chooses one. `lenient` also takes what later versions of bbolt refuse, and says so.
pub(super) fn read(input: &Input, choice: MetaChoice, lenient: bool) -> Result<Metas, Error> {
    if input.is_empty() {
        return Err(Error::Empty);
    }
    let first = parse(input, 0);
    let page_size = match first {
        Ok(candidate) => Some(candidate.meta.page_size),
        // The second page lies where its own page size says.
        Err(_) => (9..=24).map(|shift| 1 << shift).find(|size| {
            let at_its_place = |candidate: Candidate| candidate.meta.page_size == *size;
            parse(input, *size).is_ok_and(at_its_place)
        }),
    };
    let second = page_size.map_or(Err(InvalidMeta::Missing), |size| parse(input, size));
    let both = [first, second];
    let failed = |both: [Result<Candidate, InvalidMeta>; 2]| match both.map(Result::err) {
        [Some(InvalidMeta::BigEndian), _] => Error::BigEndian,
        [Some(InvalidMeta::Magic), None | Some(InvalidMeta::Missing | InvalidMeta::Magic)] => Error::NotBbolt,
        [first, second] => Error::NoMeta(NoMeta { first, second }),
    };
    let mut warnings = Vec::new();
    // Newest first; a snapshot has its newer one always in page 0, a data directory in either.
    let mut usable: Vec<_> = (0u8..)
        .zip(both)
        .filter_map(|(number, meta)| meta.ok().map(|candidate| (number, candidate)))
        .filter(|(_, candidate)| lenient || !candidate.without_checksum)
        .collect();
    match choice {
        MetaChoice::Auto => usable.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.meta.txid)),
        MetaChoice::First => usable.retain(|(number, _)| *number == 0),
        MetaChoice::Second => usable.retain(|(number, _)| *number == 1),
    }
    if usable.is_empty() {
        let refused = both.map(|meta| match meta {
            Ok(Candidate { without_checksum: true, .. }) => Err(InvalidMeta::NoChecksum),
            meta => meta,
        });
        return Err(failed(refused));
    }
    let mut chosen = None;
    let mut reasons = [None, None];
    for (number, candidate) in usable {
        match plausible(&candidate.meta) {
            Ok(()) => {
                chosen = Some((number, candidate));
                break;
            }
            Err(reason) => {
                if let Some(place) = reasons.get_mut(usize::from(number)) {
                    *place = Some(reason);
                }
                warnings.push(Warning::MetaInvalid { number, reason });
                // The newest is damaged in a way that its checksum covers: going on with an older one must be asked for.
                if !lenient {
                    break;
                }
            }
        }
    }
    let Some((number, candidate)) = chosen else {
        return Err(Error::NoMeta(NoMeta {
            first: reasons[0].or(both[0].err()),
            second: reasons[1].or(both[1].err()),
        }));
    };
    for (other, meta) in (0u8..).zip(both) {
        match meta {
            Err(reason) => warnings.push(Warning::MetaInvalid { number: other, reason }),
            Ok(meta) if meta.meta.txid > candidate.meta.txid && choice != MetaChoice::Auto => {
                warnings.push(Warning::OlderMeta { number });
            }
            Ok(_) => {}
        }
    }
    if candidate.without_checksum {
        warnings.push(Warning::MetaInvalid { number, reason: InvalidMeta::NoChecksum });
    }
    let meta = candidate.meta;
    if meta.high_water.checked_mul(meta.page_size).is_none_or(|end| end > input.len()) {
        warnings.push(Warning::FileShorterThanHighWater { pages: meta.high_water });
    }
    Ok(Metas { chosen: meta, both: both.map(|meta| meta.map(|candidate| candidate.meta)), warnings })
}

fn parse(input: &Input, page_offset: u64) -> Result<Candidate, InvalidMeta> {
    let mut body = [0; BODY];
    input.read_at(page_offset + HEADER, &mut body).map_err(|_| InvalidMeta::Missing)?;
    let u32_at = |at: usize| body.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| body.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    match u32_at(0) {
        MAGIC => {}
        magic if magic == MAGIC.swap_bytes() => return Err(InvalidMeta::BigEndian),
        _ => return Err(InvalidMeta::Magic),
    }
    if u32_at(4) != VERSION {
        return Err(InvalidMeta::Version(u32_at(4)));
    }
    let (sum, stored) = (fnv1a(body.get(..56).unwrap_or_default()), u64_at(56));
    if sum != stored && stored != 0 {
        return Err(InvalidMeta::Checksum);
    }
    let page_size = u64::from(u32_at(8));
    if !page_size.is_power_of_two() || !(MIN_PAGE_SIZE..=MAX_PAGE_SIZE).contains(&page_size) {
        return Err(InvalidMeta::PageSize(u32_at(8)));
    }
    if input.len() < 2 * page_size {
        return Err(InvalidMeta::FileTooSmall);
    }
    let freelist = u64_at(32);
    let meta = Meta {
        page_size,
        root: u64_at(16),
        freelist: (freelist != NO_FREELIST).then_some(freelist),
        high_water: u64_at(40),
        txid: u64_at(48),
    };
    Ok(Candidate { meta, without_checksum: stored == 0 && sum != 0 })
}

/// What bbolt does not check, and reading needs.
fn plausible(meta: &Meta) -> Result<(), InvalidMeta> {
    if meta.high_water < MIN_HIGH_WATER || meta.high_water.checked_mul(meta.page_size).is_none() {
        return Err(InvalidMeta::HighWater(meta.high_water));
    }
    if !(2..meta.high_water).contains(&meta.root) {
        return Err(InvalidMeta::Root(meta.root));
    }
    Ok(())
}

/// FNV-1a of 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The body of a meta page.
pub(super) fn encode(meta: &Meta) -> [u8; BODY] {
    let mut body = Vec::with_capacity(BODY);
    body.extend_from_slice(&MAGIC.to_le_bytes());
    body.extend_from_slice(&VERSION.to_le_bytes());
    // A page size is at most 16 MiB.
    body.extend_from_slice(&u32::try_from(meta.page_size).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&0u32.to_le_bytes());
    for number in [meta.root, 0, meta.freelist.unwrap_or(NO_FREELIST), meta.high_water, meta.txid] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    let sum = fnv1a(&body);
    body.extend_from_slice(&sum.to_le_bytes());
    body.try_into().unwrap_or([0; BODY])
}
