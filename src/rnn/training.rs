//! Training of a network: the forward pass that keeps what gradients need, and the backward passes,
//! for the data and for the weights, as cuDNN 8 divides them (`cudnnRNNBackwardData_v8`,
//! `cudnnRNNBackwardWeights_v8`); mcDNN's document names both and describes neither.

use std::collections::BTreeMap;

use crate::dropout::{POSITION_BYTES, SEED_BYTES};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Op, Operation, OperationGraph, RowLayout, Vjp, cone, zero_beyond_lengths};
use crate::rnn::lower::{ALIGNMENT, Extent, Network, Place};
use crate::rnn::network::Rnn;
use crate::rnn::role::{Optional, Role};
use crate::tensor::TensorDesc;

/// The passes of training, for one extent.
///
/// The reserve space begins with the seeds and positions of dropouts, `i64` and `i32`, if there are
/// any. Behind them is what the forward pass keeps, layer by layer as the minimum cut of
/// its graph says, in the type of the accumulators; behind it is what the backward pass of the data
/// keeps for that of the weights, the gradients of all gates. All tensors in it are aligned to 16
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Training {
    /// The forward pass, which writes [`Role::Reserve`].
    pub forward: Network,
    /// The gradients of input and initial states, of row and unit inputs.
    pub data: Network,
    /// The gradients of the weights, in as many graphs as have no tensor in common.
    pub weights: Vec<Network>,
    /// Bytes of the reserve space that the forward pass writes at every step, for each row.
    pub row_bytes: u64,
}

impl Rnn {
    /// The passes of training for an extent and optional tensors of the forward pass, the gradients
    /// of all of which are computed.
    ///
    /// # Errors
    /// As [`Rnn::network`] and [`OperationGraph::vjp`]; `NotSupported` for a quantised network.
    pub fn training(&self, extent: Extent, with: Optional) -> Result<Training> {
        self.training_of(extent, with, self.number_dtype())
    }

    /// As [`Rnn::training`], for states other than `h` of this type before the first and after the
    /// last step.
    pub(super) fn training_of(
        &self,
        extent: Extent,
        with: Optional,
        states: DType,
    ) -> Result<Training> {
        if self.quantization.is_some() {
            return Err(Error::not_supported("rnn: gradients of a quantised network"));
        }
        let base = self.lowered(extent, Optional { reserve: true, ..with }, states)?;
        let roles: BTreeMap<i64, Place> = base.places.iter().map(|of| (of.uid, *of)).collect();
        let differentiable = |tensor: &&TensorDesc| roles[&tensor.uid].role.gradient().is_some();
        let uids = |of: &mut dyn Iterator<Item = &TensorDesc>| -> Vec<i64> {
            of.filter(differentiable).map(|tensor| tensor.uid).collect()
        };
        let outputs = uids(&mut base.graph.outputs());
        let inputs = uids(&mut base.graph.inputs());
        let vjp = base.graph.vjp(&outputs, &inputs)?;
        let mut places = roles.clone();
        let of_gradients = outputs.iter().zip(&vjp.output_gradients);
        for (uid, gradient) in of_gradients.chain(inputs.iter().zip(&vjp.input_gradients)) {
            let Place { role, offset, .. } = roles[uid];
            let role = role.gradient().expect("it has a gradient");
            places.insert(*gradient, Place { uid: *gradient, role, offset });
        }
        let is_weight = |uid: &i64| places[uid].role == Role::WeightGradients;
        let mut data: Vec<i64> =
            vjp.input_gradients.iter().copied().filter(|uid| !is_weight(uid)).collect();
        let (backward, early) = early(&vjp, &data, &places)?;
        data.extend(early);
        let vjp = Vjp { backward, ..vjp };
        let staged = vjp.staged(&data)?;
        let drawn = self.dropouts() as u64 * (SEED_BYTES + POSITION_BYTES) as u64;
        let mut reserve = drawn.next_multiple_of(ALIGNMENT as u64);
        let mut reserve_offsets = Vec::new();
        let mut reserved = |tensor: &TensorDesc| -> Result<()> {
            let (uid, width) = (tensor.uid, tensor.dtype.bytes() as u64);
            let offset = (reserve / width) as i64;
            places.insert(uid, Place { uid, role: Role::Reserve, offset });
            reserve_offsets.push(reserve);
            reserve += tensor.span_bytes()?.next_multiple_of(ALIGNMENT as u64);
            Ok(())
        };
        for saved in vjp.saved.iter().filter(|saved| saved.kept) {
            reserved(vjp.forward.tensor(saved.uid)?)?;
        }
        for uid in &staged.kept {
            reserved(staged.first.tensor(*uid)?)?;
        }
        let rows = extent.rows.max(1) as u64;
        let kept = vjp.saved.iter().filter(|saved| saved.kept);
        let row_bytes = kept.map(|saved| saved.bytes).sum::<u64>() / rows;
        let mut second = staged.second;
        if with.lengths && self.layout != RowLayout::Packed {
            for graph in &mut second {
                *graph = masked(graph, &base, &mut places)?;
            }
        }
        let network = |graph: OperationGraph| {
            let own = graph.inputs().chain(graph.outputs()).map(|tensor| places[&tensor.uid]);
            let mut own: Vec<Place> = own.collect();
            own.sort_by_key(|place| place.uid);
            let reserve_offsets = reserve_offsets.clone();
            Network { graph, places: own, reserve_bytes: reserve, reserve_offsets, ..base.clone() }
        };
        Ok(Training {
            forward: network(vjp.forward),
            data: network(staged.first),
            weights: second.into_iter().map(network).collect(),
            row_bytes,
        })
    }
}

