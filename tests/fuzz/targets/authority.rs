//! What a client of the KMS plugin sends: the pieces in which it arrives make no difference, and what is rewritten stays so.
#![no_main]

use atrest_kms_plugin::serve::authority::{Error, Rewriter};
use libfuzzer_sys::fuzz_target;

fn read<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<u8>, Result<(), Error>) {
    let mut rewriter = Rewriter::new();
    let mut out = Vec::new();
    for mut piece in pieces {
        loop {
            match rewriter.next(&mut piece) {
                Ok(Some(bytes)) => out.extend_from_slice(&bytes),
                Ok(None) => break,
                Err(error) => return (out, Err(error)),
            }
        }
    }
    (out, Ok(()))
}

fuzz_target!(|data: &[u8]| {
    // With the preface, or else the fuzzer would have to find it.
    let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", data].concat();
    let whole = read(std::iter::once(&sent[..]));
    let size = usize::from(data.first().copied().unwrap_or_default() % 16) + 1;
    assert!(read(sent.chunks(size)) == whole);
    let (out, _) = whole;
    let again = read(std::iter::once(&out[..]));
    assert!(again == (out, Ok(())));
});
