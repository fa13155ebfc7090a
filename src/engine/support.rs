//! What every engine answers: whether it runs a graph, with which knobs, and the kernels.

use std::fmt;

use kiln_sass::TileOrder;

use crate::engine::config::{EngineConfig, Knob};
use crate::engine::cost::{Setting, WorkOf};
use crate::engine::layout::LayoutInfo;
use crate::engine::notes::{BehaviorNote, Notes};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

/// By how much a setting must be faster by the cost model to replace the choice of the rules; they
/// know more of kernels than the model does, which stands for bandwidth, waves and occupancy.
pub(super) const GAIN_MIN: f64 = 1.2;

/// A family of kernels behind one name.
pub trait Engine: Send + Sync {
    /// The engine's name in configurations and texts.
    fn name(&self) -> &'static str;

    /// The graph as this engine runs it, where it can run the whole of it.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>>;

    /// Whether one kernel serves every shape of a graph: slower than one made for the shape, but
    /// it can stand in while that is compiled.
    fn serves_any_shape(&self) -> bool {
        false
    }

    /// Whether each element of an output depends on the input elements at its own index alone and
    /// is written by the thread that reads them: an input may then be overwritten by an output that
    /// lies alike.
    fn elementwise(&self) -> bool {
        false
    }

    /// Whether an element that is added to a result's is read by the thread that writes it, or by
    /// its block before all threads meet, and by no other: both may then be in one place. Asked of
    /// results that are of the largest shape in the graph, or whose operations share no value with
    /// one of another shape, and of others, such as sums.
    fn adds_in_place(&self, _is_whole: bool) -> bool {
        false
    }
}

/// A graph that an engine can run on a target, analysed once for all that there is to ask.
pub trait Supported: fmt::Debug {
    /// The knobs and, for this graph, their allowed values.
    fn knobs(&self) -> Vec<Knob>;

    /// The knob settings this engine expects to run best; they lower.
    fn heuristic(&self) -> EngineConfig;

    /// Why the heuristic's settings are what they are: a line for each knob, `items=2: ...`.
    fn reasons(&self) -> Vec<String>;

    /// The next setting that needs fewer registers and lowers; `None` when there is none.
    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig>;

    /// Every legal setting with what it asks of the GPU, for the cost model; of settings that the
    /// model does not distinguish, one.
    fn settings(&self) -> Vec<Setting>;

    /// What any setting asks of the GPU, one at a time.
    fn work_of(&self) -> WorkOf<'_>;

    /// By how much a setting must be faster by the cost model to replace the choice of the rules.
    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    /// What there is to know of a setting.
    fn notes(&self, _config: &EngineConfig) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    /// The layouts it prefers for tensors with three and more dimensions; for one that is left out,
    /// any.
    fn layouts(&self) -> Vec<LayoutInfo> {
        Vec::new()
    }

    /// Whether the engine is expected to run the graph better than those that are less specialised.
    fn pays(&self) -> bool {
        true
    }

    /// Clocks that the heuristic's settings are expected to take, where engines that run the same
    /// graphs are distinguished by them: of those, only the one with the fewest pays.
    fn expected_clocks(&self) -> Option<f64> {
        None
    }

    /// The order in which the tiles of a setting's first kernel read, for a model of L2; `None`
    /// where it is not known.
    fn tile_order(&self, _config: &EngineConfig) -> Option<TileOrder> {
        None
    }

    /// The kernels for these knob settings.
    ///
    /// # Errors
    /// `BadParam` for a knob that does not exist or a value that is not allowed; `NotSupported` for
    /// values that ask for too much together.
    fn lower(&self, config: &EngineConfig) -> Result<Lowering>;

    /// As [`Supported::lower`], of that [`Lowering::scratch`] alone.
    ///
    /// # Errors
    /// As [`Supported::lower`].
    fn scratch(&self, config: &EngineConfig) -> Result<Vec<u64>> {
        Ok(self.lower(config)?.scratch)
    }
}
