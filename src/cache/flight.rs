//! The memory tier: a single-flight map. One thread builds the value of a key, callers for the same
//! key wait, callers for other keys are not blocked.

use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use dashmap::DashMap;

use crate::error::Result;

/// A single-flight map.
#[derive(Debug)]
pub struct Flight<K: Eq + Hash, V> {
    slots: DashMap<K, Arc<Slot<V>>>,
}

#[derive(Debug)]
struct Slot<V> {
    value: Mutex<Option<V>>,
}

impl<K: Eq + Hash, V> Default for Flight<K, V> {
    fn default() -> Self {
        Flight { slots: DashMap::new() }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Flight<K, V> {
    /// Returns the value of a key, if it has been built.
    pub fn get(&self, key: &K) -> Option<V> {
        let slot = self.slots.get(key)?.clone();
        slot.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the value of a key, building it if necessary.
    ///
    /// The map is not locked while building. Failures are not stored: the next caller, possibly
    /// already waiting, tries again.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn get_or_build(&self, key: &K, build: impl FnOnce() -> Result<V>) -> Result<V> {
        let slot = self.slot(key);
        let mut value = slot.value.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let built = build()?;
        *value = Some(built.clone());
        Ok(built)
    }

    /// Returns the value of a key if it has been built or `find` returns it; `None` without waiting
    /// if another call is building it.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn get_or_find(
        &self,
        key: &K,
        find: impl FnOnce() -> Result<Option<V>>,
    ) -> Result<Option<V>> {
        let slot = self.slot(key);
        let mut value = match slot.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        if value.is_none() {
            *value = find()?;
        }
        Ok(value.clone())
    }

    fn slot(&self, key: &K) -> Arc<Slot<V>> {
        match self.slots.get(key) {
            Some(slot) => slot.clone(),
            None => {
                let fresh = || Arc::new(Slot { value: Mutex::new(None) });
                self.slots.entry(key.clone()).or_insert_with(fresh).clone()
            }
        }
    }

    /// Number of values built.
    pub fn len(&self) -> usize {
        let built = |slot: &Arc<Slot<V>>| {
            slot.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
        };
        // Collected first, so that no shard stays locked while waiting for a value.
        let slots: Vec<Arc<Slot<V>>> = self.slots.iter().map(|slot| slot.value().clone()).collect();
        slots.iter().filter(|slot| built(slot)).count()
    }

    /// Whether no value has been built.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    #[test]
    fn many_threads_build_once() {
        let (flight, built) = (Flight::<u32, u32>::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let value = flight.get_or_build(&7, || {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        built.fetch_add(1, Ordering::Relaxed);
                        Ok(49)
                    });
                    assert_eq!(value.ok(), Some(49));
                });
            }
        });
        assert_eq!((built.into_inner(), flight.len()), (1, 1));
    }

    #[test]
    fn finding_waits_for_nobody() {
        let flight = Flight::<u32, u32>::default();
        assert_eq!(flight.get_or_find(&7, || Ok(None)).ok(), Some(None));
        let inside = flight.get_or_build(&7, || {
            assert_eq!(flight.get_or_find(&7, || Ok(Some(1))).ok(), Some(None));
            Ok(49)
        });
        assert_eq!(inside.ok(), Some(49));
        assert_eq!(flight.get_or_find(&7, || Ok(None)).ok(), Some(Some(49)));
        assert_eq!(flight.get_or_find(&8, || Ok(Some(64))).ok(), Some(Some(64)));
        assert_eq!(flight.get(&8), Some(64));
    }

    #[test]
    fn a_failure_is_tried_again() {
        let flight = Flight::<u32, u32>::default();
        assert!(flight.get_or_build(&1, || Err(Error::internal("no"))).is_err());
        assert_eq!(flight.get(&1), None);
        assert_eq!(flight.get_or_build(&1, || Ok(5)).ok(), Some(5));
    }
}
