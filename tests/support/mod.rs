//! What the integration tests share: real etcd servers, certificates, and the vectors.
//!
//! A test binary takes it in by `#[path = "../support/mod.rs"] mod support;`.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod client;
mod cluster;
mod etcd;
mod install;
mod kine;
mod kms;
mod pki;

use std::path::{Path, PathBuf};

pub(crate) use client::{Client, KeyValue};
pub(crate) use cluster::Cluster;
pub(crate) use etcd::{Builder, Etcd};
pub(crate) use install::Version;
pub(crate) use kine::{Kine, SeenTxn, Shape};
pub(crate) use kms::{Behaviour, Calls, TestKms};
pub(crate) use pki::{Algorithm, CertificateFiles, KeyEncoding, Pki, Request};

/// A file of `tests/vectors`.
pub(crate) fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
}

/// The lines of a file of `tests/vectors`.
pub(crate) fn vector_lines(name: &str) -> Vec<serde_json::Value> {
    let path = vector(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}")))
        .collect()
}
