//! The reader of entries: whatever the bytes, it answers, and what it accepts is what was asked.

#![no_main]

use kiln::cache::{Entry, Key};
use kiln_fuzz::Repair;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    let key = Repair::of(*choice).entry(&mut bytes);
    let Ok(entry) = Entry::decode(&bytes, key) else { return };
    assert_eq!(Key::of(&entry.request), key);
    let again = Entry::encode(&entry.request, &entry.image, entry.compile);
    assert_eq!(Entry::decode(&again, key), Ok(entry));
});
