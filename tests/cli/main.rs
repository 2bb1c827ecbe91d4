//! The program as it is run: arguments, files and standard input in; exit code, standard output and standard error out.
//!
//! `help/` holds what `--help` of every command prints, word for word. `ATREST_UPDATE_HELP=1 cargo test --test cli help`
//! writes the files anew; the difference belongs into the review of the change.

#![allow(clippy::indexing_slicing, reason = "a test that is wrong may panic")]

mod config_check;
mod crypt;
mod decode;
mod doctor;
mod fixture;
mod help;
mod hostile;
mod kine;
mod leaks;
mod objects;
mod run;
mod snapshot_export;
mod snapshot_leaks;
mod snapshot_look;
mod snapshot_sources;
mod snapshot_write;
mod stream;
mod usage;
