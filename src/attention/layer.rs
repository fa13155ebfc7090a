//! A layer for a given extent: its graphs, and the layout of their tensors.

use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::{AttentionDescriptor, QueryMap};
use crate::attention::extent::AttentionExtent;
use crate::attention::pass::AttentionPass;
use crate::attention::role::AttentionRole;
use crate::attention::weights::{AttentionWeightKind, AttentionWeights};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::OperationGraph;

/// The dropouts of a layer: of the softmax, and of the outputs.
pub const DROPOUTS: i64 = 2;

/// Alignment of intermediate tensors in bytes.
const ALIGNMENT: u64 = 256;

/// Steps whose windows are a piece of those in the workspace.
pub(crate) const WINDOW_STEPS: usize = 64;

/// Splits of the keys, or of K, for whose partial results the workspace has room: as many as blocks
/// of few queries need to occupy a GPU.
const SPLITS: u64 = 64;

/// Extents of the largest tiles of gradients of queries.
const TILE_QUERIES: u64 = 128;
const TILE_ELEMENTS: u64 = 64;

/// The most that partial results of splits may take in bytes: a large layer occupies a GPU without.
const SPLITS_BYTES_MAX: u64 = 32 << 20;

/// Location of a graph tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionPlace {
    /// The graph tensor.
    pub uid: i64,
    /// The layer tensor that contains it.
    pub role: AttentionRole,
    /// Offset within the layer tensor, in elements, relative to the computed time step if there is
    /// only one.
    pub offset: i64,
}

/// One of the graphs of a layer, which run in sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionStage {
    /// The operation graph.
    pub graph: OperationGraph,
    /// The location of every input and output of the graph, by uid.
    pub places: Vec<AttentionPlace>,
}

/// A pass through a layer, lowered to operation graphs. Forward: projections, key ranges of the
/// queries, attention, output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionLayer {
    /// The layer.
    pub descriptor: AttentionDescriptor,
    /// Its extent.
    pub extent: AttentionExtent,
    /// The pass.
    pub pass: AttentionPass,
    /// Layout of its weights.
    pub weights: AttentionWeights,
    /// The graphs in execution order.
    pub stages: Vec<AttentionStage>,
}

/// Buffer sizes of a layer in bytes.
///
/// The reserve space holds, in the order of [`AttentionRole`] and each aligned to 256 bytes, what
/// the forward pass computes on the way (projected queries, keys and values, key ranges, results
/// of the heads, log-sum-exp), the seeds and positions of its dropouts, and what the backward pass
/// of the data leaves for that of the weights: the gradients of the outputs and of the projections.
/// The workspace of inference holds what the forward pass computes on the way; that of training the
/// gradient of the heads' results during the backward pass of the data, and during that of the
/// weights the gradients that are added to those in memory. Behind it are the windows of all steps,
/// then partial results of kernels.
///
/// Sizes depend on the descriptor alone. None grows where a limit of the descriptor shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionBuffers {
    /// Weight buffer.
    pub weight_bytes: u64,
    /// Workspace of a call in inference, or of any pass of training.
    pub workspace_bytes: u64,
    /// Reserve space of training; 0 in inference.
    pub reserve_bytes: u64,
}

impl AttentionDescriptor {
    /// Buffer sizes of the largest call (`mcdnnGetMultiHeadAttnBuffers`, section 6.2.1.15).
    ///
    /// # Errors
    /// `BadParam` if a buffer exceeds 2^62 bytes; `NotSupported` for training with
    /// [`QueryMap::OneToOne`](crate::attention::QueryMap::OneToOne).
    pub fn buffers(&self, training: bool) -> Result<AttentionBuffers> {
        let most = self.extent_max();
        let beams = if training { 1 } else { most.beams };
        let layer = self.bare_layer(AttentionExtent { training, beams, ..most })?;
        let passes: &[AttentionPass] = match training {
            true => &AttentionPass::ALL,
            false => &[AttentionPass::Forward],
        };
        let mut workspace_bytes = 0;
        for pass in passes {
            let layer = AttentionLayer { pass: *pass, ..layer.clone() };
            let bytes = layer.partials_offset(true)? + layer.partials_bytes_max()?;
            workspace_bytes = workspace_bytes.max(bytes);
        }
        Ok(AttentionBuffers {
            weight_bytes: layer.weights.bytes(),
            workspace_bytes,
            reserve_bytes: if training { layer.intermediate_bytes()? } else { 0 },
        })
    }

