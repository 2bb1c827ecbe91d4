use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;

use rayon::prelude::*;

use super::input::Input;

/// Values that must not be in a file any more.
///
/// The file is searched byte by byte, whatever its pages say: by a few bytes of each value, and where those are, by all of it.
#[derive(Debug)]
pub struct Remnants {
    hasher: RandomState,
    /// The hash of those bytes, where in the value they end, and how long the value is. Values that are alike share it.
    places: Vec<(u64, u32, u32)>,
    /// The hashes of values that go.
    removed: HashSet<u64>,
    /// Whether some value has a hash with these bits.
    filter: Filter,
    /// The same of values without an anchor, which are short.
    unanchored: Filter,
    /// The hashes of values that stay: they may be the same as some that go.
    kept: HashSet<u64>,
}

/// A value that goes.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The hash of its last window that is an anchor, or else of its last.
    window: u64,
    is_anchor: bool,
    /// Where in the value that window ends.
    window_end: u32,
    len: u32,
    /// The hash of all of it.
    value: u64,
}

/// A value that stays.
#[derive(Clone, Copy, Debug)]
pub struct Kept(u64);

/// The length of a window, in bytes. Shorter values may be anywhere by chance.
const WINDOW: usize = 16;
/// One window in so many is an anchor, by its hash: only anchors have to be looked up.
const ANCHOR_BITS: u32 = 6;
/// An anchor is looked for in so many bytes at the end of a value.
const TAIL: usize = 512;
/// So much is searched at once by one thread.
const CHUNK: u64 = 4 * 1024 * 1024;
/// Spreads hashes over a filter.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes what [`Remnants`] notes of values.
#[derive(Clone, Debug)]
pub struct Marker(RandomState);

impl Marker {
    /// What is noted of a value that goes; nothing of a short one.
    #[must_use]
    pub fn removed(&self, value: &[u8]) -> Option<Removed> {
        let mut anchor = None;
        let mut last = None;
        let begin = value.len().saturating_sub(TAIL);
        windows(base(&self.0), value.get(begin..).unwrap_or_default(), |hash, end| {
            last = Some((hash, begin + end));
            if is_anchor(hash) {
                anchor = last;
            }
            true
        });
        // Values begin alike: where they end, ciphertext is its own.
        let (window, window_end) = anchor.or(last)?;
        Some(Removed {
            window,
            is_anchor: anchor.is_some(),
            window_end: u32::try_from(window_end).ok()?,
            len: u32::try_from(value.len()).ok()?,
            value: self.0.hash_one(value),
        })
    }

    /// What is noted of a value that stays; nothing of a short one.
    #[must_use]
    pub fn kept(&self, value: &[u8]) -> Option<Kept> {
        (value.len() >= WINDOW).then(|| Kept(self.0.hash_one(value)))
    }
}

/// What windows are hashed by: odd, and nothing that whoever made the file can know.
fn base(hasher: &RandomState) -> u64 {
    hasher.hash_one(0) | 1
}

fn is_anchor(hash: u64) -> bool {
    hash >> (64 - ANCHOR_BITS) == 0
}

/// Hands the hash of each window, and where it ends, to `visit`, as long as that returns true.
fn windows(base: u64, bytes: &[u8], mut visit: impl FnMut(u64, usize) -> bool) {
    let Some(first) = bytes.first_chunk::<WINDOW>() else { return };
    let step = |hash: u64, byte: u8| hash.wrapping_mul(base).wrapping_add(u64::from(byte) + 1);
    let mut hash = first.iter().fold(0, |hash, byte| step(hash, *byte));
    let leaving = (0..WINDOW).fold(1, |power: u64, _| power.wrapping_mul(base));
    if !visit(hash, WINDOW) {
        return;
    }
    let entering = bytes.iter().skip(WINDOW);
    for (end, (old, new)) in (WINDOW + 1..).zip(bytes.iter().zip(entering)) {
        hash = step(hash, *new).wrapping_sub(leaving.wrapping_mul(u64::from(*old) + 1));
        if !visit(hash, end) {
            return;
        }
    }
}

/// A set of hashes that sometimes says yes for no reason.
#[derive(Debug)]
struct Filter {
    words: Vec<u64>,
    bits: u32,
    is_empty: bool,
}

