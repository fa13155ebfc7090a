//! The pointwise engine: a whole graph of pointwise operations in one pass over memory.
//!
//! Every input is read once and every output written once, in 16-byte accesses where layout and
//! alignment allow it, so a kernel runs at the speed of memory as long as its arithmetic hides
//! behind it. Operands that are broadcast along everything are loaded once per thread; in a
//! persistent grid those that depend on the column alone stay in registers.
//!
//! A second engine, `pointwise_general`, takes the shape at run time: one element at a time, for
//! any shape and strides of the same operations.

mod domain;
mod general;
mod heuristic;
mod parameters;
mod schedule;
mod work;

pub(super) use general::GeneralEngine;

use crate::engine::access::{PARAMETERS_MAX, beside_nothing, stored};
use crate::engine::expand::Expanded;
use crate::engine::header::described;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::heuristic::Decision;
use crate::engine::pointwise::schedule::Schedule;
use crate::engine::program::GraphProgram;
use crate::engine::{Engine, EngineConfig, Knob, Setting, Supported, WorkOf};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Operation};
use crate::kernel::Lowering;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// The oldest architecture the template is written for.
const CAPABILITY_MIN: u16 = 75;

const NAME: &str = "pointwise";

/// See the module.
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
        Ok(Box::new(Elements::of(graph, target)?))
    }

    fn elementwise(&self) -> bool {
        true
    }
}

/// A graph of pointwise operations with the space that its elements span.
#[derive(Debug, Clone)]
struct Elements<'a> {
    expanded: Expanded<'a>,
    domain: Domain,
    target: &'a Target,
}

impl<'a> Elements<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(graph: CanonicalGraph<'a>, target: &'a Target) -> Result<Elements<'a>> {
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let other = |operation: &&Operation| operation.as_pointwise().is_none();
        if let Some(Operation { op, .. }) = graph.operations.iter().find(other) {
            return Err(Error::not_supported(format!("{op} is not pointwise")));
        }
        if target.arch.capability < CAPABILITY_MIN {
            let arch = target.arch;
            return Err(Error::not_supported(format!("{arch} is older than sm_{CAPABILITY_MIN}")));
        }
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
        Ok(Elements { expanded, domain, target })
    }

    fn graph(&self) -> CanonicalGraph<'_> {
        self.expanded.graph()
    }

    fn decision(&self) -> Decision {
        Decision::of(self.graph(), &self.domain, self.target)
    }
}

impl Supported for Elements<'_> {
    fn knobs(&self) -> Vec<Knob> {
        schedule::knobs(self.graph(), &self.domain)
    }

    fn heuristic(&self) -> EngineConfig {
        self.decision().config()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision().reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let runs =
            |config: &EngineConfig| Schedule::new(self.graph(), &self.domain, config).is_ok();
        let halved = |knob| config.halved(knob).filter(runs);
        halved("items").or_else(|| halved("vector"))
    }

    fn settings(&self) -> Vec<Setting> {
        work::settings(self.graph(), &self.domain, NAME)
    }

    fn work_of(&self) -> WorkOf<'_> {
        Box::new(work::of_setting(self.graph(), &self.domain))
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = self.knobs();
        config.validate(&knobs)?;
        let (graph, domain) = (self.graph(), &self.domain);
        let program = GraphProgram::whole(graph);
        let schedule = Schedule::new(graph, domain, config)?;
        let arch = self.target.arch;
        let kernel = parameters::kernel_plan(graph, domain, &program, &schedule, arch);
        Ok(described(Lowering::from(kernel), config, &knobs))
    }
}
