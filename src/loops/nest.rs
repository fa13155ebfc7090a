//! Which loops are around tensors and loops.

use std::collections::HashMap;

use crate::loops::layer::Loop;

/// Loops around tensors and loops, the outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Nesting {
    pub(super) tensors: HashMap<i64, Vec<Loop>>,
    pub(super) loops: Vec<Vec<Loop>>,
}

/// It follows from the layers: networks with equal layers have equal nests.
impl std::hash::Hash for Nesting {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.loops.hash(state);
    }
}

impl Nesting {
    pub(super) fn of_tensor(&self, uid: i64) -> &[Loop] {
        self.tensors.get(&uid).map_or(&[], Vec::as_slice)
    }

    pub(super) fn of_loop(&self, of: Loop) -> &[Loop] {
        &self.loops[of.0]
    }
}
