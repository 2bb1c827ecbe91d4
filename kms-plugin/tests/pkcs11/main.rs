//! The backend `pkcs11` against SoftHSM 2.

#[path = "../support/mod.rs"]
mod support;

mod key_ids;
mod keys;
mod loss;
mod mechanisms;
mod pin;
mod softhsm;
