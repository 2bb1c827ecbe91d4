//! The keyring: its file, the commands that change it, and the backend that serves it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed, helpers included")]

mod backend;
mod commands;
mod concurrent;
mod files;
mod folder;
mod foreign;
mod passphrase;
mod properties;
mod reload;
mod secrecy;
#[cfg(feature = "tpm")]
mod tpm;
