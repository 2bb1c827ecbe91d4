//! The serving side.

pub mod authority;
