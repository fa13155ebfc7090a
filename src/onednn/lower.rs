//! Lowering of an operation to steps: the graph of its network on views of the arguments, and
//! reorders of what views cannot say.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{ErrorKind, Result};
use crate::expr::Math;
use crate::graph::{Direction, OperationGraph, RowLayout};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::constants::Constants;
use crate::onednn::description::{Activation, Cell, PropKind, RnnDesc, RnnDirection};
use crate::onednn::integers::IntegerLstm;
use crate::onednn::reorder::{self, Placed};
use crate::onednn::sizes::Sizes;
use crate::onednn::step::{ALIGNMENT, Home, Step};
use crate::onednn::view::{Part, View};
use crate::rnn::{
    BiasMode, CellKind, CellOptions, Extent, Join, Network, Optional, Place, Rnn, RnnCell, Role,
    Stacking, WeightKind,
};
use crate::tensor::{TensorDesc, packed_strides};

/// The steps of a primitive.
pub(super) struct Lowered {
    pub(super) steps: Vec<Step>,
    pub(super) constants: Vec<u8>,
    pub(super) scratch_bytes: u64,
    pub(super) workspace_bytes: u64,
}

/// What a tensor of a graph is.
#[derive(Debug, Clone, Copy)]
enum Given {
    Part(Arg, Part),
    Workspace(u64),
    /// What 1 in a row of 8-bit weights stands for.
    Unit,
}

