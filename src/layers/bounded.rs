//! Maps of bounded size, which forget what was used least recently.

use std::collections::HashMap;
use std::hash::Hash;

/// A map with at most so many entries.
#[derive(Debug, Clone)]
pub(super) struct Bounded<K, V> {
    entries: HashMap<K, (V, u64)>,
    most: usize,
    /// Number of uses so far; an entry has that of its last one.
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    /// An empty map for at most `most` entries.
    pub(super) fn new(most: usize) -> Bounded<K, V> {
        Bounded { entries: HashMap::new(), most, uses: 0 }
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// An entry, which is used thereby.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let (value, used) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    /// Adds an entry, in place of the one used least recently where the map is full.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.entries.len() >= self.most && !self.has(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.uses += 1;
        self.entries.insert(key, (value, self.uses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_least_recently_makes_room() {
        let mut map = Bounded::new(2);
        map.insert('a', 1);
        map.insert('b', 2);
        assert_eq!(map.get(&'a'), Some(&mut 1));
        map.insert('c', 3);
        assert!(map.has(&'a') && !map.has(&'b') && map.has(&'c'));
        // Another value of a key takes no room.
        map.insert('a', 4);
        assert_eq!(map.get(&'a').copied(), Some(4));
        assert_eq!(map.get(&'c').copied(), Some(3));
    }
}
