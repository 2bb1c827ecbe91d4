//! Rewrites `:authority` in the HTTP/2 stream of a client, before the HTTP/2 library sees it.
//!
//! gRPC clients in Go name a unix socket by its path in `:authority`, raw (`/run/kms.sock`) or percent-encoded, unless they are
//! told otherwise. kube-apiserver does so for KMS v1 always, and for KMS v2 before 1.32. The HTTP/2 library refuses such a
//! request: a path is no authority of RFC 3986, section 3.2. Here every request is given the authority `localhost`, which is
//! what newer clients send and what nobody reads.
//!
//! Header blocks are decoded and encoded again, because what they say depends on all blocks before them (RFC 7541, section
//! 2.3). They are encoded without the dynamic table, which so stays empty on the far side. Every other frame passes as it came,
//! and so does every sequence that the library has to refuse (RFC 9113, sections 4.1 to 6.10): from there on, all bytes do.

mod header_block;
mod rewriter;
mod stream;

pub use header_block::HeaderBlockError;
pub use rewriter::{Error, Rewriter};
pub use stream::Stream;
