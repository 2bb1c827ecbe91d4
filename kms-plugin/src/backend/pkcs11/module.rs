//! The shared library of a token, loaded and initialized once per process: `C_Initialize` is a global act.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as CryptokiError, RvError};

use super::failure::Failure;
use crate::backend::Error;

static MODULES: Mutex<BTreeMap<PathBuf, Pkcs11>> = Mutex::new(BTreeMap::new());

/// The module of that file, loaded and initialized.
pub(super) fn get(file: &Path) -> Result<Pkcs11, Failure> {
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = modules.get(file) {
        return Ok(module.clone());
    }
    let module = Pkcs11::new(file)
        .map_err(|error| Error::Unavailable(format!("cannot load the PKCS#11 module {}: {error}", file.display())))?;
    initialize(&module)?;
    modules.insert(file.to_owned(), module.clone());
    Ok(module)
}

/// Finalizes and initializes it: sessions, logins and handles are gone then. The caller has none.
pub(super) fn restart(file: &Path) -> Result<(), Failure> {
    let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(module) = modules.get(file) else { return Ok(()) };
    match module.clone().finalize() {
        Ok(()) | Err(CryptokiError::Pkcs11(RvError::CryptokiNotInitialized, _)) => initialize(module),
        Err(error) => Err(error.into()),
    }
}

fn initialize(module: &Pkcs11) -> Result<(), Failure> {
    match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(CryptokiError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
        Err(error) => Err(Error::Unavailable(format!("cannot initialize the PKCS#11 module: {error}")).into()),
    }
}
