use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::time::Duration;

use super::Checks;
use crate::config::{DialAddress, Endpoint};
use crate::kms::{Connection, Error};

/// Whether somebody listens, and who may connect.
pub(super) async fn check(endpoint: &Endpoint, timeout: Duration, checks: &mut Checks) -> Result<(), Error> {
    if let Some(host) = endpoint.ignored_host() {
        checks.warn("endpoint", format!("kube-apiserver ignores {host:?} and dials {}", endpoint.dial_address()));
    } else if matches!(endpoint.dial_address(), DialAddress::Abstract(_)) {
        checks.warn(
            "endpoint",
            "a socket of the abstract namespace has no permissions: every process of the host may use the keys",
        );
    } else {
        checks.pass("endpoint", format!("kube-apiserver dials {}", endpoint.dial_address()));
    }
    if let DialAddress::Path(path) = endpoint.dial_address()
        && std::fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket())
    {
        return Err(Error::NotASocket { path: path.to_owned() });
    }
    Connection::new(endpoint.clone(), timeout.max(Duration::from_secs(1))).probe().await?;
    let DialAddress::Path(path) = endpoint.dial_address() else { return Ok(()) };
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o002 != 0 {
        checks.warn(
            "permissions",
            format!("mode {mode:03o}: everybody who reaches the folder may use the keys; 0600 is enough for the API server's user"),
        );
    } else {
        checks.pass("permissions", format!("mode {mode:03o}"));
    }
    Ok(())
}
