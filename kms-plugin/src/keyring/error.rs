use std::io;
use std::path::PathBuf;

use super::seal::Method;

/// What is wrong with a keyring's file, or with what was asked of it. The path of the keyring is added by [`FileError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system says no.
    #[error("cannot {action} it")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is a file already, and it may hold the only copy of keys.
    #[error("it exists already, and is not overwritten")]
    Exists,
    /// The file that is to be replaced is a symbolic link.
    #[error("it is a symbolic link: name the file itself")]
    SymbolicLink,
    /// A folder, a pipe, a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// Over 1 MiB.
    #[error("it is larger than any keyring")]
    TooLarge,
    /// Others than the owner may read or write keys that lie there in the clear.
    #[error("it is not sealed, and others than its owner have access to it (mode {mode:03o})")]
    Mode {
        /// The mode.
        mode: u32,
    },
    /// Keys in the clear come from a user who is neither we nor root.
    #[error("it is not sealed, and belongs to user {uid}, who is neither this one nor root")]
    Owner {
        /// The user.
        uid: u32,
    },
    /// Another process keeps its lock.
    #[error("another process is changing it")]
    Busy,
    /// No JSON object with `"format": "atrest-keyring"`.
    #[error("it is not a keyring")]
    NotAKeyring,
    /// Written by a later program.
    #[error("it is a keyring of format version {version}; this program reads version 1")]
    Version {
        /// The version.
        version: u64,
    },
    /// The text around is not quoted: it may be a key.
    #[error("it is damaged at line {line}, column {column}")]
    Malformed {
        /// From 1.
        line: usize,
        /// From 1; 0 is the end of the line before.
        column: usize,
    },
    /// Well-formed, and contradictory.
    #[error("{0}")]
    Invalid(&'static str),
    /// The parameters of the key derivation are out of bounds, so that nobody makes us use all memory or hours.
    #[error("its key derivation asks for more, or less, than is allowed")]
    KdfBounds,
    /// What the operator says and what the file says are not the same. Somebody may have put another file there.
    #[error("{}", mismatch(*actual, *given))]
    SealMismatch {
        /// What the file says.
        actual: Method,
        /// What the operator says.
        given: Method,
    },
    /// It cannot be said which of the two.
    #[error("it does not open: the passphrase is wrong, or the file is damaged")]
    Locked,
    /// The file with the passphrase.
    #[error("cannot read the passphrase in {}", path.display())]
    PassphraseFile {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nothing, or only an end of line.
    #[error("the passphrase in {} is empty", path.display())]
    EmptyPassphrase {
        /// Where.
        path: PathBuf,
    },
    /// Over 64 KiB.
    #[error("the passphrase in {} is too long", path.display())]
    LongPassphrase {
        /// Where.
        path: PathBuf,
    },
    /// The name of a credential has a slash, or is empty.
    #[error("a credential's name is that of a file, without a folder")]
    CredentialName,
    /// `CREDENTIALS_DIRECTORY` is not set.
    #[error("systemd gave this process no credentials")]
    NoCredentials,
    /// They would change nothing.
    #[error("--tpm-tcti and --tpm-pcrs are for keyrings that a TPM seals")]
    TpmFlagsAlone,
    /// Built without the feature `tpm`.
    #[error("this program was built without support for TPMs")]
    NoTpmSupport,
    /// The TPM, or the way to it.
    #[cfg(feature = "tpm")]
    #[error("the TPM does not do it")]
    Tpm(#[source] super::tpm::TpmError),
    /// Letters, digits, `-`, `_` and `.`, at most 63 bytes.
    #[error("not a key ID")]
    KeyIdForm,
    /// The keyring has no such key.
    #[error("no key has the ID {key_id}")]
    UnknownKey {
        /// As the operator gave it.
        key_id: String,
    },
    /// The key was there.
    #[error("the key {key_id} was retired on {when}")]
    Retired {
        /// As the operator gave it.
        key_id: String,
        /// RFC 3339.
        when: String,
    },
    /// The key that encrypts cannot go.
    #[error("the key {key_id} is the current one")]
    CurrentKey {
        /// As the operator gave it.
        key_id: String,
    },
    /// API servers may still write by the key.
    #[error("the key {key_id} has stopped encrypting less than 10 minutes ago")]
    Settling {
        /// As the operator gave it.
        key_id: String,
        /// Until it may go.
        seconds: u64,
    },
    /// There is nothing to activate.
    #[error("no key is staged")]
    NothingStaged,
    /// It is not clear which to activate.
    #[error("{count} keys are staged: say which")]
    SeveralStaged {
        /// How many.
        count: usize,
    },
    /// 1024 keys, or 4096 retired ones.
    #[error("it has as many keys as a keyring can have")]
    Full,
    /// The operating system gives no random bytes.
    #[error("no random bytes")]
    Random,
    /// The clock is far off.
    #[error("the clock shows no date")]
    Clock,
}

/// What is wrong with which file.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct FileError {
    /// The keyring.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub source: Error,
}

impl Error {
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

fn mismatch(actual: Method, given: Method) -> String {
    match (actual, given) {
        (Method::None, _) => format!("it is not sealed, although {given} is given"),
        (_, Method::None) => format!("it is sealed by {actual}, which is not given"),
        _ => format!("it is sealed by {actual}, and {given} is given"),
    }
}
