//! What the reserve spaces of a layer hold, so that misuse is refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};

/// The passes that a reserve space has been through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// A forward pass in training.
    Forward,
    /// The backward pass of the data too, and perhaps that of the weights.
    Backward,
}

/// What the reserve spaces of a layer hold, by address: data of a problem `P`. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Reserves<P> {
    held: Arc<Mutex<HashMap<u64, (P, Phase)>>>,
}

impl<P> Default for Reserves<P> {
    fn default() -> Reserves<P> {
        Reserves { held: Arc::default() }
    }
}

impl<P: PartialEq + fmt::Display> Reserves<P> {
    /// Notes that a pass has written the reserve space at this address.
    pub(super) fn record(&self, address: u64, problem: P, phase: Phase) {
        self.held.lock().expect("no holder panics").insert(address, (problem, phase));
    }

    /// Whether the reserve space at this address has been through a pass.
    pub(super) fn has(&self, address: u64, phase: Phase) -> bool {
        let held = self.held.lock().expect("no holder panics");
        held.get(&address).is_some_and(|(_, own)| *own >= phase)
    }

    /// Refuses a reserve space that holds something else than a pass, of this name in messages,
    /// needs; `wanted` names what must have written it. One at an address that is not known may
    /// have been restored from a copy, if there has been one like it.
    pub(super) fn check(
        &self,
        pass: &str,
        address: u64,
        problem: &P,
        (needed, wanted): (Phase, &str),
    ) -> Result<()> {
        let held = self.held.lock().expect("no holder panics");
        let bad = |rule: String| Err(Error::bad_param(format!("{pass}: {rule}")));
        match held.get(&address) {
            Some((own, _)) if own != problem => {
                bad(format!("the reserve space is of {own}, not of {problem}"))
            }
            Some((_, phase)) if *phase < needed => {
                bad(format!("the reserve space has not been through {wanted}"))
            }
            None if !held.values().any(|(own, phase)| own == problem && *phase >= needed) => {
                bad(format!("no reserve space has been through {wanted} of this problem"))
            }
            _ => Ok(()),
        }
    }
}
