//! A forward pass in chunks of steps, of which the layers of a network may run side by side.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Direction, OperationGraph, RowLayout};
use crate::rnn::lower::{Extent, Network};
use crate::rnn::network::Rnn;
use crate::rnn::role::{Optional, Role};

impl Rnn {
    /// Whether layers may run side by side in a forward pass: a layer goes from step to step, as
    /// the one below does, and their vectors lie step by step.
    pub(crate) fn runs_in_chunks(&self, with: Optional) -> bool {
        let in_order =
            self.direction == Direction::Forward && self.layout == RowLayout::SequenceMajor;
        self.layers > 1 && in_order && !(with.reserve || with.lengths || with.history)
    }

    /// The network of inference for some of the steps, whose states have the type that they have
    /// between steps: nothing is rounded where another such network goes on.
    pub(crate) fn chunk(&self, extent: Extent, with: Optional) -> Result<Network> {
        self.lowered(extent, with, self.math().dtype())
    }

    /// Graphs that convert the states other than `h` of a batch to their type between steps, and
    /// back; `None` where they have it, or there are none.
    pub(crate) fn state_casts(&self, batch: i64) -> Result<Option<[OperationGraph; 2]>> {
        let (own, between) = (self.number_dtype(), self.math().dtype());
        let count = self.build_cell().states.len() as i64 - 1;
        if count == 0 || own == between {
            return Ok(None);
        }
        let elements = self.layers * batch * count * self.hidden_size;
        let cast = |role: Role, [from, to]: [DType; 2]| {
            let mut graph = OperationGraph::builder();
            let x = graph.input("x", &[elements], from);
            let identity = Pointwise::new(Mode::Identity).math(Math::of(between));
            let y = graph.pointwise(identity, &[x])?;
            graph.output(y, role.name(), to);
            graph.build()
        };
        let widened = cast(Role::StatesInitial, [own, between])?;
        Ok(Some([widened, cast(Role::StatesFinal, [between, own])?]))
    }
}

impl Network {
    /// The graphs of the network's forward pass in chunks, as a layer plans them: with all states;
    /// none where it has no such pass.
    pub(super) fn graphs_of_chunks(&self) -> Result<Vec<OperationGraph>> {
        let rnn = &self.rnn;
        let has = |role: Role| self.roles().any(|own| own == role);
        let has_others = rnn.build_cell().states.len() > 1;
        let with = Optional {
            h_initial: true,
            states_initial: has_others,
            lengths: has(Role::Lengths),
            reset: has(Role::Reset),
            h_final: true,
            states_final: has_others,
            history: has(Role::History),
            reserve: has(Role::Reserve),
        };
        if !rnn.runs_in_chunks(with) {
            return Ok(Vec::new());
        }
        let casts = rnn.state_casts(self.extent.batch)?;
        let chunk = rnn.chunk(self.extent, with)?.graph;
        Ok([chunk].into_iter().chain(casts.into_iter().flatten()).collect())
    }
}
