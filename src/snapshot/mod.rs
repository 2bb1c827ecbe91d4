//! What etcd leaves on disk: read without a server.

pub mod input;
pub mod wal;
