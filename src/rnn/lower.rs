//! Lowering of a network to an operation graph: per layer a GEMM with the input weights, if any,
//! followed by a recurrence.

use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{
    Cell, GraphBuilder, Matmul, MatmulMath, Op, OperationGraph, Quantization, Recurrence,
    RecurrenceSlots, Reduction, ReductionOp, Rng, RowLayout, Semantics, Transpose,
};
use crate::rnn::mode::{InputMode, Join, Stacking};
use crate::rnn::network::Rnn;
use crate::rnn::role::{Optional, Role};
use crate::rnn::weights::{WeightKind, WeightSpace};
use crate::tensor::TensorDesc;

/// Maximum number of elements of a network's tensors, as a power of two; prevents index overflow.
const ELEMENTS_MAX_LOG: u32 = 58;

/// Alignment of the caller's tensors in bytes.
pub(crate) const ALIGNMENT: i64 = 16;

/// Batch size and number of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Number of sequences, at least 1.
    pub batch: i64,
    /// Total number of vectors: steps times batch, or the sum of all lengths if packed.
    pub rows: i64,
}

/// Location of a graph tensor within one of the caller's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The graph tensor.
    pub uid: i64,
    /// The caller's tensor.
    pub role: Role,
    /// Offset within the caller's tensor, in elements.
    pub offset: i64,
}

/// A network lowered to an operation graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Network {
    /// The operation graph.
    pub graph: OperationGraph,
    /// The location of every input and output of the graph, by uid.
    pub places: Vec<Place>,
    /// The network.
    pub rnn: Rnn,
    /// Its batch size and number of vectors.
    pub extent: Extent,
    /// Layout of the weights.
    pub space: WeightSpace,
    /// Bytes of [`Role::Reserve`].
    pub reserve_bytes: u64,
    /// Where each tensor in the reserve space begins, in bytes, of all passes.
    pub(crate) reserve_offsets: Vec<u64>,
    /// Type of the states other than `h` before the first and after the last step.
    pub(super) states: DType,
}

impl Rnn {
    /// Lowers the network for an extent and a choice of optional tensors.
    ///
    /// # Errors
    /// As [`Rnn::validate`] and [`OperationGraph::new`]: `BadParam` for an invalid extent, a packed
    /// layout without lengths, or other states of a cell that has only `h`. With a reserve space,
    /// as [`Rnn::training`].
    pub fn network(&self, extent: Extent, with: Optional) -> Result<Network> {
        match with.reserve {
            true => Ok(self.training(extent, with)?.forward),
            false => self.lowered(extent, with, self.number_dtype()),
        }
    }

    /// The network of inference, or with a reserve space that of training, without what that keeps.
    pub(super) fn lowered(&self, extent: Extent, with: Optional, states: DType) -> Result<Network> {
        let space = WeightSpace::new(self)?;
        let Extent { batch, rows } = extent;
        if batch < 1 || rows < 0 {
            let text = format!("rnn: {rows} vectors of a batch of {batch}");
            return Err(Error::bad_param(text));
        }
        let cell = self.build_cell();
        self.check_extent(&cell, extent)?;
        let graph = OperationGraph::builder();
        let (places, shared) = (Vec::new(), Vec::new());
        Lowering { rnn: self, space, cell, extent, with, states, graph, places, shared }.network()
    }
}

impl Rnn {
    /// Checks that no tensor of the network exceeds the maximum number of elements.
    fn check_extent(&self, cell: &Cell, Extent { batch, rows }: Extent) -> Result<()> {
        let inputs = [&cell.row_inputs, &cell.unit_inputs].map(Vec::len);
        let values = cell.gates.len() + cell.states.len() + inputs[0] + inputs[1];
        let width = i128::from(self.input_size.max(self.hidden_size)) * values as i128;
        let matrices = i128::from(2 * self.layers) * i128::from(batch.max(rows));
        match width * matrices <= 1 << ELEMENTS_MAX_LOG {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "rnn: tensors of {rows} vectors exceed 2^{ELEMENTS_MAX_LOG} elements"
            ))),
        }
    }
}

