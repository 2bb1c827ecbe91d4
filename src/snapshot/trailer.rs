use std::fmt;
use std::io;
use std::ops::ControlFlow;

use serde::Serialize;

use super::bbolt::Meta;
use super::input::Input;

/// The SHA-256 that `etcdctl snapshot save` appends to the pages, and `restore` wants. `snapshot status` does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Trailer {
    /// It is there, and right.
    Ok,
    /// It is there, and the bytes before it are others, or it is.
    Mismatch,
    /// There are 32 zero bytes in its place: somebody left the hash out. Nothing is known to be wrong.
    Zeroed,
    /// There is none: the file is a copy of a data directory's database, or was cut off exactly there.
    Missing {
        /// So many zero bytes follow the pages, as bbolt leaves them in a data directory.
        zeros: u64,
    },
    /// What follows the pages is none.
    Unexpected {
        /// How many bytes follow.
        bytes: u64,
    },
    /// The file ends before the last page.
    CutOff {
        /// How many bytes are missing at least.
        missing: u64,
    },
}

/// The length of the hash, in bytes.
const LEN: usize = 32;

impl Trailer {
    /// Looks behind the pages, and hashes them where there is something to compare.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn check(input: &Input, meta: &Meta) -> io::Result<Self> {
        // Checked when the meta page was read.
        let pages = meta.high_water.saturating_mul(meta.page_size);
        let Some(bytes) = input.len().checked_sub(pages) else {
            return Ok(Self::CutOff { missing: pages - input.len() });
        };
        if bytes == 0 {
            return Ok(Self::Missing { zeros: 0 });
        }
        // etcd's own test for a hash; whatever stands before it is hashed.
        let is_hash = bytes == LEN as u64 || input.len() % 512 == LEN as u64;
        let body = input.len().saturating_sub(LEN as u64);
        if !is_hash {
            let zeros = is_zero(input, pages)?;
            return Ok(if zeros { Self::Missing { zeros: bytes } } else { Self::Unexpected { bytes } });
        }
        let mut stored = [0; LEN];
        input.read_at(body, &mut stored)?;
        if stored == [0; LEN] {
            return Ok(match bytes == LEN as u64 {
                true => Self::Zeroed,
                false if is_zero(input, pages)? => Self::Missing { zeros: bytes },
                false => Self::Unexpected { bytes },
            });
        }
        Ok(if input.sha256(body)? == stored { Self::Ok } else { Self::Mismatch })
    }

    /// Whether the file is known to be other than it was written.
    #[must_use]
    pub const fn is_wrong(self) -> bool {
        matches!(self, Self::Mismatch | Self::Unexpected { .. } | Self::CutOff { .. })
    }
}

fn is_zero(input: &Input, from: u64) -> io::Result<bool> {
    let seen = input.chunks(from..input.len(), |chunk| match chunk.iter().all(|byte| *byte == 0) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    })?;
    Ok(seen.is_continue())
}

impl fmt::Display for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("SHA-256 right"),
            Self::Mismatch => f.write_str("SHA-256 does not match: the file is not as it was written"),
            Self::Zeroed => f.write_str("SHA-256 zeroed: nothing to compare with"),
            Self::Missing { zeros: 0 } => f.write_str("no SHA-256: not written by `snapshot save`, or cut off"),
            Self::Missing { zeros } => write!(f, "no SHA-256; {zeros} zero bytes follow the pages"),
            Self::Unexpected { bytes } => {
                write!(f, "no SHA-256: {bytes} bytes that belong to nothing follow the pages")
            }
            Self::CutOff { missing } => {
                write!(f, "no SHA-256: the file ends {missing} bytes before its last page: incomplete download?")
            }
        }
    }
}
