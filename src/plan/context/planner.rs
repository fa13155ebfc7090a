//! The state that planning needs: a kernel store, and how engines and configurations are selected.

use crate::cache::Trust;
use crate::codegen::Templates;
use crate::engine::Selection;
use crate::plan::context::kernel_store::KernelStore;
use crate::plan::context::resolved::Dumping;
use crate::plan::deploy::recorder::Recorder;
use crate::plan::dump::overrides::Overrides;

/// A kernel store with templates, selection, recorder and dumps.
pub(in crate::plan) struct Planner {
    pub(in crate::plan) store: KernelStore,
    pub(in crate::plan) templates: Templates,
    /// How configurations are chosen.
    pub(in crate::plan) selection: Selection,
    /// Whether another engine replaces one whose kernel does not compile. With a user's templates
    /// or overrides it is an error instead.
    pub(in crate::plan) steps_down: bool,
    /// Whether requested configurations may spill registers.
    pub(in crate::plan) allow_spills: bool,
    /// Whether a kernel of a plan may begin before the one before it has ended.
    pub(in crate::plan) overlap_launches: bool,
    /// The keys that packs must be signed with.
    pub(in crate::plan) trust: Trust,
    /// Whether only signed code and kernels compiled here may run.
    pub(in crate::plan) signed_only: bool,
    pub(in crate::plan) overrides: Option<Overrides>,
    /// Records every planned problem.
    pub(in crate::plan) recorder: Option<Recorder>,
    /// Which planned kernels are dumped.
    pub(in crate::plan) dump: Option<Dumping>,
}
