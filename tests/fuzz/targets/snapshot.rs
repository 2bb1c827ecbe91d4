//! Any file: opening it, walking it, carving it and reading its values ends, without a panic and in bounded memory.
#![no_main]

use std::ops::ControlFlow;
use std::sync::Arc;

use atrest::snapshot::bbolt::Mode;
use atrest::snapshot::{Input, Options, Problems, Snapshot, Values, View};
use libfuzzer_sys::fuzz_target;

/// Makes the checksums of the meta pages right: otherwise nearly nothing would be looked at.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for page in [0, 512, 4096] {
        if let Some(body) = data.get_mut(page + 16..page + 80) {
            let (covered, sum) = body.split_at_mut(56);
            let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            sum.copy_from_slice(&covered.iter().fold(0xcbf2_9ce4_8422_2325, fnv).to_le_bytes());
        }
    }
    data
}

fuzz_target!(|data: &[u8]| {
    let data = with_checksums(data);
    for mode in [Mode::Strict, Mode::Salvage] {
        let options = Options { mode, ..Options::default() };
        let Ok(snapshot) = Snapshot::from_input(Input::from(data.clone()), options) else { continue };
        let snapshot = Arc::new(snapshot);
        _ = snapshot.trailer();
        let map = snapshot.db().map_pages(|_, _| {});
        _ = snapshot.carve(&map.used, |_| {});
        _ = snapshot.status(|_| {});
        _ = snapshot.hash_kv(None);
        let mut records = 0;
        _ = snapshot.records(&mut Problems::default(), |_| {
            records += 1;
            ControlFlow::Continue(())
        });
        let Ok(mut values) = Values::new(&snapshot, &View::default()) else { continue };
        let mut live = 0;
        while let Ok(Some(page)) = values.next_values() {
            live += page.len();
        }
        assert!(live <= records);
    }
});