    /// The most bytes that partial results of kernels of a pass may take in its workspace, whatever
    /// the extent.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::buffers`].
    pub(crate) fn partials_bytes_max(&self, pass: AttentionPass, training: bool) -> Result<u64> {
        let most = self.extent_max();
        let beams = if training { 1 } else { most.beams };
        let layer = self.bare_layer(AttentionExtent { training, beams, ..most })?;
        AttentionLayer { pass, ..layer }.partials_bytes_max()
    }

    /// The layer without its graphs.
    pub(super) fn bare_layer(&self, extent: AttentionExtent) -> Result<AttentionLayer> {
        let AttentionExtent { batch, beams, queries, keys, .. } = extent;
        let extents =
            [("batch", batch), ("beam", beams), ("time", queries), ("time of keys", keys)];
        if let Some((name, count)) = extents.into_iter().find(|(_, count)| *count < 1) {
            let text =
                format!("attention layer: the {name} extent is {count}, expected at least 1");
            return Err(Error::bad_param(text));
        }
        let axes = AttentionExtent::default().order;
        if let Some(axis) = axes.into_iter().find(|axis| !extent.order.contains(axis)) {
            let (axis, order) = (axis.name(), extent.order.map(SequenceAxis::name));
            let text = format!("attention layer: the order {order:?} lacks {axis}");
            return Err(Error::bad_param(text));
        }
        let (size, output) = (i64::from(self.get().q_size), self.output_size());
        if extent.residuals && size != output {
            return Err(Error::bad_param(format!(
                "attention layer: residuals have {size} elements, outputs {output}"
            )));
        }
        if extent.training {
            self.check_training(extent)?;
        }
        let layer = AttentionLayer {
            descriptor: *self,
            extent,
            pass: AttentionPass::Forward,
            weights: AttentionWeights::new(self)?,
            stages: Vec::new(),
        };
        for role in AttentionRole::ALL {
            layer.bytes(role)?;
        }
        layer.intermediate_bytes()?;
        Ok(layer)
    }

    fn check_training(&self, extent: AttentionExtent) -> Result<()> {
        let refuse = |what: String| Err(Error::not_supported(format!("attention layer: {what}")));
        if extent.one_step {
            let text = "attention layer: one step in training, expected all";
            return Err(Error::bad_param(text));
        }
        match (extent.beams, self.get().query_map) {
            (1, QueryMap::AllToOne) => Ok(()),
            (_, QueryMap::OneToOne) => {
                refuse("the query map OneToOne in training, expected AllToOne".to_owned())
            }
            (beams, _) => refuse(format!("{beams} beam candidates in training, expected 1")),
        }
    }
}

impl AttentionLayer {
    /// Whether the call drops anything.
    pub fn drops(&self) -> bool {
        let settings = self.descriptor.get();
        let dropouts = [settings.attn_dropout, settings.post_dropout];
        self.extent.training && dropouts.iter().any(|dropout| !dropout.is_none())
    }

    /// Whether the layer has weights of a kind.
    pub(super) fn has(&self, kind: AttentionWeightKind) -> bool {
        self.weights.slice(kind).is_some()
    }

    /// Beam extent of keys and values.
    pub fn kv_beams(&self) -> i64 {
        self.descriptor.kv_beams(self.extent.beams)
    }

    /// Number of KV heads; 1 if neither keys nor values are projected.
    pub fn kv_heads(&self) -> i64 {
        let settings = self.descriptor.get();
        let projected = settings.k_proj_size > 0 || settings.v_proj_size > 0;
        if projected { self.descriptor.heads() } else { 1 }
    }

