//! Which bytes of shared memory the operands of wgmma are, of the descriptors used lately.

use super::reads::joined_chunks;
use crate::matrix_descriptor::Descriptor;
use std::ops::Range;
use std::rc::Rc;

/// Number of operands that are remembered: those of four warps and four steps along K, in three
/// stages, and a few more.
const KEPT_MAX: usize = 64;

/// Some groups of eight rows of a matrix.
pub(crate) type Operand = (Descriptor, Range<u64>);

/// The chunks of 16 bytes of an operand.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Where each begins, and the ranges that they make up.
    pub starts: Vec<u64>,
    pub ranges: Rc<[Range<u64>]>,
}

/// The chunks of operands.
#[derive(Debug, Default)]
pub(crate) struct ChunkCache(Vec<(Operand, Rc<Chunks>)>);

impl ChunkCache {
    pub fn of(&mut self, operand: &Operand) -> Rc<Chunks> {
        if let Some((_, chunks)) = self.0.iter().find(|(key, _)| key == operand) {
            return chunks.clone();
        }
        if self.0.len() == KEPT_MAX {
            self.0.clear();
        }
        let mut starts = Vec::new();
        operand.0.add_pieces(operand.1.clone(), 2, &mut starts);
        let chunks = Rc::new(Chunks { ranges: joined_chunks(&starts).into(), starts });
        self.0.push((operand.clone(), chunks.clone()));
        chunks
    }
}
