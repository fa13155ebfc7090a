//! Lowering of an operation to steps: the graph of its network on views of the arguments, and
//! reorders of what views cannot say.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::Math;
use crate::graph::{Direction, OperationGraph, RowLayout};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::description::{Activation, Cell, PropKind, RnnDesc, RnnDirection};
use crate::onednn::reorder;
use crate::onednn::sizes::Sizes;
use crate::onednn::step::{Home, Step};
use crate::onednn::view::{Part, View};
use crate::rnn::{
    BiasMode, CellKind, CellOptions, Extent, Join, Network, Optional, Place, Rnn, RnnCell, Role,
    Stacking, WeightKind,
};
use crate::tensor::{TensorDesc, packed_strides};

/// Alignment of tensors in the workspace and in a primitive's own memory, in bytes.
const ALIGNMENT: u64 = 256;

/// The steps of a primitive.
pub(super) struct Lowered {
    pub(super) steps: Vec<Step>,
    pub(super) scratch_bytes: u64,
    pub(super) workspace_bytes: u64,
}

/// Where the arguments are that tensors of a graph are.
#[derive(Debug, Clone, Copy)]
enum Given {
    Part(Arg, Part),
    Workspace(u64),
}

/// Lowers an operation without `any` formats.
pub(super) fn lower(of: &RnnDesc, sizes: &Sizes) -> Result<Lowered> {
    let lowering = Lowering { of, sizes, by_sequence: by_sequence(of) };
    let network = lowering.network()?;
    let graph = lowering.typed(&network)?;
    let mut given: BTreeMap<i64, Given> = BTreeMap::new();
    for place in &network.places {
        let (tensor, part) = lowering.part(&network, place);
        given.insert(place.uid, Given::Part(Arg::Of(tensor), part));
    }
    if of.prop_kind == PropKind::ForwardInference {
        let (steps, scratch_bytes) = lowering.steps(&graph, &given)?;
        return Ok(Lowered { steps, scratch_bytes, workspace_bytes: 0 });
    }
    let outputs: Vec<i64> = graph.outputs().map(|tensor| tensor.uid).collect();
    let inputs: Vec<i64> = graph.inputs().map(|tensor| tensor.uid).collect();
    let vjp = graph.vjp(&outputs, &inputs)?;
    let gradients = inputs.iter().zip(&vjp.input_gradients);
    for (uid, gradient) in outputs.iter().zip(&vjp.output_gradients).chain(gradients) {
        if let Given::Part(Arg::Of(tensor), part) = given[uid] {
            given.insert(*gradient, Given::Part(Arg::Diff(tensor), part));
        }
    }
    let mut workspace_bytes = 0;
    for saved in vjp.saved.iter().filter(|saved| saved.kept) {
        given.insert(saved.uid, Given::Workspace(workspace_bytes));
        let bytes = vjp.forward.tensor(saved.uid)?.span_bytes()?;
        workspace_bytes += bytes.next_multiple_of(ALIGNMENT);
    }
    let pass = match of.prop_kind {
        PropKind::Backward => &vjp.backward,
        _ => &vjp.forward,
    };
    let (steps, scratch_bytes) = lowering.steps(pass, &given)?;
    Ok(Lowered { steps, scratch_bytes, workspace_bytes })
}

/// Whether rows are sequence by sequence: where inputs and outputs are. What training keeps has
/// one order.
fn by_sequence(of: &RnnDesc) -> bool {
    let fit = |by_sequence: bool| {
        [Tensor::SrcLayer, Tensor::DstLayer].into_iter().all(|tensor| {
            let view =
                of.desc(tensor).map(|desc| View::new(tensor, desc, Part::Rows { by_sequence }));
            view.is_some_and(|view| view.direct(false).is_some())
        })
    };
    of.prop_kind == PropKind::ForwardInference && !fit(false) && fit(true)
}

struct Lowering<'a> {
    of: &'a RnnDesc,
    sizes: &'a Sizes,
    by_sequence: bool,
}