    /// Type and number of elements of a tensor, as the caller stores it.
    ///
    /// # Errors
    /// `BadParam` if the tensor exceeds 2^62 bytes.
    pub fn tensor(&self, role: AttentionRole) -> Result<(DType, i64)> {
        let AttentionLayer { descriptor, extent, .. } = self;
        let settings = descriptor.get();
        let (heads, kv_heads) = (descriptor.heads(), self.kv_heads());
        let sequences = [extent.batch, extent.beams];
        let kv_sequences = [extent.batch, self.kv_beams()];
        let all = |sequences: [i64; 2], more: &[i64]| {
            let counts = sequences.iter().chain(more);
            counts.fold(1i64, |count, next| count.saturating_mul(*next))
        };
        let (depth, width, steps) = (descriptor.depth(), descriptor.width(), extent.steps());
        let q_size = i64::from(settings.q_size);
        let count = match role {
            _ if role.is_of_training() && !extent.training => 0,
            AttentionRole::Queries => all(sequences, &[extent.queries, q_size]),
            AttentionRole::Residuals if extent.residuals => {
                all(sequences, &[extent.queries, q_size])
            }
            AttentionRole::Residuals => 0,
            AttentionRole::Keys => all(kv_sequences, &[extent.keys, i64::from(settings.k_size)]),
            AttentionRole::Values => all(kv_sequences, &[extent.keys, i64::from(settings.v_size)]),
            AttentionRole::Weights => self.weights.elements(),
            AttentionRole::QueryLengths => all(sequences, &[]),
            AttentionRole::KeyLengths => all(kv_sequences, &[]),
            AttentionRole::Steps => i64::from(extent.one_step),
            AttentionRole::LowWindow | AttentionRole::HighWindow => steps,
            AttentionRole::Output
            | AttentionRole::OutputGradient
            | AttentionRole::MaskedOutputGradient => {
                all(sequences, &[extent.queries, descriptor.output_size()])
            }
            AttentionRole::WeightGradients => self.weights.elements(),
            AttentionRole::QueryGradients => all(sequences, &[extent.queries, q_size]),
            AttentionRole::KeyGradients => {
                all(kv_sequences, &[extent.keys, i64::from(settings.k_size)])
            }
            AttentionRole::ValueGradients => {
                all(kv_sequences, &[extent.keys, i64::from(settings.v_size)])
            }
            AttentionRole::DropoutCount => i64::from(self.drops()),
            AttentionRole::DropoutSeeds
            | AttentionRole::DropoutPositions
            | AttentionRole::KeptSeeds
            | AttentionRole::KeptPositions => {
                if self.drops() {
                    DROPOUTS
                } else {
                    0
                }
            }
            AttentionRole::ProjectedQueries | AttentionRole::ProjectedQueryGradients => {
                all(sequences, &[steps, heads, depth])
            }
            AttentionRole::ProjectedKeys | AttentionRole::ProjectedKeyGradients => {
                all(kv_sequences, &[extent.keys, kv_heads, depth])
            }
            AttentionRole::ProjectedValues | AttentionRole::ProjectedValueGradients => {
                all(kv_sequences, &[extent.keys, kv_heads, width])
            }
            AttentionRole::AttendedGradient if !self.has(AttentionWeightKind::OWeights) => 0,
            AttentionRole::AttendedGradient => all(sequences, &[steps, heads, width]),
            AttentionRole::KeyBegin | AttentionRole::KeyEnd => all(sequences, &[steps]),
            AttentionRole::Attended => all(sequences, &[steps, heads, width]),
            AttentionRole::LogSumExp => all(sequences, &[steps, heads]),
        };
        let dtype = match role {
            AttentionRole::QueryLengths
            | AttentionRole::KeyLengths
            | AttentionRole::Steps
            | AttentionRole::LowWindow
            | AttentionRole::HighWindow
            | AttentionRole::KeyBegin
            | AttentionRole::KeyEnd
            | AttentionRole::DropoutPositions
            | AttentionRole::DropoutCount
            | AttentionRole::KeptPositions => DType::I32,
            AttentionRole::DropoutSeeds | AttentionRole::KeptSeeds => DType::I64,
            AttentionRole::LogSumExp => descriptor.math().dtype(),
            _ => settings.data_type,
        };
        match count <= (1 << 62) / dtype.bytes() as i64 {
            true => Ok((dtype, count)),
            false => {
                let text = format!("attention layer: `{}` exceeds 2^62 bytes", role.name());
                Err(Error::bad_param(text))
            }
        }
    }

    /// Size of a tensor in bytes; 0 if absent.
    ///
    /// # Errors
    /// As [`AttentionLayer::tensor`].
    pub fn bytes(&self, role: AttentionRole) -> Result<u64> {
        let (dtype, count) = self.tensor(role)?;
        Ok(count as u64 * dtype.bytes() as u64)
    }

    /// Size of all intermediate tensors in bytes, without temporary ones of training.
    ///
    /// # Errors
    /// As [`AttentionLayer::tensor`].
    pub fn intermediate_bytes(&self) -> Result<u64> {
        let kept = |role: &AttentionRole| role.is_intermediate() && !role.is_temporary();
        let roles = AttentionRole::ALL.into_iter().filter(kept);
        roles.map(|role| self.bytes(role)).try_fold(0u64, |end, bytes| {
            let end = bytes?.next_multiple_of(ALIGNMENT).checked_add(end);
            let text = "attention layer: intermediate tensors exceed 2^62 bytes";
            end.filter(|end| *end <= 1 << 62).ok_or_else(|| Error::bad_param(text))
        })
    }

    /// Bytes of the windows in the workspace: starts, and behind them ends, each of whole pieces of
    /// [`WINDOW_STEPS`]; 0 where they are by value, and in backward passes.
    pub(crate) fn windows_bytes(&self) -> u64 {
        let in_memory = self.pass == AttentionPass::Forward && !self.extent.one_step;
        let steps = (self.extent.queries as u64).next_multiple_of(WINDOW_STEPS as u64);
        if in_memory { 2 * steps * size_of::<i32>() as u64 } else { 0 }
    }

