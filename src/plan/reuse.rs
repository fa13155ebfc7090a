//! Planning with the configurations of another plan, for graphs that differ in their number of rows
//! only: generic kernels, which read that number at run time, are then found in memory.

use crate::engine::{EngineConfig, Part};
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe;

impl Kiln {
    /// Plans a graph with the configurations of another plan's parts. A part whose engine does not
    /// allow its configuration keeps its own.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_reusing(
        &self,
        graph: &OperationGraph,
        configs: &[EngineConfig],
    ) -> Result<ExecutionPlan> {
        let parts = self.parts_reusing(graph, configs)?;
        self.plan_parts(graph, parts)
    }

    /// The largest workspace in bytes that a plan of a graph may need, whatever lower-register
    /// configurations its parts fall back to; `configs` as for [`Kiln::plan_reusing`]. Nothing is
    /// compiled.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub(crate) fn workspace_bytes_max(
        &self,
        graph: &OperationGraph,
        configs: Option<&[EngineConfig]>,
    ) -> Result<u64> {
        let target = self.device().target();
        let lowered = |part: Part| {
            let lowering = part.supported(target)?.lower(&part.config)?;
            Ok((part, lowering))
        };
        let parts = self.parts_reusing(graph, configs.unwrap_or_default())?.into_iter();
        let mut lowered: Vec<_> = parts.map(lowered).collect::<Result<_>>()?;
        let mut bytes = recipe::workspace_bytes(graph, &lowered)?;
        for at in 0..lowered.len() {
            let first = lowered[at].clone();
            while let Some(smaller) = lowered[at].0.smaller(target)? {
                let lowering = smaller.supported(target)?.lower(&smaller.config)?;
                lowered[at] = (smaller, lowering);
                bytes = bytes.max(recipe::workspace_bytes(graph, &lowered)?);
            }
            lowered[at] = first;
        }
        Ok(bytes)
    }

    fn parts_reusing(&self, graph: &OperationGraph, configs: &[EngineConfig]) -> Result<Vec<Part>> {
        let target = self.device().target();
        let mut parts = self.inner.parts(graph, target)?;
        for (part, config) in parts.iter_mut().zip(configs) {
            let same = part.config.engine == config.engine;
            if same && part.supported(target)?.lower(config).is_ok() {
                part.config = config.clone();
            }
        }
        Ok(parts)
    }
}