/// The backward graph in which those gradients of weights that come of tensors which the pass of
/// the weights is not given, as of a projection's, are copies of virtual tensors that the pass of
/// the data computes; and these, by uid.
fn early(
    vjp: &Vjp,
    data: &[i64],
    places: &BTreeMap<i64, Place>,
) -> Result<(OperationGraph, Vec<i64>)> {
    let graph = &vjp.backward;
    let of_data = cone(graph, data, |_| false);
    let is_missing = |uid: &i64| {
        let role = places.get(uid).map(|place| place.role);
        role.is_some_and(|role| {
            role == Role::Weights || (role != role.of_gradient() && !role.is_output())
        })
    };
    let mut builder = OperationGraph::builder();
    graph.tensors().iter().for_each(|tensor| _ = builder.tensor(tensor.clone()));
    let mut operations = graph.operations().to_vec();
    let mut early = Vec::new();
    for weight in vjp.input_gradients.iter().filter(|uid| !data.contains(uid)) {
        let own = cone(graph, &[*weight], |at| of_data.contains(&at));
        let mut reads = own.iter().flat_map(|at| &operations[*at].inputs);
        if !reads.any(is_missing) {
            continue;
        }
        let tensor = graph.tensor(*weight)?.clone();
        let last = places.last_key_value().map_or(0, |(uid, _)| *uid);
        let uid = builder.fresh_uid().max(last + 1);
        let name = format!("early_{}", tensor.name);
        builder.tensor(TensorDesc { uid, name, is_virtual: true, ..tensor });
        for operation in &mut operations {
            let uids = operation.outputs.iter_mut().chain(&mut operation.inputs);
            uids.filter(|own| *own == weight).for_each(|own| *own = uid);
        }
        let copy = Op::Pointwise(Pointwise::new(Mode::Identity));
        operations.push(Operation { op: copy, inputs: vec![uid], outputs: vec![*weight] });
        early.push(uid);
    }
    for operation in operations {
        builder.operation_into(operation.op, &operation.inputs, &operation.outputs);
    }
    Ok((builder.build()?, early))
}

