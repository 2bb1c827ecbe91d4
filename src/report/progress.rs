/// Hears how far an operation is. The library shows nothing itself.
pub trait Progress: Sync {
    /// A phase begins: what it does, and how many values it will meet as far as that is known.
    fn begin(&self, phase: &'static str, expected: Option<u64>);
    /// Some more values are done.
    fn advance(&self, values: u64);
    /// The phase is over.
    fn end(&self);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _: &'static str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}
