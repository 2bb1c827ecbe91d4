//! What to do about a failure.

use std::io;

use atrest_kms_plugin::serve::{Error, SocketError};

use crate::failure::Failure;

pub(crate) fn hint(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Serve(Error::Health { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
            Some("choose another address by --health, or turn the health endpoints off: --health none".to_owned())
        }
        Failure::Serve(Error::Socket(error)) => of_socket(error),
        _ => None,
    }
}

fn of_socket(error: &SocketError) -> Option<String> {
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
        _ => None,
    }
}
