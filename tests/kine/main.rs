//! Databases of kine: made by its schema and in its way, and damaged on purpose. Kine itself is a Go program that no
//! package registry has, so none of them was written by it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that is wrong may panic")]

mod files;
mod fixture;
mod hostile;
mod model;
mod scan;
mod view;
mod writer;