struct Lowering<'a> {
    rnn: &'a Rnn,
    space: WeightSpace,
    cell: Arc<Cell>,
    extent: Extent,
    with: Optional,
    /// [`Network::states`].
    states: DType,
    graph: GraphBuilder,
    places: Vec<Place>,
    /// Tensors shared by all layers, by slot.
    shared: Vec<(&'static str, i64)>,
}

impl Lowering<'_> {
    fn network(mut self) -> Result<Network> {
        let (rnn, rows) = (self.rnn, self.extent.rows);
        let input = [1, rows, rnn.input_size];
        let mut below = self.packed(Role::Input, "input", 0, &input, rnn.dtype);
        for layer in 0..rnn.layers {
            if layer > 0 && self.with.reserve && rnn.dropouts() > 0 {
                below = self.dropped(layer - 1, below)?;
            }
            below = self.layer(layer, below)?;
        }
        if rnn.join == Join::Sum {
            let math = Math::of(rnn.dtype);
            let sum = Reduction { op: ReductionOp::Add, math };
            let y = self.graph.reduction(sum, below, &[1, rows, rnn.state_size()])?;
            self.graph.output(y, "output", rnn.dtype);
            self.places.push(Place { uid: y, role: Role::Output, offset: 0 });
        }
        self.places.sort_by_key(|place| place.uid);
        Ok(Network {
            graph: self.graph.build()?,
            places: self.places,
            rnn: rnn.clone(),
            extent: self.extent,
            space: self.space,
            reserve_bytes: 0,
            reserve_offsets: Vec::new(),
            states: self.states,
        })
    }

    /// Drops elements of the result of a layer.
    fn dropped(&mut self, layer: i64, y: i64) -> Result<i64> {
        let (rnn, Extent { batch, rows }) = (self.rnn, self.extent);
        let drawn = [(Role::DropoutSeeds, "seed"), (Role::DropoutPositions, "position")];
        let drawn = drawn.map(|(role, name)| {
            let name = format!("dropout_{name}_l{layer}");
            let dtype = if role == Role::DropoutSeeds { DType::I64 } else { DType::I32 };
            let tensor = TensorDesc::packed(self.fresh(), name, &[1; 3], dtype);
            self.place(role, layer, tensor)
        });
        let dims = self.graph.descriptor(y).expect("the layer's result is known").dims.clone();
        let keep = Rng::bernoulli(rnn.dropout.kept()).seed(None);
        let keep = match rnn.layout {
            RowLayout::BatchMajor => {
                // Numbered step by step.
                let of_steps = [dims[0], rows / batch, batch, dims[2]];
                let keep = self.graph.rng(keep, &drawn, &of_steps)?;
                let turned = Op::Transpose(Transpose { permutation: vec![0, 2, 1, 3] });
                let keep = self.graph.operation(turned, &[keep])?[0];
                self.graph.reshape(keep, &dims)?
            }
            _ => self.graph.rng(keep, &drawn, &dims)?,
        };
        let scaled = Pointwise::new(Mode::Mul).math(Math::of(rnn.dtype));
        let kept = self.graph.pointwise(scaled.alphas(rnn.dropout.scale(), 1.0), &[y, keep])?;
        self.graph.name(kept, "", rnn.dtype);
        Ok(kept)
    }

    /// Adds a layer that reads the tensor `below`; returns its result.
    fn layer(&mut self, layer: i64, below: i64) -> Result<i64> {
        let rnn = self.rnn;
        let top = layer + 1 == rnn.layers;
        let skipped = layer == 0 && rnn.input_mode == InputMode::Skip;
        let x = match skipped {
            true => below,
            false => {
                let weights = self.weights(layer, WeightKind::Input);
                match rnn.quantization {
                    Some(own) => self.input_of_integers(layer, own, [below, weights])?,
                    None => self.graph.matmul(Matmul::new(rnn.math()), below, weights)?,
                }
            }
        };
        let apart = match top {
            true => rnn.join == Join::Sum,
            false => rnn.stacking == Stacking::Separate && rnn.directions() > 1,
        };
        let with = self.with;
        let op = Recurrence {
            math: rnn.math(),
            direction: rnn.direction,
            layout: rnn.layout,
            apart,
            fill: rnn.fill,
            quantization: rnn.quantization,
            fast_activations: rnn.fast_activations,
            with: RecurrenceSlots {
                x_bias: rnn.bias.has_input(),
                r_bias: rnn.bias.has_recurrent(),
                h_initial: with.h_initial,
                states_initial: with.states_initial,
                lengths: with.lengths,
                reset: with.reset,
                h_final: with.h_final,
                states_final: with.states_final,
                history: with.history,
            },
            ..Recurrence::new(self.cell.clone(), self.extent.batch, rnn.hidden_size)
        };
        let slots = op.slots();
        let inputs: Vec<i64> =
            slots.inputs.iter().map(|slot| self.operand(slot, layer, x)).collect();
        let outputs: Vec<i64> =
            slots.outputs.iter().map(|slot| self.result(slot, layer, apart)).collect();
        self.graph.operation_into(Op::Recurrence(op), &inputs, &outputs);
        Ok(outputs[0])
    }

    /// The input contributions of a quantised layer: integer GEMMs less the shift of the input, in
    /// units of the scales.
    fn input_of_integers(
        &mut self,
        layer: i64,
        own: Quantization,
        [below, weights]: [i64; 2],
    ) -> Result<i64> {
        let mut acc = self.graph.matmul(Matmul::new(MatmulMath::I32), below, weights)?;
        if own.shift != 0 {
            let dims = &self.graph.descriptor(weights).expect("it has just been added").dims;
            let sum = Reduction { op: ReductionOp::Add, math: Math::I32 };
            let sums = self.graph.reduction(sum, weights, &[dims[0], 1, dims[2]])?;
            let less = Pointwise::new(Mode::Sub).math(Math::I32).alphas(1.0, own.shift as f64);
            acc = self.graph.pointwise(less, &[acc, sums])?;
        }
        let scales = self.weights(layer, WeightKind::InputScales);
        let scaled = Pointwise::new(Mode::Mul).math(Math::F32).alphas(own.unit(), 1.0);
        self.graph.pointwise(scaled, &[acc, scales])
    }

    fn operand(&mut self, slot: &'static str, layer: i64, x: i64) -> i64 {
        let (rnn, Extent { batch, rows }) = (self.rnn, self.extent);
        let count = |names: &[String]| names.len() as i64;
        match slot {
            "x" => x,
            "x_bias" => self.weights(layer, WeightKind::InputBias),
            "r" => self.weights(layer, WeightKind::Recurrent),
            "r_scales" => self.weights(layer, WeightKind::RecurrentScales),
            "r_bias" => self.weights(layer, WeightKind::RecurrentBias),
            "projection" => self.weights(layer, WeightKind::Projection),
            "parameters" => self.weights(layer, WeightKind::Parameters),
            "h_initial" => self.state(Role::HInitial, layer),
            "states_initial" => self.state(Role::StatesInitial, layer),
            "lengths" => self.shared(slot, Role::Lengths, &[1, 1, batch], DType::I32),
            "reset" => self.shared(slot, Role::Reset, &[1, rows, 1], DType::Bool),
            "row_inputs" => {
                let dims = [1, rows, count(&self.cell.row_inputs)];
                self.shared(slot, Role::RowInputs, &dims, rnn.number_dtype())
            }
            _ => {
                let dims = [1, rows, count(&self.cell.unit_inputs) * rnn.hidden_size];
                self.shared(slot, Role::UnitInputs, &dims, rnn.number_dtype())
            }
        }
    }

    fn result(&mut self, slot: &'static str, layer: i64, apart: bool) -> i64 {
        let (rnn, rows) = (self.rnn, self.extent.rows);
        match slot {
            "h_final" => self.state(Role::HFinal, layer),
            "states_final" => self.state(Role::StatesFinal, layer),
            "history" => {
                let dims = [rnn.directions(), rows, self.others()];
                let offset = layer * dims.iter().product::<i64>();
                let name = format!("history_l{layer}");
                self.packed(Role::History, &name, offset, &dims, rnn.number_dtype())
            }
            _ => {
                let dims = match apart {
                    true => [rnn.directions(), rows, rnn.state_size()],
                    false => [1, rows, rnn.directions() * rnn.state_size()],
                };
                if layer + 1 == rnn.layers && !apart {
                    return self.packed(Role::Output, "output", 0, &dims, rnn.dtype);
                }
                let name = format!("output_l{layer}");
                let tensor = TensorDesc::packed(self.fresh(), name, &dims, rnn.dtype);
                self.graph.tensor(TensorDesc { is_virtual: true, ..tensor })
            }
        }
    }

    /// Elements of the states other than the first, per row.
    fn others(&self) -> i64 {
        (self.cell.states.len() as i64 - 1) * self.rnn.hidden_size
    }

    /// Adds the initial or final states of a layer, `[directions, batch, ..]`.
    fn state(&mut self, role: Role, layer: i64) -> i64 {
        let rnn = self.rnn;
        let first = matches!(role, Role::HInitial | Role::HFinal);
        let size = if first { rnn.state_size() } else { self.others() };
        let dims = [rnn.directions(), self.extent.batch, size];
        let offset = layer * dims.iter().product::<i64>();
        let dtype = if first { rnn.dtype } else { self.states };
        self.packed(role, &format!("{}_l{layer}", role.name()), offset, &dims, dtype)
    }

    fn shared(&mut self, slot: &'static str, role: Role, dims: &[i64], dtype: DType) -> i64 {
        if let Some((_, uid)) = self.shared.iter().find(|(known, _)| *known == slot) {
            return *uid;
        }
        let uid = self.packed(role, role.name(), 0, dims, dtype);
        self.shared.push((slot, uid));
        uid
    }

    /// Adds the weights of all directions of a layer: the input weights as `[directions, input,
    /// gates * units]`, biases as `[directions, 1, ..]`.
    fn weights(&mut self, layer: i64, kind: WeightKind) -> i64 {
        let (directions, count) = (self.rnn.directions(), self.rnn.directions() as usize);
        let first = layer as usize * count;
        let block = self.space.block(first, kind).expect("the network has such weights");
        let last = self.space.block(first + count - 1, kind).expect("so has each direction");
        let apart = if count > 1 { last.offset - block.offset } else { block.rows * block.columns };
        let (rows, columns) = (block.rows, block.columns);
        let (dims, strides) = match kind {
            WeightKind::Input => ([directions, columns, rows], [apart, 1, columns]),
            kind if kind.is_vector() => ([directions, 1, rows], [apart, rows, 1]),
            _ => ([directions, rows, columns], [apart, columns, 1]),
        };
        let name = format!("{}_l{layer}", kind.torch_name());
        let (role, first) = self.space.tensor_of(kind);
        let tensor = TensorDesc::packed(self.fresh(), name, &dims, self.rnn.weights_dtype(role));
        let tensor = TensorDesc { strides: strides.to_vec(), ..tensor };
        self.place(role, block.offset - first, tensor)
    }

    fn packed(&mut self, role: Role, name: &str, offset: i64, dims: &[i64], dtype: DType) -> i64 {
        let tensor = TensorDesc::packed(self.fresh(), name, dims, dtype);
        self.place(role, offset, tensor)
    }

    /// Adds a tensor at an element offset from an address aligned to [`ALIGNMENT`].
    fn place(&mut self, role: Role, offset: i64, tensor: TensorDesc) -> i64 {
        let bytes = offset * tensor.dtype.bytes() as i64;
        let alignment = match role {
            // Positions lie behind seeds.
            Role::DropoutPositions => tensor.dtype.bytes(),
            _ => 1 << (bytes | ALIGNMENT).trailing_zeros(),
        };
        self.places.push(Place { uid: tensor.uid, role, offset });
        self.graph.tensor(TensorDesc { alignment, ..tensor })
    }

    fn fresh(&self) -> i64 {
        self.graph.fresh_uid()
    }
}

