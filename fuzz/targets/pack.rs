//! The reader of packs: whatever the bytes, it answers, and what it gives is what was asked.

#![no_main]

use kiln::cache::{Key, Pack};
use kiln_fuzz::Repair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    Repair::of(*choice).pack(&mut bytes);
    let Ok(pack) = Pack::embedded(bytes, "fuzzed") else { return };
    let keys: Vec<Key> = pack.keys().collect();
    assert_eq!(keys.len(), pack.len());
    let mut sound = 0;
    for key in &keys {
        if let Ok(entry) = pack.get(*key) {
            let entry = entry.expect("a key that is listed is found");
            assert_eq!(Key::of(&entry.request), *key);
            sound += 1;
        }
    }
    assert_eq!(pack.requests().count(), sound);
    assert_eq!(pack.verify().len(), keys.len() - sound);
    let _ = (pack.catalog(), pack.items(), pack.signed());
});
