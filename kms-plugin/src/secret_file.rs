//! Files that hold one secret: a passphrase, a PIN, a token.
//!
//! The secret is all bytes but one newline at the end, which editors and `echo` write.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

/// What is in a secret's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// At least one byte.
    Secret(Zeroizing<Vec<u8>>),
    /// Nothing, or only a newline.
    Empty,
    /// More than a secret of its kind has.
    TooLong,
}

/// Reads a file, and warns when others than its owner can. A pipe is waited for.
pub(crate) fn read(path: &Path, max_len: usize) -> io::Result<Contents> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o044 != 0 && !is_credential(path) {
        tracing::warn!("others than its owner can read the secret in {} (mode {mode:03o})", path.display());
    }
    // All at once, so that no part of it stays behind where the buffer lay before.
    let limit = max_len.saturating_add(2);
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(match bytes.len() {
        0 => Contents::Empty,
        len if len > max_len => Contents::TooLong,
        _ => Contents::Secret(bytes),
    })
}

/// Whether it is a credential of systemd: those are in a folder that only the service can enter, and have an ACL for its user, which the
/// mode shows as that of the group.
fn is_credential(path: &Path) -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|dir| path.parent() == Some(Path::new(&dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The passphrase lost one newline, the PIN all of them and carriage returns, and the token all white space on both sides.
    #[test]
    fn a_secret_is_all_of_its_file_but_one_newline() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).expect("it can be written");
            read(file.path(), 4).expect("it can be read")
        };
        let secret = |bytes: &[u8]| Contents::Secret(Zeroizing::new(bytes.to_vec()));
        for (bytes, expected) in [
            (&b"abcd"[..], secret(b"abcd")),
            (b"abcd\n", secret(b"abcd")),
            (b"abc\n\n", secret(b"abc\n")),
            (b"ab\r\n", secret(b"ab\r")),
            (b" ab ", secret(b" ab ")),
            (b"", Contents::Empty),
            (b"\n", Contents::Empty),
            (b"abcde", Contents::TooLong),
            (b"abcde\n", Contents::TooLong),
            (b"abcd\n\n", Contents::TooLong),
        ] {
            assert_eq!(read(bytes), expected, "{bytes:?}");
        }
    }
}
