//! For tests of the server: a backend in memory, servers in this process, and the program itself.
//!
//! A test binary takes it in by `#[path = "../support/server/mod.rs"] mod support;`.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod memory;
mod plugin;
mod running;

pub(crate) use memory::Memory;
pub(crate) use plugin::{Plugin, Site};
pub(crate) use running::{Running, endpoint, options};