    /// Offset of the windows in the workspace, in bytes: behind intermediate tensors of inference,
    /// temporary ones of training, and the gradients of weights if they are added to others.
    ///
    /// # Errors
    /// As [`AttentionLayer::tensor`].
    pub(crate) fn windows_offset(&self, adds: bool) -> Result<u64> {
        let bytes = match self.pass {
            AttentionPass::Forward if self.extent.training => 0,
            AttentionPass::Forward => self.intermediate_bytes()?,
            AttentionPass::BackwardData => self.bytes(AttentionRole::AttendedGradient)?,
            AttentionPass::BackwardWeights if adds => self.weights.bytes(),
            AttentionPass::BackwardWeights => 0,
        };
        Ok(bytes.next_multiple_of(ALIGNMENT))
    }

    /// Offset of partial results of kernels in the workspace, in bytes.
    ///
    /// # Errors
    /// As [`AttentionLayer::tensor`].
    pub(crate) fn partials_offset(&self, adds: bool) -> Result<u64> {
        Ok(self.windows_offset(adds)? + self.windows_bytes().next_multiple_of(ALIGNMENT))
    }

    /// The most bytes that partial results of kernels may take: of splits, and of the backward pass
    /// of the data the gradient of the queries in whole tiles of accumulators, and sums of each.
    fn partials_bytes_max(&self) -> Result<u64> {
        use AttentionRole::{
            Attended, AttendedGradient, KeyGradients, MaskedOutputGradient, Output,
            ProjectedKeyGradients, ProjectedKeys, ProjectedQueries, ProjectedQueryGradients,
            ProjectedValueGradients, ProjectedValues, QueryGradients, ValueGradients,
            WeightGradients,
        };
        let results: &[AttentionRole] = match self.pass {
            AttentionPass::Forward => {
                &[ProjectedQueries, ProjectedKeys, ProjectedValues, Attended, Output]
            }
            AttentionPass::BackwardData => &[
                MaskedOutputGradient,
                AttendedGradient,
                ProjectedQueryGradients,
                ProjectedKeyGradients,
                ProjectedValueGradients,
                QueryGradients,
                KeyGradients,
                ValueGradients,
            ],
            AttentionPass::BackwardWeights => &[WeightGradients],
        };
        let mut largest = 0;
        for role in results {
            largest = largest.max(self.tensor(*role)?.1 as u64);
        }
        let accumulator = self.descriptor.math().dtype().bytes() as u64;
        let of_gradients = match self.pass {
            AttentionPass::BackwardData => {
                let heads = self.descriptor.heads() as u64;
                let sequences = (self.extent.batch as u64).saturating_mul(heads);
                let steps = (self.extent.queries as u64).next_multiple_of(TILE_QUERIES);
                let elements = (self.descriptor.depth() as u64).next_multiple_of(TILE_ELEMENTS) + 2;
                let rows = sequences.saturating_mul(steps);
                rows.saturating_mul(elements).saturating_mul(accumulator)
            }
            _ => 0,
        };
        let splits = largest.saturating_mul(accumulator).saturating_mul(SPLITS);
        let of_splits = splits.min(SPLITS_BYTES_MAX);
        Ok(of_gradients.saturating_add(of_splits).next_multiple_of(ALIGNMENT))
    }

    /// Offset of an intermediate tensor among all of them, in bytes; of a temporary one, in the
    /// workspace of its pass.
    ///
    /// # Errors
    /// As [`AttentionLayer::tensor`].
    pub fn intermediate_offset(&self, role: AttentionRole) -> Result<u64> {
        if role.is_temporary() {
            return Ok(0);
        }
        let roles = AttentionRole::ALL.into_iter();
        let before = roles.filter(|other| other.is_intermediate() && *other < role);
        before.map(|other| Ok(self.bytes(other)?.next_multiple_of(ALIGNMENT))).sum()
    }

    /// Elements between consecutive time steps of queries, residuals or outputs.
    pub fn step_stride(&self, role: AttentionRole) -> i64 {
        let extent = &self.extent;
        let size = match role {
            AttentionRole::Output => self.descriptor.output_size(),
            _ => i64::from(self.descriptor.get().q_size),
        };
        let inner = extent.order.iter().rev().take_while(|axis| **axis != SequenceAxis::Time);
        inner.fold(size, |stride, axis| match axis {
            SequenceAxis::Batch => stride * extent.batch,
            _ => stride * extent.beams,
        })
    }
}
