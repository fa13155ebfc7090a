//! Training of a network: the forward pass that keeps what gradients need, and the backward passes,
//! for the data and for the weights, as cuDNN 8 divides them (`cudnnRNNBackwardData_v8`,
//! `cudnnRNNBackwardWeights_v8`); mcDNN's document names both and describes neither.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{OperationGraph, RowLayout};
use crate::rnn::lower::{Extent, Network, Place};
use crate::rnn::network::Rnn;
use crate::rnn::role::{Optional, Role};
use crate::rnn::weights::ALIGNMENT;
use crate::tensor::TensorDesc;

/// The passes of training, for one extent.
///
/// The reserve space begins with what the forward pass keeps, layer by layer as the minimum cut of
/// its graph says, in the type of the accumulators; behind it is what the backward pass of the data
/// keeps for that of the weights, the gradients of all gates. All tensors in it are aligned to 256
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
    /// As [`Rnn::network`] and [`OperationGraph::vjp`].
    pub fn training(&self, extent: Extent, with: Optional) -> Result<Training> {
        let base = self.lowered(extent, Optional { reserve: false, ..with })?;
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
        let data: Vec<i64> =
            vjp.input_gradients.iter().copied().filter(|uid| !is_weight(uid)).collect();
        let staged = vjp.staged(&data)?;
        let mut reserve = 0;
        let mut reserved = |tensor: &TensorDesc| -> Result<()> {
            let (uid, width) = (tensor.uid, tensor.dtype.bytes() as u64);
            let offset = (reserve / width) as i64;
            places.insert(uid, Place { uid, role: Role::Reserve, offset });
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
            Network { graph, places: own, reserve_bytes: reserve, ..base.clone() }
        };
        Ok(Training {
            forward: network(vjp.forward),
            data: network(staged.first),
            weights: second.into_iter().map(network).collect(),
            row_bytes,
        })
    }
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
    let (batch, rows, size) = (base.extent.batch, base.extent.rows, base.rnn.input_size);
    let steps = rows / batch;
    let (dims, step_axis, of_lengths) = match base.rnn.layout {
        RowLayout::BatchMajor => ([batch, steps, size], 1, [batch, 1, 1]),
        _ => ([steps, batch, size], 0, [1, batch, 1]),
    };
    let lengths = builder.reshape(own.uid, &of_lengths)?;
    let vectors = builder.reshape(input.uid, &dims)?;
    let index = Pointwise::new(Mode::GenIndex).axis(step_axis);
    let step = builder.pointwise(index, &[vectors])?;
    let inside = builder.pointwise(Pointwise::new(Mode::CmpLt), &[step, lengths])?;
    let none = Pointwise::new(Mode::Identity).alphas(0.0, 1.0);
    let none = builder.pointwise(none, &[step])?;
    let select = Pointwise::new(Mode::BinarySelect).math(Math::of(base.rnn.dtype));
    let masked = builder.pointwise(select, &[vectors, none, inside])?;
    builder.name(masked, "", base.rnn.dtype);
    let masked = builder.reshape(masked, &[1, rows, size])?;
    for operation in graph.operations() {
        let read = |uid: &i64| if *uid == input.uid { masked } else { *uid };
        let inputs: Vec<i64> = operation.inputs.iter().map(read).collect();
        builder.operation_into(operation.op.clone(), &inputs, &operation.outputs);
    }
    builder.build()
}
