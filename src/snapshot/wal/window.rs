use zeroize::Zeroizing;

use super::{Error, Segment};

/// How much is read at once, in bytes.
const CHUNK_BYTES: u64 = 256 << 10;

/// The part of a segment that is in memory. It is wiped when it is dropped or outgrown.
pub(super) struct Window {
    buffer: Zeroizing<Vec<u8>>,
    /// How much of the buffer is filled.
    filled: usize,
    segment: usize,
    start: u64,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { buffer: Zeroizing::default(), filled: 0, segment: 0, start: 0 }
    }

    /// What there is from `offset` on: at least the `want` bytes, which have to be within the segment.
    pub(super) fn at(&mut self, segments: &[Segment], segment: usize, offset: u64, want: u64) -> Result<&[u8], Error> {
        if self.held(segment, offset).is_none_or(|held| (held.len() as u64) < want) {
            self.fill(segments, segment, offset, want)?;
        }
        Ok(self.held(segment, offset).unwrap_or_default())
    }

    fn held(&self, segment: usize, offset: u64) -> Option<&[u8]> {
        let skip = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.buffer.get(..self.filled)?.get(skip..).filter(|_| self.segment == segment)
    }

    fn fill(&mut self, segments: &[Segment], segment: usize, offset: u64, want: u64) -> Result<(), Error> {
        let Some(file) = segments.get(segment) else { return Ok(()) };
        let failed = |source| Error::Read { name: file.name().to_owned(), offset, source };
        let there = file.len().saturating_sub(offset);
        if want > there {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let len = usize::try_from(want.max(CHUNK_BYTES.min(there)));
        let len = len.map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        self.filled = 0;
        if self.buffer.len() < len {
            // A buffer that grows in place may leave a copy behind.
            self.buffer = Zeroizing::new(vec![0; len]);
        }
        if let Some(buffer) = self.buffer.get_mut(..len) {
            file.input().read_at(offset, buffer).map_err(failed)?;
        }
        (self.filled, self.segment, self.start) = (len, segment, offset);
        Ok(())
    }
}

/// Says where it is and not what is in it.
impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window([{} bytes at {} of segment {}])", self.filled, self.start, self.segment)
    }
}
