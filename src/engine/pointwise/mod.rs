//! The pointwise engine: a whole graph of pointwise operations in one pass over memory.
//!
//! Every input is read once and every output written once, in 16-byte accesses where layout and
//! alignment allow it, so a kernel runs at the speed of memory as long as its arithmetic hides
//! behind it. Operands that are broadcast along everything are loaded once per thread; in a
//! persistent grid those that depend on the column alone stay in registers.
//!
//! The engine `pointwise_grouped` runs operations of several shapes so, in one launch. The engine
//! `pointwise_transposed` runs those of one tensor that lies along another dimension than its
//! result.
//!
//! Another one, `pointwise_general`, takes the shape at run time: one element at a time, for
//! any shape and strides of the same operations.

mod domain;
mod general;
mod grouped;
mod heuristic;
mod interleave;
mod parameters;
mod schedule;
mod transposed;
mod transposition;
mod work;

pub(super) use general::GeneralEngine;
pub(super) use grouped::GroupedEngine;
pub(super) use transposed::TransposedEngine;

use crate::engine::access::{PARAMETERS_MAX, beside_nothing, stored};
use crate::engine::decompose::Decomposed;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::heuristic::Decision;
use crate::engine::pointwise::schedule::{Schedule, Settings};
use crate::engine::pointwise::transposition::Transposition;
use crate::engine::pointwise::work::Demand;
use crate::engine::program::GraphProgram;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Operation};
use crate::kernel::Lowering;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Minimum compute capability of the template.
const CAPABILITY_MIN: u16 = 75;

const NAME: &str = "pointwise";

/// The engine `pointwise`: one pass over memory for a whole graph of pointwise operations.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointwiseEngine;

impl Engine for PointwiseEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let elements = Elements::of(graph, target)?;
        let demand = Demand::of(elements.graph(), &elements.domain);
        let best = elements.decision().settings();
        Ok(Box::new(Tuned::of(Pointwise { elements, demand }, [best])?))
    }

    fn elementwise(&self) -> bool {
        true
    }

    fn adds_in_place(&self, is_whole: bool) -> bool {
        is_whole
    }
}

/// Checks that a graph is pointwise, and the architecture one that the templates are for.
///
/// # Errors
/// `NotSupported` with the operation that is not, or the architecture.
fn check_pointwise(graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
    let other = |operation: &&Operation| !operation.is_elementwise();
    if let Some(Operation { op, .. }) = graph.operations.iter().find(other) {
        return Err(Error::not_supported(format!("{op} is not pointwise")));
    }
    match target.arch.capability < CAPABILITY_MIN {
        true => {
            let arch = target.arch;
            Err(Error::not_supported(format!("{arch} is older than sm_{CAPABILITY_MIN}")))
        }
        false => Ok(()),
    }
}

/// A graph of pointwise operations with the space that its elements span.
#[derive(Debug, Clone)]
struct Elements<'a> {
    decomposed: Decomposed<'a>,
    domain: Domain,
    target: &'a Target,
}

impl<'a> Elements<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(graph: CanonicalGraph<'a>, target: &'a Target) -> Result<Elements<'a>> {
        let decomposed = Decomposed::of(graph)?;
        let graph = decomposed.graph();
        check_pointwise(graph, target)?;
        let passed = graph.tensors.iter().filter(|tensor| !tensor.is_virtual).count();
        // One parameter is the number of rows.
        if passed >= PARAMETERS_MAX {
            return Err(Error::not_supported(format!(
                "{passed} tensors with storage exceed the {} parameters of a kernel",
                PARAMETERS_MAX - 1
            )));
        }
        let domain = Domain::of(graph)?;
        let has_elements =
            |(at, of): &(usize, &TensorDesc)| graph.is_written(*at) && !of.is_empty();
        if domain.extents.contains(&0)
            && let Some((_, tensor)) = stored(graph).find(has_elements)
        {
            return Err(beside_nothing(tensor));
        }
        Ok(Elements { decomposed, domain, target })
    }

    fn graph(&self) -> CanonicalGraph<'_> {
        self.decomposed.graph()
    }

    fn decision(&self) -> Decision {
        Decision::of(self.graph(), &self.domain, self.target)
    }
}

/// The graph with its work, for the cost model.
#[derive(Debug)]
struct Pointwise<'a> {
    elements: Elements<'a>,
    demand: Demand,
}

impl Tunable<4> for Pointwise<'_> {
    const KNOBS: [&'static str; 4] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 4] {
        schedule::knobs(self.elements.graph(), &self.elements.domain)
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        Schedule::new(self.elements.graph(), &self.elements.domain, settings)
    }

    fn best(&self) -> Settings {
        self.elements.decision().settings()
    }

    fn reasons(&self) -> Vec<String> {
        self.elements.decision().reasons()
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { items, vector, .. } = settings;
        vec![Settings { items: items / 2, ..settings }, Settings { vector: vector / 2, ..settings }]
    }

    fn pays(&self) -> bool {
        Transposition::of(self.elements.graph(), &self.elements.domain).is_err()
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let Elements { domain, .. } = &self.elements;
        vec![work::of(self.elements.graph(), domain, &self.demand, schedule)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let (graph, domain) = (self.elements.graph(), &self.elements.domain);
        let program = GraphProgram::whole(graph);
        let arch = self.elements.target.arch;
        let kernel = parameters::kernel_plan(graph, domain, &program, schedule, arch);
        Lowering::from(kernel)
    }

    fn scratch(&self, _schedule: &Schedule) -> Vec<u64> {
        Vec::new()
    }
}