/// Lowers an operation without `any` formats.
pub(super) fn lower(of: &RnnDesc, sizes: &Sizes) -> Result<Lowered> {
    let mut constants = Constants::default();
    let data = of.descs[&Arg::Of(Tensor::SrcLayer)].dtype();
    let integers = match data.is_float() {
        true => None,
        false => Some(IntegerLstm::new(&of.attr, data, &mut constants).map_err(|rule| {
            of.error(ErrorKind::NotSupported, &format!("data quantization: {rule}"))
        })?),
    };
    let constants = constants.bytes();
    let held = constants.len() as u64;
    let lowering = Lowering { of, sizes, by_sequence: by_sequence(of), data, integers, held };
    let network = lowering.network()?;
    let mut given: BTreeMap<i64, Given> =
        network.places.iter().map(|place| (place.uid, lowering.given(&network, place))).collect();
    let graph = lowering.typed(&network, &given)?;
    if of.prop_kind == PropKind::ForwardInference {
        let (steps, scratch_bytes) = lowering.steps(&graph, &given)?;
        return Ok(Lowered { steps, constants, scratch_bytes, workspace_bytes: 0 });
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
    Ok(Lowered { steps, constants, scratch_bytes, workspace_bytes })
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

/// What is around a graph: reorders, and where its tensors lie.
#[derive(Debug, Default)]
struct Around {
    before: Vec<Step>,
    after: Vec<Step>,
    homes: Vec<(i64, Home)>,
    /// Bytes of the primitive's own memory that are taken.
    scratch: u64,
}

struct Lowering<'a> {
    of: &'a RnnDesc,
    sizes: &'a Sizes,
    by_sequence: bool,
    data: DType,
    integers: Option<IntegerLstm>,
    /// Bytes of the primitive's own memory that have constants.
    held: u64,
}

impl Lowering<'_> {
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
            math: Math::of(self.data),
            peephole: of.has(Tensor::WeightsPeephole),
            update_first: true,
            inner_bias: of.has(Tensor::Bias),
            ..CellOptions::default()
        };
        let (direction, join) = match of.direction {
            RnnDirection::LeftToRight => (Direction::Forward, Join::Concat),
            RnnDirection::RightToLeft => (Direction::Reverse, Join::Concat),
            RnnDirection::BidirectionalConcat => (Direction::Both, Join::Concat),
            RnnDirection::BidirectionalSum => {
                let join = if self.sums_integers() { Join::Concat } else { Join::Sum };
                (Direction::Both, join)
            }
        };
        let projected = of.has(Tensor::WeightsProjection);
        let bias = of.has(Tensor::Bias);
        let layout = self.by_sequence;
        let rnn = Rnn {
            cell: RnnCell::Kind(kind, options),
            projection_size: projected.then_some(sizes.output),
            bias: if bias { BiasMode::SingleInput } else { BiasMode::None },
            layout: if layout { RowLayout::BatchMajor } else { RowLayout::SequenceMajor },
            quantization: self.integers.as_ref().map(|own| own.quantization),
            ..Rnn::new(kind, sizes.input, sizes.hidden)
        };
        let rnn = rnn.layers(sizes.layers).direction(direction).join(join);
        let rnn = rnn.stacking(Stacking::Separate).dtype(self.data);
        let with = Optional {
            h_initial: of.has(Tensor::SrcIter),
            states_initial: of.has(Tensor::SrcIterC),
            h_final: of.has(Tensor::DstIter),
            states_final: of.has(Tensor::DstIterC),
            ..Optional::default()
        };
        rnn.network(Extent { batch: sizes.batch, rows: sizes.steps * sizes.batch }, with)
    }

    /// The network's graph, its tensors of the types of the arguments; an 8-bit LSTM has its own.
    fn typed(&self, network: &Network, given: &BTreeMap<i64, Given>) -> Result<OperationGraph> {
        let mut tensors = network.graph.tensors().to_vec();
        for own in tensors.iter_mut().filter(|_| self.integers.is_none()) {
            if let Some(Given::Part(arg, _)) = given.get(&own.uid) {
                own.dtype = self.of.descs[arg].dtype();
                own.alignment = own.alignment.max(own.dtype.bytes());
            }
        }
        OperationGraph::new(tensors, network.graph.operations().to_vec())
    }

    /// What a tensor of the network's is.
    fn given(&self, network: &Network, place: &Place) -> Given {
        let Sizes { batch, layers, directions, hidden, output, .. } = *self.sizes;
        let rows = Part::Rows { by_sequence: self.by_sequence };
        let states = |size: i64| Part::States { layer: place.offset / (directions * batch * size) };
        let (tensor, part) = match place.role {
            Role::Input => (Tensor::SrcLayer, rows),
            Role::Output => (Tensor::DstLayer, rows),
            Role::RowInputs => (Tensor::AugruAttention, rows),
            Role::HInitial => (Tensor::SrcIter, states(output)),
            Role::HFinal => (Tensor::DstIter, states(output)),
            Role::StatesInitial => (Tensor::SrcIterC, states(hidden)),
            Role::StatesFinal => (Tensor::DstIterC, states(hidden)),
            role => {
                let found = (0..layers).find_map(|layer| {
                    let first = (layer * directions) as usize;
                    let is = |kind: &WeightKind| {
                        let block = network.space.block(first, *kind);
                        let (own, start) = network.space.tensor_of(*kind);
                        own == role && block.is_some_and(|own| own.offset - start == place.offset)
                    };
                    Some((layer, WeightKind::ALL.into_iter().find(is)?))
                });
                let (layer, kind) = found.expect("weights are the blocks of a layer");
                let tensor = match kind {
                    WeightKind::Input => Tensor::WeightsLayer,
                    WeightKind::Recurrent => Tensor::WeightsIter,
                    WeightKind::Projection => Tensor::WeightsProjection,
                    WeightKind::Parameters if self.of.cell == Cell::Lstm => Tensor::WeightsPeephole,
                    WeightKind::InputScales | WeightKind::RecurrentScales => return Given::Unit,
                    _ => Tensor::Bias,
                };
                (tensor, Part::Weights { layer, kind })
            }
        };
        Given::Part(Arg::Of(tensor), part)
    }

    /// The steps of a graph whose tensors are given, and the bytes of memory that they share.
    fn steps(
        &self,
        graph: &OperationGraph,
        given: &BTreeMap<i64, Given>,
    ) -> Result<(Vec<Step>, u64)> {
        let mut around = Around { scratch: self.held, ..Around::default() };
        let mut tensors = graph.tensors().to_vec();
        let outputs: Vec<i64> = graph.outputs().map(|tensor| tensor.uid).collect();
        let inputs: Vec<i64> = graph.inputs().map(|tensor| tensor.uid).collect();
        for tensor in &mut tensors {
            let uid = tensor.uid;
            let is_output = outputs.contains(&uid);
            if !is_output && !inputs.contains(&uid) {
                continue;
            }
            match given[&uid] {
                Given::Workspace(offset) => {
                    around.homes.push((uid, Home::Argument(Arg::Workspace, offset)));
                }
                Given::Unit => {
                    let own = self.integers.as_ref().expect("8-bit weights have units");
                    *tensor = own.unit.tensor(uid, &tensor.name, tensor.dims.len());
                    around.homes.push((uid, own.unit.home));
                }
                Given::Part(arg, part) => {
                    let is_cast = self.integers.is_none() && !is_moved(graph, uid);
                    if is_output && is_cast {
                        tensor.dtype = self.of.descs[&arg].dtype();
                    }
                    self.place(tensor, (arg, part), is_output, &mut around)?;
                }
            }
        }
        let graph = OperationGraph::new(tensors, graph.operations().to_vec())?;
        let Around { before, after, homes, scratch } = around;
        let own = Step { graph, homes };
        Ok((before.into_iter().chain([own]).chain(after).collect(), scratch))
    }

    /// Places a part of an argument: in its memory, or in the primitive's own if that has other
    /// strides or another type than the graph's tensor.
    fn place(
        &self,
        tensor: &mut TensorDesc,
        (arg, part): (Arg, Part),
        is_output: bool,
        around: &mut Around,
    ) -> Result<()> {
        let (uid, view) = (tensor.uid, self.view(arg, part));
        let is_added =
            matches!(arg, Arg::Diff(of) if of.is_weights()) && !self.of.diff_weights_overwrite;
        let is_summed = arg == Arg::Of(Tensor::DstLayer) && self.sums_integers();
        let is_multiplied = matches!(part, Part::Weights { kind: WeightKind::Input, .. });
        let is_direct = !is_added && !is_summed && tensor.dtype == view.dtype();
        if let Some(strides) = view.direct(is_multiplied).filter(|_| is_direct) {
            tensor.strides = strides.to_vec();
            tensor.alignment = view.alignment();
            around.homes.push((uid, Home::Argument(arg, view.offset_bytes())));
            return Ok(());
        }
        tensor.strides = packed_strides(&tensor.dims);
        tensor.alignment = 16;
        let start = around.scratch;
        around.scratch += tensor.span_bytes()?.next_multiple_of(ALIGNMENT);
        around.homes.push((uid, Home::Scratch(start)));
        let argument = Placed {
            tensor: view.memory(uid, &arg.name()),
            home: Home::Argument(arg, view.offset_bytes()),
        };
        // Directions are side by side.
        let pieces = if is_summed { self.sizes.directions } else { 1 };
        let bytes = tensor.dims[2] / pieces * tensor.dtype.bytes() as i64;
        let piece = |at: i64| Placed {
            tensor: TensorDesc {
                alignment: 1 << ((at * bytes) | 16).trailing_zeros(),
                ..view.fine(tensor)
            },
            home: Home::Scratch(start + (at * bytes) as u64),
        };
        let integers = self.integers.as_ref().map(|own| &own.data);
        if !is_output {
            around.before.push(reorder::copy(argument, piece(0), integers)?);
            return Ok(());
        }
        let added = is_added.then(|| argument.clone());
        let of = added.into_iter().chain((0..pieces).map(piece)).collect();
        around.after.push(reorder::sum(of, argument, integers)?);
        Ok(())
    }

    /// Whether the outputs of two directions are integers, of which the sum is not the network's.
    fn sums_integers(&self) -> bool {
        self.integers.is_some() && self.of.direction == RnnDirection::BidirectionalSum
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