impl Filter {
    fn new(bits: u32) -> Self {
        Self { words: vec![0; 1 << (bits - 6)], bits, is_empty: true }
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let bit = hash.wrapping_mul(SPREAD) >> (64 - self.bits);
        (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
    }

    fn insert(&mut self, hash: u64) {
        self.is_empty = false;
        let (word, bit) = self.place(hash);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    fn may_contain(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Default for Remnants {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            places: Vec::new(),
            removed: HashSet::new(),
            filter: Filter::new(24),
            // Small enough to stay in the nearest cache: it is asked for each byte.
            unanchored: Filter::new(16),
            kept: HashSet::new(),
        }
    }
}

impl Remnants {
    /// Makes what is to be noted, on any thread.
    #[must_use]
    pub fn marker(&self) -> Marker {
        Marker(self.hasher.clone())
    }

    /// Notes a value that goes.
    pub fn remove(&mut self, removed: Removed) {
        let filter = if removed.is_anchor { &mut self.filter } else { &mut self.unanchored };
        filter.insert(removed.window);
        self.places.push((removed.window, removed.window_end, removed.len));
        self.removed.insert(removed.value);
    }

    /// Notes a value that stays.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.insert(kept.0);
    }

    /// Where in a file a value is that should have gone, in bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn find(mut self, file: &Input) -> io::Result<Option<u64>> {
        if self.places.is_empty() {
            return Ok(None);
        }
        self.places.par_sort_unstable();
        self.places.dedup();
        let chunks = file.len().div_ceil(CHUNK);
        let found = (0..chunks).into_par_iter().map(|chunk| self.find_in_chunk(file, chunk * CHUNK));
        found.try_reduce(|| None, |a, b| Ok(a.into_iter().chain(b).min()))
    }

    fn find_in_chunk(&self, file: &Input, start: u64) -> io::Result<Option<u64>> {
        // A window that ends in this chunk may begin in the one before.
        let from = start.saturating_sub(WINDOW as u64 - 1);
        let end = file.len().min(start + CHUNK);
        let mut bytes = Vec::new();
        file.read_into(from, end - from, &mut bytes)?;
        let mut found = Ok(None);
        windows(base(&self.hasher), &bytes, |hash, window_end| {
            let may_be = match is_anchor(hash) {
                true => self.filter.may_contain(hash),
                false => !self.unanchored.is_empty && self.unanchored.may_contain(hash),
            };
            if may_be {
                found = self.is_there(file, hash, from + window_end as u64);
            }
            matches!(found, Ok(None))
        });
        found
    }

    /// Where a value begins of which this is the window, if it is there as a whole.
    fn is_there(&self, file: &Input, window: u64, end: u64) -> io::Result<Option<u64>> {
        let first = self.places.partition_point(|(hash, ..)| *hash < window);
        let places = self.places.iter().skip(first).take_while(|(hash, ..)| *hash == window);
        let mut value = Vec::new();
        for (_, window_end, len) in places {
            let (Some(start), len) = (end.checked_sub(u64::from(*window_end)), u64::from(*len)) else { continue };
            if start + len > file.len() {
                continue;
            }
            file.read_into(start, len, &mut value)?;
            let hash = self.hasher.hash_one(&value[..]);
            if self.removed.contains(&hash) && !self.kept.contains(&hash) {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: &[u8], file: Vec<u8>, keep: bool) -> Option<u64> {
        let mut remnants = Remnants::default();
        remnants.remove(remnants.marker().removed(value).unwrap());
        if keep {
            remnants.keep(remnants.marker().kept(value).unwrap());
        }
        remnants.find(&Input::from(file)).unwrap()
    }

    /// Values that begin alike, or are alike but for a byte, once took as many comparisons as there were pairs of them.
    #[test]
    fn values_that_are_alike_are_compared_once() {
        let value = |number: u32| [&[b'k'; 500][..], &number.to_be_bytes(), &[b'k'; 500]].concat();
        let mut remnants = Remnants::default();
        for number in 0..2000 {
            remnants.remove(remnants.marker().removed(&value(number)).unwrap());
        }
        let file: Vec<u8> = (2000..3000).flat_map(value).collect();
        let begun = std::time::Instant::now();
        assert_eq!(remnants.find(&Input::from(file)).unwrap(), None);
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_value_is_found_wherever_it_is_and_only_as_a_whole() {
        let chunk = usize::try_from(CHUNK).unwrap();
        // Short values may have no anchor, long ones have some.
        for (len, factor) in [(16, 7_u8), (100, 7), (1000, 31)] {
            let value: Vec<u8> =
                (0..len).map(|number: usize| u8::try_from(number % 251).unwrap().wrapping_mul(factor)).collect();
            for at in [0, 63, chunk - len / 2, chunk] {
                let file = [vec![1; at], value.clone(), vec![2; 70]].concat();
                assert_eq!(found(&value, file.clone(), false), Some(at as u64), "{len} bytes at {at}");
                let mut cut = file;
                cut[at] ^= 1;
                assert_eq!(found(&value, cut, false), None, "{len} bytes at {at}");
            }
            assert_eq!(found(&value, value.clone(), true), None);
        }
        assert!(Remnants::default().marker().removed(&[1; 15]).is_none());
    }
}