impl Lowering<'_> {
    fn data_type(&self) -> DType {
        self.of.descs[&Arg::Of(Tensor::SrcLayer)].dtype()
    }

    fn network(&self) -> Result<Network> {
        let (of, sizes) = (self.of, self.sizes);
        let kind = match of.cell {
            Cell::VanillaRnn(Activation::Relu) => CellKind::Relu,
            Cell::VanillaRnn(Activation::Tanh) => CellKind::Tanh,
            Cell::VanillaRnn(Activation::Logistic) => CellKind::Sigmoid,
            Cell::Lstm => CellKind::Lstm,
            Cell::Gru => CellKind::GruResetBefore,
            Cell::LbrGru => CellKind::Gru,
            Cell::Augru => CellKind::Augru,
            Cell::LbrAugru => CellKind::LbrAugru,
        };
        let options = CellOptions {
            math: Math::of(self.data_type()),
            peephole: of.has(Tensor::WeightsPeephole),
            update_first: true,
            inner_bias: of.has(Tensor::Bias),
            ..CellOptions::default()
        };
        let (direction, join) = match of.direction {
            RnnDirection::LeftToRight => (Direction::Forward, Join::Concat),
            RnnDirection::RightToLeft => (Direction::Reverse, Join::Concat),
            RnnDirection::BidirectionalConcat => (Direction::Both, Join::Concat),
            RnnDirection::BidirectionalSum => (Direction::Both, Join::Sum),
        };
        let projected = of.has(Tensor::WeightsProjection);
        let bias = of.has(Tensor::Bias);
        let layout = self.by_sequence;
        let rnn = Rnn {
            cell: RnnCell::Kind(kind, options),
            projection_size: projected.then_some(sizes.output),
            bias: if bias { BiasMode::SingleInput } else { BiasMode::None },
            layout: if layout { RowLayout::BatchMajor } else { RowLayout::SequenceMajor },
            ..Rnn::new(kind, sizes.input, sizes.hidden)
        };
        let rnn = rnn.layers(sizes.layers).direction(direction).join(join);
        let rnn = rnn.stacking(Stacking::Separate).dtype(self.data_type());
        let with = Optional {
            h_initial: of.has(Tensor::SrcIter),
            states_initial: of.has(Tensor::SrcIterC),
            h_final: of.has(Tensor::DstIter),
            states_final: of.has(Tensor::DstIterC),
            ..Optional::default()
        };
        rnn.network(Extent { batch: sizes.batch, rows: sizes.steps * sizes.batch }, with)
    }

    /// The network's graph, its tensors of the types of the arguments.
    fn typed(&self, network: &Network) -> Result<OperationGraph> {
        let mut tensors = network.graph.tensors().to_vec();
        for place in &network.places {
            let (tensor, _) = self.part(network, place);
            let own = tensors.iter_mut().find(|own| own.uid == place.uid);
            let own = own.expect("places are of the graph");
            own.dtype = self.of.descs[&Arg::Of(tensor)].dtype();
            own.alignment = own.alignment.max(own.dtype.bytes());
        }
        OperationGraph::new(tensors, network.graph.operations().to_vec())
    }

    /// What a tensor of the network's is of the arguments.
    fn part(&self, network: &Network, place: &Place) -> (Tensor, Part) {
        let Sizes { batch, layers, directions, hidden, output, .. } = *self.sizes;
        let rows = Part::Rows { by_sequence: self.by_sequence };
        let states = |size: i64| Part::States { layer: place.offset / (directions * batch * size) };
        match place.role {
            Role::Input => (Tensor::SrcLayer, rows),
            Role::Output => (Tensor::DstLayer, rows),
            Role::RowInputs => (Tensor::AugruAttention, rows),
            Role::HInitial => (Tensor::SrcIter, states(output)),
            Role::HFinal => (Tensor::DstIter, states(output)),
            Role::StatesInitial => (Tensor::SrcIterC, states(hidden)),
            Role::StatesFinal => (Tensor::DstIterC, states(hidden)),
            _ => {
                let found = (0..layers).find_map(|layer| {
                    let first = (layer * directions) as usize;
                    let offset = |kind| network.space.block(first, kind).map(|block| block.offset);
                    let is = |kind: &WeightKind| offset(*kind) == Some(place.offset);
                    Some((layer, WeightKind::ALL.into_iter().find(is)?))
                });
                let (layer, kind) = found.expect("weights are the blocks of a layer");
                let tensor = match kind {
                    WeightKind::Input => Tensor::WeightsLayer,
                    WeightKind::Recurrent => Tensor::WeightsIter,
                    WeightKind::Projection => Tensor::WeightsProjection,
                    WeightKind::Parameters if self.of.cell == Cell::Lstm => Tensor::WeightsPeephole,
                    _ => Tensor::Bias,
                };
                (tensor, Part::Weights { layer, kind })
            }
        }
    }

    /// The steps of a graph whose tensors are given, and the bytes of memory that they share.
    fn steps(
        &self,
        graph: &OperationGraph,
        given: &BTreeMap<i64, Given>,
    ) -> Result<(Vec<Step>, u64)> {
        let (mut before, mut after, mut homes) = (Vec::new(), Vec::new(), Vec::new());
        let mut scratch = 0;
        let mut tensors = graph.tensors().to_vec();
        let outputs: Vec<i64> = graph.outputs().map(|tensor| tensor.uid).collect();
        let inputs: Vec<i64> = graph.inputs().map(|tensor| tensor.uid).collect();
        for tensor in &mut tensors {
            let uid = tensor.uid;
            let is_output = outputs.contains(&uid);
            if !is_output && !inputs.contains(&uid) {
                continue;
            }
            let (arg, part) = match given[&uid] {
                Given::Part(arg, part) => (arg, part),
                Given::Workspace(offset) => {
                    homes.push((uid, Home::Argument(Arg::Workspace, offset)));
                    continue;
                }
            };
            let view = self.view(arg, part);
            if is_output && !is_moved(graph, uid) {
                tensor.dtype = view.dtype();
            }
            let is_added =
                matches!(arg, Arg::Diff(of) if of.is_weights()) && !self.of.diff_weights_overwrite;
            let is_multiplied = matches!(part, Part::Weights { kind: WeightKind::Input, .. });
            let direct = view.direct(is_multiplied);
            if let Some(strides) = direct.filter(|_| !is_added && tensor.dtype == view.dtype()) {
                tensor.strides = strides.to_vec();
                tensor.alignment = view.alignment();
                homes.push((uid, Home::Argument(arg, view.offset_bytes())));
                continue;
            }
            tensor.strides = packed_strides(&tensor.dims);
            tensor.alignment = 16;
            let scratch_home = Home::Scratch(scratch);
            scratch += tensor.span_bytes()?.next_multiple_of(ALIGNMENT);
            homes.push((uid, scratch_home));
            let name = arg.name();
            let memory = |uid: i64, of: &str| view.memory(uid, &format!("{name}{of}"));
            let own = view.fine(&TensorDesc { uid: 2, ..tensor.clone() });
            let of_argument = |uid| (uid, Home::Argument(arg, view.offset_bytes()));
            match (is_output, is_added) {
                (false, _) => before.push(Step {
                    graph: reorder::copy(memory(1, ""), own)?,
                    homes: vec![of_argument(1), (2, scratch_home)],
                }),
                (true, false) => after.push(Step {
                    graph: reorder::copy(own, memory(1, ""))?,
                    homes: vec![of_argument(1), (2, scratch_home)],
                }),
                (true, true) => after.push(Step {
                    graph: reorder::sum(memory(1, "_before"), own, memory(3, "_after"))?,
                    homes: vec![of_argument(1), (2, scratch_home), of_argument(3)],
                }),
            }
        }
        let graph = OperationGraph::new(tensors, graph.operations().to_vec())?;
        let own = Step { graph, homes };
        Ok((before.into_iter().chain([own]).chain(after).collect(), scratch))
    }

    fn view(&self, arg: Arg, part: Part) -> View {
        let (Arg::Of(tensor) | Arg::Diff(tensor)) = arg else {
            unreachable!("the workspace is no view")
        };
        let view = View::new(tensor, &self.of.descs[&arg], part);
        match tensor {
            Tensor::Bias => view.with_gates(self.of.cell.gates()),
            _ => view,
        }
    }
}

/// Whether what writes a tensor moves elements only, and so has no other type than it reads.
fn is_moved(graph: &OperationGraph, uid: i64) -> bool {
    let mut operations = graph.operations().iter();
    operations.find(|of| of.outputs.contains(&uid)).is_some_and(|of| of.op.moves())
}
