use std::io;

use atrest::report::key_id_hash;

use atrest_kms_plugin::keyring::{Error, FileError, Method};
use atrest_kms_plugin::serve::{self, SocketError};

use crate::failure::Failure;

/// What to do about a failure, naming the flag to change. This is the one place for it.
pub(crate) fn hint(failure: &Failure) -> Option<String> {
    match failure {
        Failure::NotConfirmed { key_id } => Some(format!(
            "whether nothing needs it any more is said by `atrest verify --encryption-provider-config FILE --removable {}`; \
             then add --yes",
            key_id_hash(key_id)
        )),
        Failure::Keyring(FileError { path, source }) => match source {
            Error::Settling { seconds, .. } => Some(format!(
                "API servers go on writing by it for some minutes: wait {seconds} s, ask `atrest verify --removable` again, then retire it; \
                 --force does not wait"
            )),
            Error::Mode { .. } => Some(format!("chmod 600 {}", path.display())),
            other => keyring_hint(other).map(str::to_owned),
        },
        Failure::Serve(serve::Error::Health { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
            Some("choose another address by --health, or turn the health endpoints off: --health none".to_owned())
        }
        Failure::Serve(serve::Error::Socket(error)) => socket_hint(error),
        _ => None,
    }
}

fn keyring_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Exists => "a new key for it is made by `rotate`",
        Error::Owner { .. } => {
            "run this as the user that it belongs to, give it to the user that runs this, or seal it"
        }
        Error::SealMismatch { actual: Method::Passphrase, .. } => "give --passphrase-file or --credential",
        Error::SealMismatch { actual: Method::Tpm, .. } => "give --tpm",
        Error::SealMismatch { actual: Method::None, .. } => {
            "if you did not unseal it, somebody else put it there; if you did, leave the flag out"
        }
        Error::CurrentKey { .. } => {
            "let another key encrypt first, by `rotate`, and store everything again by `atrest rekey`"
        }
        Error::UnknownKey { .. } => "the keys are shown by `list`",
        Error::NothingStaged => "make a key by `rotate --stage`, or name one: `rotate --activate KEY_ID`",
        Error::SeveralStaged { .. } => "`rotate --activate KEY_ID`; the keys are shown by `list`",
        Error::NoCredentials => {
            "it works in a unit with LoadCredential= or LoadCredentialEncrypted=, which sets CREDENTIALS_DIRECTORY"
        }
        Error::NoTpmSupport => "build it with `--features tpm`, which needs libtss2-dev",
        _ => return None,
    })
}

fn socket_hint(error: &SocketError) -> Option<String> {
    match error {
        SocketError::NoAddress { .. } => Some("write three slashes: unix:///run/atrest-kms/kms.sock".to_owned()),
        SocketError::NotASocket { path, .. } => {
            Some(format!("choose another path by --listen, or remove {} yourself", path.display()))
        }
        SocketError::InUse { .. } => {
            Some("stop the other process, or choose another socket by --listen: one socket is one plugin".to_owned())
        }
        SocketError::System { operation: "open", source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("create the folder first; systemd does so by RuntimeDirectory=".to_owned())
        }
        SocketError::System { operation: "change the group of", source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Some("its user has to be in that group; in a unit: SupplementaryGroups=".to_owned())
        }
        SocketError::ForeignLock { path } => Some(format!("remove {} yourself", path.display())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another user than root the plugin ended with the system's words alone.
    #[test]
    fn a_group_that_is_not_ours_has_a_hint() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error =
            SocketError::System { operation: "change the group of", address: "/run/kms.sock".to_owned(), source };
        let failure = Failure::Serve(serve::Error::Socket(error));
        let expected = "its user has to be in that group; in a unit: SupplementaryGroups=";
        assert_eq!(hint(&failure).as_deref(), Some(expected));
    }
}