impl Network {
    /// Type and dimensions of a caller's tensor, as in torch.
    ///
    /// Vectors are `[steps, batch, ..]`, `[batch, steps, ..]` or, packed, `[rows, ..]`; states
    /// `[layers * directions, batch, ..]`; histories `[layers * directions, <vectors>, ..]`.
    pub fn tensor(&self, role: Role) -> (DType, Vec<i64>) {
        let (rnn, Extent { batch, rows }) = (&self.rnn, self.extent);
        let cell = rnn.build_cell();
        let vectors = |size: i64| match rnn.layout {
            RowLayout::SequenceMajor => vec![rows / batch, batch, size],
            RowLayout::BatchMajor => vec![batch, rows / batch, size],
            RowLayout::Packed => vec![rows, size],
        };
        let pseudo_layers = rnn.layers * rnn.directions();
        let others = (cell.states.len() as i64 - 1) * rnn.hidden_size;
        let dims = match role.of_gradient() {
            Role::Input => vectors(rnn.input_size),
            role @ (Role::Weights | Role::WeightNumbers) => vec![self.space.elements_of(role)],
            Role::HInitial | Role::HFinal => vec![pseudo_layers, batch, rnn.state_size()],
            Role::StatesInitial | Role::StatesFinal => vec![pseudo_layers, batch, others],
            Role::Lengths => vec![batch],
            Role::DropoutSeeds | Role::DropoutPositions => vec![rnn.dropouts()],
            Role::DropoutSubsequence => vec![1],
            Role::Reset => {
                let mut dims = vectors(1);
                dims.pop();
                dims
            }
            Role::RowInputs => vectors(cell.row_inputs.len() as i64),
            Role::UnitInputs => vectors(cell.unit_inputs.len() as i64 * rnn.hidden_size),
            Role::Output => vectors(rnn.output_size()),
            Role::History => [vec![pseudo_layers], vectors(others)].concat(),
            // Bytes: its tensors have types of their own.
            _ => vec![self.reserve_bytes as i64],
        };
        let dtype = match role {
            Role::Lengths | Role::DropoutPositions => DType::I32,
            Role::DropoutSeeds | Role::DropoutSubsequence => DType::I64,
            Role::Reset => DType::Bool,
            Role::Reserve => DType::U8,
            role @ (Role::Weights | Role::WeightNumbers) => rnn.weights_dtype(role),
            Role::Input | Role::HInitial | Role::Output | Role::HFinal => rnn.dtype,
            Role::StatesInitial | Role::StatesFinal => self.states,
            _ => rnn.number_dtype(),
        };
        (dtype, dims)
    }

    /// The caller's tensors, in the order of [`Role::ALL`].
    pub fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        let used = |role: &Role| self.places.iter().any(|place| place.role == *role);
        Role::ALL.into_iter().filter(used)
    }

    /// Size of a caller's tensor in bytes.
    pub fn bytes(&self, role: Role) -> u64 {
        let (dtype, dims) = self.tensor(role);
        dims.iter().product::<i64>() as u64 * dtype.bytes() as u64
    }
}
