use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;

use rayon::prelude::*;

use super::input::Input;

/// Values that must not be in a file any more.
///
/// The file is searched byte by byte, whatever its pages say: by the last bytes of each value, and where those are, by all of it.
#[derive(Debug)]
pub struct Remnants {
    hasher: RandomState,
    /// By the rolling hash of the last bytes: where the value is in the original, and how long it is.
    removed: HashMap<u64, Vec<(u64, u32)>>,
    /// Whether some value has a hash with these bits.
    filter: Vec<u64>,
    /// The hashes of values that stay: they may be the same as some that go.
    kept: std::collections::HashSet<u64>,
}

/// A value that goes, and where in the original it is.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    tail: u64,
    offset: u64,
    len: u32,
}

/// A value that stays.
#[derive(Clone, Copy, Debug)]
pub struct Kept(u64);

/// How many bytes of a value are looked for first. Shorter values may be anywhere by chance.
const TAIL: usize = 16;
const FILTER_BITS: u32 = 24;
/// So much is searched at once by one thread.
const CHUNK: u64 = 4 * 1024 * 1024;
/// Any odd number will do.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes what [`Remnants`] notes of values.
#[derive(Clone, Debug)]
pub struct Marker(RandomState);

impl Marker {
    /// What is noted of a value that goes; nothing of a short one. `offset` is where in the original it begins.
    #[must_use]
    pub fn removed(&self, value: &[u8], offset: u64) -> Option<Removed> {
        let tail = value.last_chunk::<TAIL>()?;
        Some(Removed { tail: hash_of(tail), offset, len: u32::try_from(value.len()).ok()? })
    }

    /// What is noted of a value that stays; nothing of a short one.
    #[must_use]
    pub fn kept(&self, value: &[u8]) -> Option<Kept> {
        (value.len() >= TAIL).then(|| Kept(self.0.hash_one(value)))
    }
}

impl Default for Remnants {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            removed: HashMap::new(),
            filter: vec![0; 1 << (FILTER_BITS - 6)],
            kept: std::collections::HashSet::new(),
        }
    }
}

/// The hash of a run of bytes that can move on by a byte.
fn hash_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1))
}

fn filter_place(hash: u64) -> (usize, u64) {
    let bits = hash.wrapping_mul(BASE) >> (64 - FILTER_BITS);
    (usize::try_from(bits / 64).unwrap_or(0), 1 << (bits % 64))
}

impl Remnants {
    /// Makes what is to be noted, on any thread.
    #[must_use]
    pub fn marker(&self) -> Marker {
        Marker(self.hasher.clone())
    }

    /// Notes a value that goes.
    pub fn remove(&mut self, removed: Removed) {
        let Removed { tail, offset, len } = removed;
        let (word, bit) = filter_place(tail);
        if let Some(word) = self.filter.get_mut(word) {
            *word |= bit;
        }
        self.removed.entry(tail).or_default().push((offset, len));
    }

    /// Notes a value that stays.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.insert(kept.0);
    }

    /// Where in `file` a value is that should have gone from `original`, in bytes.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read.
    pub fn find(&self, original: &Input, file: &Input) -> io::Result<Option<u64>> {
        if self.removed.is_empty() {
            return Ok(None);
        }
        let chunks = file.len().div_ceil(CHUNK);
        let found = (0..chunks).into_par_iter().map(|chunk| self.find_in_chunk(original, file, chunk * CHUNK));
        found.try_reduce(|| None, |a, b| Ok(a.into_iter().chain(b).min()))
    }

    fn find_in_chunk(&self, original: &Input, file: &Input, start: u64) -> io::Result<Option<u64>> {
        // A tail that ends in this chunk may begin in the one before.
        let from = start.saturating_sub(TAIL as u64 - 1);
        let end = file.len().min(start + CHUNK);
        let mut bytes = Vec::new();
        file.read_into(from, end - from, &mut bytes)?;
        let Some(first) = bytes.first_chunk::<TAIL>() else { return Ok(None) };
        let mut hash = hash_of(first);
        let leaving = (0..TAIL - 1).fold(BASE, |power: u64, _| power.wrapping_mul(BASE));
        for at in TAIL..=bytes.len() {
            let (word, bit) = filter_place(hash);
            if self.filter.get(word).is_some_and(|word| word & bit != 0)
                && let Some(places) = self.removed.get(&hash)
            {
                for (offset, len) in places {
                    let tail_end = from + at as u64;
                    if self.is_there(original, file, *offset, *len, tail_end)? {
                        return Ok(Some(tail_end - u64::from(*len)));
                    }
                }
            }
            if let (Some(old), Some(new)) = (bytes.get(at - TAIL), bytes.get(at)) {
                hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*new) + 1);
                hash = hash.wrapping_sub(leaving.wrapping_mul(u64::from(*old) + 1));
            }
        }
        Ok(None)
    }

    fn is_there(&self, original: &Input, file: &Input, offset: u64, len: u32, end: u64) -> io::Result<bool> {
        let Some(start) = end.checked_sub(u64::from(len)) else { return Ok(false) };
        let (mut value, mut there) = (Vec::new(), Vec::new());
        original.read_into(offset, u64::from(len), &mut value)?;
        file.read_into(start, u64::from(len), &mut there)?;
        Ok(value == there && !self.kept.contains(&self.hasher.hash_one(&value[..])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_wherever_it_is_and_only_as_a_whole() {
        let value: Vec<u8> = (0..100_u8).map(|number| number.wrapping_mul(7)).collect();
        let original = Input::from([&[9; 50][..], &value].concat());
        let mut remnants = Remnants::default();
        let removed = remnants.marker().removed(&value, 50).unwrap();
        remnants.remove(removed);
        let chunk = usize::try_from(CHUNK).unwrap();
        for at in [0, 1, 63, chunk - 100, chunk - 50, chunk - 1, chunk, chunk + 5] {
            let file = [vec![1; at], value.clone(), vec![2; 70]].concat();
            assert_eq!(remnants.find(&original, &Input::from(file.clone())).unwrap(), Some(at as u64), "{at}");
            let mut cut = file;
            cut[at] ^= 1;
            assert_eq!(remnants.find(&original, &Input::from(cut)).unwrap(), None, "{at}");
        }
        let kept = remnants.marker().kept(&value).unwrap();
        remnants.keep(kept);
        assert_eq!(remnants.find(&original, &Input::from(value.clone())).unwrap(), None);
    }
}
