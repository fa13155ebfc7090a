//! What the kernels of gradients keep in workspace for each other.

/// A buffer of the workspace; its number is that in [`Lowering::scratch`].
///
/// [`Lowering::scratch`]: crate::kernel::Lowering::scratch
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workspace {
    /// A number for each query of each head, in the type of accumulators.
    Delta,
    /// dQ that blocks of keys add to, in f32 (`attention/dq_accum.cuh`).
    DqAccum,
    /// A ticket of blocks, and how many of them have added to each tile of dQ, in 32 bits.
    Semaphores,
    /// Sums of blocks that share a tile of a gradient, in the type of accumulators.
    Partials,
}

impl Workspace {
    /// Its declaration as a kernel parameter.
    pub(super) fn declaration(self, is_double: bool) -> &'static str {
        match self {
            Workspace::Delta if is_double => "f64* delta",
            Workspace::Delta => "float* delta",
            Workspace::DqAccum => "float* dq_accum",
            Workspace::Partials if is_double => "f64* partials",
            Workspace::Partials => "float* partials",
            Workspace::Semaphores => "unsigned* semaphores",
        }
    }
}
