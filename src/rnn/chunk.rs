//! Passes in chunks of steps, of which the layers of a network may run side by side.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Direction, Op, Operation, OperationGraph, RowLayout, slot};
use crate::rnn::chunk_data::DataChunks;
use crate::rnn::lower::{Extent, Network, Place};
use crate::rnn::network::Rnn;
use crate::rnn::part_lengths::PartLengths;
use crate::rnn::role::{Optional, Role};
use crate::rnn::training::Training;
use crate::tensor::ALIGNMENT_MAX;

impl Rnn {
    /// Whether layers may run side by side in a pass: a layer goes from step to step, as the one
    /// next to it does, and their vectors lie step by step.
    pub(crate) fn runs_in_chunks(&self, with: Optional) -> bool {
        let in_order =
            self.direction == Direction::Forward && self.layout == RowLayout::SequenceMajor;
        self.layers > 1 && in_order && !with.history
    }

    /// The network of a forward pass for some of the steps, whose states have the type that they
    /// have between steps: nothing is rounded where another such network goes on, and dropouts go
    /// on from [`Role::DropoutSubsequence`].
    pub(crate) fn chunk(&self, extent: Extent, with: Optional) -> Result<Network> {
        let states = self.math().dtype();
        match with.reserve {
            true => self.training_of(extent, with, states)?.forward_chunk(),
            false => self.lowered(extent, with, states),
        }
    }

    /// Whether states other than `h` have the type between steps that they have before the first.
    pub(crate) fn keeps_states(&self) -> bool {
        self.number_dtype() == self.math().dtype() || self.build_cell().states.len() == 1
    }

    /// What converts the states other than `h` of a batch to their type between steps, and back:
    /// from [`Role::StatesInitial`] to [`Role::StatesFinal`]. Nothing where they have it, or where
    /// there are none.
    pub(crate) fn state_casts(&self, batch: i64) -> Result<[Vec<Network>; 2]> {
        let (own, between) = (self.number_dtype(), self.math().dtype());
        let count = self.build_cell().states.len() as i64 - 1;
        if self.keeps_states() {
            return Ok([vec![], vec![]]);
        }
        let base = self.lowered(Extent { batch, rows: batch }, Optional::default(), own)?;
        let elements = self.layers * batch * count * self.hidden_size;
        let cast = |from: DType, to: DType| {
            let mut graph = OperationGraph::builder();
            let x = graph.input(Role::StatesInitial.name(), &[elements], from);
            let identity = Pointwise::new(Mode::Identity).math(Math::of(between));
            let y = graph.pointwise(identity, &[x])?;
            graph.output(y, Role::StatesFinal.name(), to);
            let places = [(x, Role::StatesInitial), (y, Role::StatesFinal)];
            let places = places.map(|(uid, role)| Place { uid, role, offset: 0 }).to_vec();
            Ok(vec![Network { graph: graph.build()?, places, ..base.clone() }])
        };
        Ok([cast(own, between)?, cast(between, own)?])
    }
}

impl Training {
    /// The network of the forward pass, for some of the steps ([`Rnn::chunk`]).
    pub(crate) fn forward_chunk(&self) -> Result<Network> {
        self.forward.clone().drawn_from_a_step()
    }

    /// The graphs of both passes that run in chunks, as a layer plans them; none where there are no
    /// such passes.
    pub(super) fn graphs_of_chunks(&self) -> Result<Vec<OperationGraph>> {
        let mut graphs = self.forward.graphs_of_chunks()?;
        if graphs.is_empty() {
            return Ok(graphs);
        }
        let Network { rnn, extent, .. } = &self.forward;
        let training = rnn.training(*extent, self.forward.with_all_states())?;
        if let Ok(DataChunks { before, chunk, after }) = training.data.data_in_chunks() {
            let all = before.into_iter().chain([chunk]).chain(after);
            graphs.extend(all.map(|network| network.graph));
        }
        Ok(graphs)
    }
}

impl Network {
    /// The same, whose dropouts begin with [`Role::DropoutSubsequence`], if there are any.
    pub(super) fn drawn_from_a_step(self) -> Result<Network> {
        let draws = |of: &&Operation| matches!(of.op, Op::Rng(_));
        let Some(first) = self.graph.operations().iter().find(draws) else { return Ok(self) };
        let rank = self.graph.tensor(first.outputs[0])?.dims.len();
        let mut graph = OperationGraph::builder();
        self.graph.tensors().iter().for_each(|tensor| _ = graph.tensor(tensor.clone()));
        let role = Role::DropoutSubsequence;
        let uid = graph.scalar(role.name(), rank, DType::I64);
        for Operation { op, inputs, outputs } in self.graph.operations() {
            match op {
                Op::Rng(op) => {
                    let op = Op::Rng(op.from_subsequence());
                    graph.operation_into(op, &[inputs, &[uid][..]].concat(), outputs);
                }
                op => graph.operation_into(op.clone(), inputs, outputs),
            }
        }
        let places = [self.places, vec![Place { uid, role, offset: 0 }]].concat();
        Ok(Network { graph: graph.build()?, places, ..self })
    }

    /// The graphs of the network's forward pass in chunks, as a layer plans them: with all states;
    /// none where it has no such pass.
    pub(super) fn graphs_of_chunks(&self) -> Result<Vec<OperationGraph>> {
        let (rnn, with) = (&self.rnn, self.with_all_states());
        if !rnn.runs_in_chunks(with) {
            return Ok(Vec::new());
        }
        let casts = rnn.state_casts(self.extent.batch)?;
        let casts = casts.into_iter().flatten().map(|network| network.graph);
        let lengths = with.lengths.then(|| PartLengths::graph(self.extent.batch)).transpose()?;
        let chunk = rnn.chunk(self.extent, with)?.graph;
        Ok([chunk].into_iter().chain(casts).chain(lengths).collect())
    }

    /// The optional tensors of the network, and all states.
    pub(super) fn with_all_states(&self) -> Optional {
        let has = |role: Role| self.roles().any(|own| own == role);
        let with = Optional {
            lengths: has(Role::Lengths),
            reset: has(Role::Reset),
            history: has(Role::History),
            reserve: has(Role::Reserve),
            ..Optional::default()
        };
        with.with_all_states(self.rnn.build_cell().states.len() > 1)
    }

    /// Bytes of the states that a chunk leaves to the next one, at most.
    pub(crate) fn states_between(&self) -> u64 {
        let math = self.rnn.math().dtype().bytes();
        let mut sum = 0;
        for operation in self.graph.operations() {
            let Op::Recurrence(op) = &operation.op else { continue };
            for (name, least) in [("h_final", 0), ("states_final", math)] {
                let Some(uid) = slot(op, operation, name) else { continue };
                let tensor = self.graph.tensor(uid).expect("operations name known tensors");
                let width = tensor.dtype.bytes().max(least);
                let bytes = tensor.dims.iter().product::<i64>() as u64 * width as u64;
                sum += bytes.next_multiple_of(ALIGNMENT_MAX as u64);
            }
        }
        sum
    }
}
