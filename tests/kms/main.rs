//! KMS plugins: clients, envelopes, and what is done with them.

#![allow(clippy::indexing_slicing, reason = "a test may panic")]

mod generated;
