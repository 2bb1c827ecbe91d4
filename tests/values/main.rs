//! Single stored values: what kube-apiserver wrote, what it makes of damaged ones, and what we write.

mod conformance;
mod envelopes;
mod open;
mod properties;
mod redaction;
mod resources;
mod sealed;
mod setup;
mod spec;
