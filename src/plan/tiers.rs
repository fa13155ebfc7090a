//! What makes plans: a store of kernels, and how engines and settings are selected for it.

use crate::cache::Trust;
use crate::codegen::Templates;
use crate::engine::Selection;
use crate::plan::overrides::Overrides;
use crate::plan::record::Recorder;
use crate::plan::resolved::Dumping;
use crate::plan::store::KernelStore;

/// A kernel store with the templates, the selection and the recorders that plans need.
pub(super) struct Tiers {
    pub(super) store: KernelStore,
    pub(super) templates: Templates,
    /// How settings are chosen.
    pub(super) selection: Selection,
    /// Whether another engine takes the place of one whose kernel does not compile. Who writes
    /// templates or overrides is told instead.
    pub(super) steps_down: bool,
    /// Whether settings that were asked for may spill registers.
    pub(super) allow_spills: bool,
    /// Whom packs must be signed by.
    pub(super) trust: Trust,
    pub(super) overrides: Option<Overrides>,
    /// Where problems are recorded as they are planned.
    pub(super) recorder: Option<Recorder>,
    /// Which kernels are dumped as they are planned.
    pub(super) dump: Option<Dumping>,
}
