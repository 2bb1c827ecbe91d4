//! The stream of XSalsa20 (Bernstein, "Extending the Salsa20 nonce"), as secretbox uses it.
//!
//! The first 32 bytes are the key of the authenticator, the rest is for the message. Where the processor has AVX2, eight blocks
//! are made at once; the `salsa20` crate, one block at a time, does a quarter of that.

use salsa20::cipher::consts::U10;
use salsa20::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};
use zeroize::Zeroize as _;

const BLOCK: usize = 64;
/// So many bytes of the stream are made first: the authenticator's key, and enough for a small message.
const FIRST: usize = 8 * BLOCK;
const AUTHENTICATOR_KEY: usize = 32;

pub(super) struct Keystream {
    subkey: [u8; 32],
    nonce: [u8; 8],
    first: [u8; FIRST],
}

impl Drop for Keystream {
    fn drop(&mut self) {
        // As slices: arrays are wiped byte by byte, which takes longer than making them.
        self.subkey.as_mut_slice().zeroize();
        self.first.as_mut_slice().zeroize();
    }
}

impl Keystream {
    pub(super) fn new(key: &[u8; 32], nonce: &[u8; 24]) -> Self {
        let [first @ .., _, _, _, _, _, _, _, _] = nonce;
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, rest @ ..] = nonce;
        let subkey = salsa20::hsalsa::<U10>(key.into(), first.into()).into();
        let mut stream = Self { subkey, nonce: *rest, first: [0; FIRST] };
        let mut first = stream.first;
        stream.xor(0, &mut first);
        stream.first = first;
        first.as_mut_slice().zeroize();
        stream
    }

    pub(super) fn authenticator_key(&self) -> &[u8; AUTHENTICATOR_KEY] {
        let (key, _) = self.first.split_first_chunk().unwrap_or((&[0; AUTHENTICATOR_KEY], &[]));
        key
    }

    /// Encrypts or decrypts a message.
    pub(super) fn apply(&self, message: &mut [u8]) {
        let (_, stream) = self.first.split_at(AUTHENTICATOR_KEY);
        let at = message.len().min(stream.len());
        let (head, tail) = message.split_at_mut(at);
        for (byte, key) in head.iter_mut().zip(stream) {
            *byte ^= key;
        }
        if !tail.is_empty() {
            self.xor((FIRST / BLOCK) as u64, tail);
        }
    }

    /// XORs the stream from a block on.
    fn xor(&self, block: u64, data: &mut [u8]) {
        #[cfg(all(target_arch = "x86_64", feature = "fast-aead"))]
        if let Some(simd) = pulp::x86::V3::try_new() {
            simd.vectorize(avx2::Xor { simd, state: self.state(), block, data });
            return;
        }
        let mut salsa = salsa20::Salsa20::new((&self.subkey).into(), (&self.nonce).into());
        salsa.seek(block * BLOCK as u64);
        salsa.apply_keystream(data);
    }

    /// The block of words that is hashed, with a counter of 0 (Bernstein, "Salsa20 specification", section 9).
    #[cfg(all(target_arch = "x86_64", feature = "fast-aead"))]
    fn state(&self) -> [u32; 16] {
        let word = |bytes: &[u8], i: usize| bytes.as_chunks::<4>().0.get(i).map_or(0, |word| u32::from_le_bytes(*word));
        let (key, nonce) = (|i| word(&self.subkey, i), |i| word(&self.nonce, i));
        // "expand 32-byte k"
        [
            0x6170_7865,
            key(0),
            key(1),
            key(2),
            key(3),
            0x3320_646e,
            nonce(0),
            nonce(1),
            0,
            0,
            0x7962_2d32,
            key(4),
            key(5),
            key(6),
            key(7),
            0x6b20_6574,
        ]
    }
}

