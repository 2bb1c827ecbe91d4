//! Snapshots and data directories: what etcd wrote, what was damaged on purpose, and what we make of both.

#![allow(clippy::indexing_slicing, reason = "a test that is wrong may panic")]

mod corrupt;
mod expected;
mod fixture;
mod rebuild;
mod wal;
