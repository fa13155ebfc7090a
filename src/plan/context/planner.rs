//! What makes plans: a store of kernels, and how engines and settings are selected for it.

use crate::cache::Trust;
use crate::codegen::Templates;
use crate::engine::Selection;
use crate::plan::context::kernel_store::KernelStore;
use crate::plan::context::resolved::Dumping;
use crate::plan::deploy::recorder::Recorder;
use crate::plan::dump::overrides::Overrides;

/// A kernel store with the templates, the selection and the recorders that plans need.
pub(in crate::plan) struct Planner {
    pub(in crate::plan) store: KernelStore,
    pub(in crate::plan) templates: Templates,
    /// How settings are chosen.
    pub(in crate::plan) selection: Selection,
    /// Whether another engine takes the place of one whose kernel does not compile. Who writes
    /// templates or overrides is told instead.
    pub(in crate::plan) steps_down: bool,
    /// Whether settings that were asked for may spill registers.
    pub(in crate::plan) allow_spills: bool,
    /// Whom packs must be signed by.
    pub(in crate::plan) trust: Trust,
    pub(in crate::plan) overrides: Option<Overrides>,
    /// Where problems are recorded as they are planned.
    pub(in crate::plan) recorder: Option<Recorder>,
    /// Which kernels are dumped as they are planned.
    pub(in crate::plan) dump: Option<Dumping>,
}
