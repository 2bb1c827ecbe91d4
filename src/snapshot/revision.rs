use std::fmt;

/// The revision of a record: etcd's `mvcc.revision`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// The revision of the store: one for each transaction that writes.
    pub main: i64,
    /// The position in the transaction.
    pub sub: i64,
}

/// Why the key of a record is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRevision {
    /// It has neither 17 bytes nor 18.
    #[error("a revision of {0} bytes")]
    Length(usize),
    /// There is no underscore between the two numbers.
    #[error("a revision without its separator")]
    Separator,
    /// A number is negative.
    #[error("a negative revision")]
    Negative,
}

impl Revision {
    /// Reads a key of the bucket `key`, and whether it is that of a deletion:
    /// `main i64 "_" sub i64`, big-endian, and `t` for a deletion (etcd `mvcc.BytesToRev`, `isTombstone`).
    ///
    /// # Errors
    ///
    /// When it is none. etcd itself would read it all the same, or panic.
    pub fn parse(key: &[u8]) -> Result<(Self, bool), InvalidRevision> {
        let tombstone = match key.len() {
            17 => false,
            18 => key.last() == Some(&b't'),
            len => return Err(InvalidRevision::Length(len)),
        };
        let (main, rest) = key.split_first_chunk().ok_or(InvalidRevision::Length(key.len()))?;
        let rest = rest.strip_prefix(b"_").ok_or(InvalidRevision::Separator)?;
        let (sub, _) = rest.split_first_chunk().ok_or(InvalidRevision::Length(key.len()))?;
        let revision = Self { main: i64::from_be_bytes(*main), sub: i64::from_be_bytes(*sub) };
        if revision.main < 0 || revision.sub < 0 {
            return Err(InvalidRevision::Negative);
        }
        Ok((revision, tombstone))
    }

    /// The key of a put at this revision.
    #[must_use]
    pub fn to_key(self) -> [u8; 17] {
        let mut key = [b'_'; 17];
        if let Some(main) = key.first_chunk_mut() {
            *main = self.main.to_be_bytes();
        }
        if let Some(sub) = key.last_chunk_mut() {
            *sub = self.sub.to_be_bytes();
        }
        key
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart_and_put_together() {
        let key = Revision { main: 0x0102, sub: 3 }.to_key();
        assert_eq!(&key, b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03");
        assert_eq!(Revision::parse(&key), Ok((Revision { main: 0x0102, sub: 3 }, false)));
        let tombstone = [&key[..], b"t"].concat();
        assert_eq!(Revision::parse(&tombstone), Ok((Revision { main: 0x0102, sub: 3 }, true)));
        // An 18-byte key with another last byte is a normal revision to etcd.
        assert_eq!(Revision::parse(&[&key[..], b"x"].concat()), Ok((Revision { main: 0x0102, sub: 3 }, false)));
    }

    #[test]
    fn other_keys_are_none() {
        assert_eq!(Revision::parse(b"12345"), Err(InvalidRevision::Length(5)));
        assert_eq!(Revision::parse(&[b'-'; 17]), Err(InvalidRevision::Separator));
        let mut key = Revision { main: 1, sub: 0 }.to_key();
        key[8] = b'-';
        assert_eq!(Revision::parse(&key), Err(InvalidRevision::Separator));
        assert_eq!(Revision::parse(&Revision { main: -1, sub: 0 }.to_key()), Err(InvalidRevision::Negative));
        assert_eq!(Revision::parse(&Revision { main: 1, sub: -1 }.to_key()), Err(InvalidRevision::Negative));
    }
}
