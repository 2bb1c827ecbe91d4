//! Encryption at rest of Kubernetes objects in etcd: see, verify and rotate what is really stored.
//!
//! kube-apiserver can encrypt objects before it stores them in etcd. This crate reads and writes what it stores, byte for byte: the
//! stored bytes are the proof of what is encrypted, and under which key.
//!
//! # What it does not do
//!
//! It writes to etcd only in [`storage`], where [`rekey`] or the user of a [`Store`](storage::Store) wants it, and in [`doctor`] one key of
//! its own when it is told to; files only in [`backup`]. It prints nothing.
//!
//! # Rooms
//!
//! Calls go downwards only.
//!
//! ```text
//! rekey   verify   scan   get   watch   backup   doctor
//!                                    one operation each: a source and options in, a report out
//! cacher                             one watch of etcd for many readers
//! storage   snapshot   kine   kms   object   report   source
//!                                    etcd; its files; k3s's; KMS plugins; what came out; plain data; where values come from
//! transformer                        opens and seals values; no I/O
//! config   resource   secret         the configuration; etcd keys; key material
//! causes                             what an error says
//! ```
//!
//! Values of a KMS are opened in two steps. What they need is asked of the KMS first, each data key once, by a
//! [`DekResolver`](transformer::envelope::DekResolver) like [`kms::Kms`]; then they are opened like all others.
//!
//! Log output, errors and reports hold neither key material nor plaintext.
//!
//! # Example
//!
//! ```
//! use atrest::config::{self, Options};
//! use atrest::transformer::{DataContext, ResourceTransformers};
//!
//! let file = br#"
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets]
//!   providers:
//!   - secretbox:
//!       keys:
//!       - name: key1
//!         secret: ZXhhbXBsZS1rZXktb2YtMzItYnl0ZXMtLS0tLS0tLS0=
//!   - identity: {}
//! "#;
//! let configuration = config::load(file, &Options::default())?.config;
//! let transformers = ResourceTransformers::from_configurations(&[configuration])?;
//! let secrets = transformers.transformer_for_resource("", "secrets");
//!
//! let context = DataContext::new(b"/registry/secrets/default/x");
//! let mut stored = Vec::new();
//! secrets.seal(b"k8s\0...", context, &mut stored)?;
//! assert!(stored.starts_with(b"k8s:enc:secretbox:v1:key1:"));
//!
//! let (opened, by) = secrets.open(&stored, context)?;
//! assert_eq!(&opened.data[..], b"k8s\0...");
//! assert_eq!((opened.stale, by.label.to_string()), (false, "secretbox/key1".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod backup;
#[cfg(feature = "etcd")]
pub mod cacher;
pub mod causes;
pub mod config;
pub mod doctor;
pub mod get;
#[cfg(any(feature = "etcd", feature = "kms"))]
mod grpc;
#[cfg(feature = "kine")]
pub mod kine;
#[cfg(feature = "kms")]
pub mod kms;
pub mod manual;
pub mod object;
pub mod protobuf;
#[cfg(feature = "etcd")]
pub mod rekey;
pub mod report;
pub mod resource;
pub mod scan;
pub mod secret;
pub mod snapshot;
pub mod source;
#[cfg(feature = "etcd")]
pub mod storage;
pub mod transformer;
pub mod verify;
#[cfg(feature = "etcd")]
pub mod watch;

/// The version of this library and of the programs built on it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
