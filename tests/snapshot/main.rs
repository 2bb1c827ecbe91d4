//! What etcd leaves on disk: files that real servers wrote, damaged copies of them, and arbitrary bytes.

mod wal;