#[cfg(all(target_arch = "x86_64", feature = "fast-aead"))]
mod avx2 {
    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, u32x8};

    use super::BLOCK;

    const LANES: usize = 8;

    pub(super) struct Xor<'a> {
        pub(super) simd: V3,
        pub(super) state: [u32; 16],
        pub(super) block: u64,
        pub(super) data: &'a mut [u8],
    }

    impl NullaryFnOnce for Xor<'_> {
        type Output = ();

        #[inline(always)]
        #[expect(clippy::indexing_slicing, reason = "a chunk has no more blocks than there are lanes")]
        fn call(self) {
            let mut block = self.block;
            for chunk in self.data.chunks_mut(LANES * BLOCK) {
                let words = blocks(self.simd, &self.state, block);
                block += LANES as u64;
                for (lane, bytes) in chunk.chunks_mut(BLOCK).enumerate() {
                    let (whole, rest) = bytes.as_chunks_mut::<4>();
                    for (bytes, word) in whole.iter_mut().zip(&words) {
                        *bytes = (u32::from_le_bytes(*bytes) ^ word[lane]).to_le_bytes();
                    }
                    if let Some(word) = words.get(whole.len()) {
                        for (byte, key) in rest.iter_mut().zip(word[lane].to_le_bytes()) {
                            *byte ^= key;
                        }
                    }
                }
            }
        }
    }

    /// Eight blocks: word by word, each with a lane for each block.
    #[inline(always)]
    fn blocks(simd: V3, state: &[u32; 16], block: u64) -> [[u32; LANES]; 16] {
        let mut start = state.map(|word| simd.splat_u32x8(word));
        let counter = |lane: usize| block.wrapping_add(lane as u64);
        #[expect(clippy::cast_possible_truncation, reason = "the counter is two words")]
        let low: [u32; LANES] = std::array::from_fn(|lane| counter(lane) as u32);
        let high: [u32; LANES] = std::array::from_fn(|lane| (counter(lane) >> 32) as u32);
        start[8] = pulp::cast(low);
        start[9] = pulp::cast(high);
        let mut x = start;
        for _ in 0..10 {
            quarter_round(simd, &mut x, [0, 4, 8, 12]);
            quarter_round(simd, &mut x, [5, 9, 13, 1]);
            quarter_round(simd, &mut x, [10, 14, 2, 6]);
            quarter_round(simd, &mut x, [15, 3, 7, 11]);
            quarter_round(simd, &mut x, [0, 1, 2, 3]);
            quarter_round(simd, &mut x, [5, 6, 7, 4]);
            quarter_round(simd, &mut x, [10, 11, 8, 9]);
            quarter_round(simd, &mut x, [15, 12, 13, 14]);
        }
        let mut words = [[0; LANES]; 16];
        for ((words, x), start) in words.iter_mut().zip(x).zip(start) {
            *words = pulp::cast(simd.wrapping_add_u32x8(x, start));
        }
        words
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the indices are the constants above, below 16")]
    fn quarter_round(simd: V3, x: &mut [u32x8; 16], [a, b, c, d]: [usize; 4]) {
        macro_rules! step {
            ($target:ident ^= ($left:ident + $right:ident) <<< $by:literal, $rest:literal) => {
                let sum = simd.wrapping_add_u32x8(x[$left], x[$right]);
                let rotated = simd.or_u32x8(simd.shl_const_u32x8::<$by>(sum), simd.shr_const_u32x8::<$rest>(sum));
                x[$target] = simd.xor_u32x8(x[$target], rotated);
            };
        }
        step!(b ^= (a + d) <<< 7, 25);
        step!(c ^= (b + a) <<< 9, 23);
        step!(d ^= (c + b) <<< 13, 19);
        step!(a ^= (d + c) <<< 18, 14);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use salsa20::XSalsa20;

    use super::*;

    proptest! {
        #[test]
        fn the_stream_is_that_of_xsalsa20(
            key: [u8; 32],
            nonce: [u8; 24],
            message in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            let mut expected = vec![0; AUTHENTICATOR_KEY];
            expected.extend_from_slice(&message);
            XSalsa20::new(&key.into(), &nonce.into()).apply_keystream(&mut expected);
            let stream = Keystream::new(&key, &nonce);
            let mut actual = message;
            stream.apply(&mut actual);
            prop_assert_eq!(&stream.authenticator_key()[..], &expected[..AUTHENTICATOR_KEY]);
            prop_assert_eq!(&actual[..], &expected[AUTHENTICATOR_KEY..]);
        }
    }
}