/// A graph that reads the input as 0 beyond the lengths, where it may hold NaN: gradients of
/// weights are products with all of it.
fn masked(
    graph: &OperationGraph,
    base: &Network,
    places: &mut BTreeMap<i64, Place>,
) -> Result<OperationGraph> {
    let of_role = |role: Role| base.places.iter().find(|place| place.role == role);
    let (Some(input), Some(lengths)) = (of_role(Role::Input), of_role(Role::Lengths)) else {
        return Ok(graph.clone());
    };
    if graph.tensor(input.uid).is_err() {
        return Ok(graph.clone());
    }
    let mut builder = OperationGraph::builder();
    graph.tensors().iter().for_each(|tensor| _ = builder.tensor(tensor.clone()));
    let mut own = base.graph.tensor(lengths.uid)?.clone();
    if graph.tensor(own.uid).is_err() {
        // Tensors of all passes with one uid are one tensor.
        let last = places.last_key_value().map_or(0, |(uid, _)| *uid);
        own.uid = builder.fresh_uid().max(last + 1);
        places.insert(own.uid, Place { uid: own.uid, ..*lengths });
        builder.tensor(own.clone());
    }
    let masked = zero_beyond_lengths(&mut builder, input.uid, own.uid, base.rnn.layout)?;
    for operation in graph.operations() {
        let read = |uid: &i64| if *uid == input.uid { masked } else { *uid };
        let inputs: Vec<i64> = operation.inputs.iter().map(read).collect();
        builder.operation_into(operation.op.clone(), &inputs, &operation.outputs);
    }
    builder.build()
}

impl Network {
    /// The same, whose gradients of weights are added to what is in their place: a tensor of that
    /// place is an input, and nothing is rounded before the sum.
    ///
    /// # Errors
    /// As [`OperationGraph::builder`]'s.
    pub(crate) fn adding(self) -> Result<Network> {
        let mut builder = OperationGraph::builder();
        self.graph.tensors().iter().for_each(|tensor| _ = builder.tensor(tensor.clone()));
        let mut places = self.places.clone();
        // Gradients without what they are added to, which others may be copies of.
        let mut owns: BTreeMap<i64, i64> = BTreeMap::new();
        for operation in self.graph.operations() {
            let inputs = operation.inputs.iter().map(|uid| *owns.get(uid).unwrap_or(uid));
            let inputs: Vec<i64> = inputs.collect();
            let mut outputs = operation.outputs.clone();
            let mut sums = Vec::new();
            for uid in &mut outputs {
                let of_weights = |of: &&Place| of.uid == *uid && of.role == Role::WeightGradients;
                let Some(place) = self.places.iter().find(of_weights) else { continue };
                let tensor = self.graph.tensor(*uid)?;
                let named = |name: &str| format!("{}_{name}", tensor.name);
                let math = Math::of(tensor.dtype);
                // What views have is of one type.
                let dtype = match operation.op {
                    Op::Pointwise(_) | Op::Matmul(_) | Op::Reduction(_) => math.dtype(),
                    _ => tensor.dtype,
                };
                let (name, before) = (named("before"), builder.fresh_uid());
                builder.tensor(TensorDesc { uid: before, name, ..tensor.clone() });
                places.push(Place { uid: before, ..*place });
                let own = builder.fresh_uid();
                let sum = TensorDesc::packed(own, named("own"), &tensor.dims, dtype);
                builder.tensor(TensorDesc { is_virtual: true, ..sum });
                sums.push((Pointwise::new(Mode::Add).math(math), [own, before], *uid));
                owns.insert(*uid, own);
                *uid = own;
            }
            builder.operation_into(operation.op.clone(), &inputs, &outputs);
            for (op, inputs, sum) in sums {
                builder.pointwise_into(op, &inputs, sum);
            }
        }
        places.sort_by_key(|place| place.uid);
        Ok(Network { graph: builder.build()?, places, ..self })
    }
}
