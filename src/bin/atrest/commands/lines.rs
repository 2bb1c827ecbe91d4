use std::fmt::Display;
use std::io::{Result, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::failure::Failure;
use crate::render;

/// Standard output for rows that come while an operation runs: the first failure stops it.
pub(super) struct Lines<'a> {
    out: BufferedOutput,
    stop: &'a AtomicBool,
    failed: Option<Failure>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(stop: &'a AtomicBool) -> Self {
        Self { out: BufferedOutput::default(), stop, failed: None }
    }

    pub(super) fn print(&mut self, row: &impl Serialize) {
        self.try_to(|out| render::print_line(row, out));
    }

    pub(super) fn print_text(&mut self, text: &impl Display) {
        self.try_to(|out| Ok(writeln!(out, "{text}")?));
    }

    fn try_to(&mut self, print: impl FnOnce(&mut dyn Write) -> std::result::Result<(), Failure>) {
        if self.failed.is_some() {
            return;
        }
        if let Err(failure) = print(&mut self.out) {
            self.failed = Some(failure);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Writes what is left: the report comes after the rows.
    pub(super) fn finish(mut self) -> std::result::Result<(), Failure> {
        match self.failed {
            Some(failure) => Err(failure),
            None => Ok(self.out.flush()?),
        }
    }
}

/// Standard output without its lock: rows come from whichever thread runs the operation.
#[derive(Default)]
pub(super) struct BufferedOutput(Vec<u8>);

impl Write for BufferedOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= 64 * 1024 {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        let written = std::io::stdout().lock().write_all(&self.0);
        self.0.clear();
        written
    }
}

impl Drop for BufferedOutput {
    fn drop(&mut self) {
        // A reader that has gone was noticed by the write before, or will be by the next.
        _ = self.flush();
    }
}
