//! CTC losses: what a call checks, and the plan that runs it.
//!
//! A loss is the operation `ctc_loss` of a graph. Its size follows from the setting that the
//! engine's rules choose, which nothing is compiled for.

use kiln::engine::{self, EngineConfig};
use kiln::expr::Math;
use kiln::graph::{CtcInfinite, CtcInput, CtcLoss, Op};
use kiln::plan::DeviceMemory;
use kiln::{DType, ExecutionPlan, Kiln, OperationGraph, TensorDesc, VariantPack};

use crate::ctc::{Loss, LossNormalizationMode};
use crate::handle::Handle;
use crate::kept::{Lengths, UNKNOWN, aligned, workspace_bytes};
use crate::object::Ref;
use crate::status::{Outcome, bad, refuse};
use crate::tensor::{Layout, Tensor};
use crate::values::{DataType, NanPropagation};

/// The longest label of a sequence.
pub const LABELS_MAX: i32 = CtcLoss::LABEL_LENGTH_MAX as i32;

/// Numbers of the tensors of a loss.
const X: i64 = 1;
const LABELS: i64 = 2;
const LABEL_LENGTHS: i64 = 3;
const INPUT_LENGTHS: i64 = 4;
const BEFORE: i64 = 5;
const COSTS: i64 = 6;
const DX: i64 = 7;

/// What a loss is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    loss: CtcLoss,
    probs: Layout,
    gradients: Option<Layout>,
}

/// Labels and lengths in host memory.
pub struct HostLabels {
    labels: Vec<i32>,
    label_lengths: Vec<i32>,
    input_lengths: Vec<i32>,
}

/// Addresses of labels, their lengths, and the lengths of inputs in device memory.
pub type DeviceLabels = [u64; 3];

/// Addresses of the other arguments of a call; that of gradients is 0 where there are none.
pub struct Call {
    /// The probabilities.
    pub probs: u64,
    /// The losses.
    pub costs: u64,
    /// The gradients.
    pub gradients: u64,
    /// The workspace, and its bytes.
    pub workspace: (u64, usize),
}

/// A loss that a handle has used.
pub struct PlannedLoss {
    shape: Shape,
    graph: OperationGraph,
    config: EngineConfig,
    needed: u64,
    plan: Option<ExecutionPlan>,
    /// What the last call was given, whose entries the next one replaces.
    pack: VariantPack,
    /// Labels and lengths of host memory.
    labels: Lengths,
}

impl Handle {
    /// Uses a loss of this handle's.
    pub fn loss<R>(
        &self,
        shape: &Shape,
        of: impl FnOnce(&mut PlannedLoss) -> Outcome<R>,
    ) -> Outcome<R> {
        let make = || PlannedLoss::new(&self.gpu().kiln, shape.clone());
        self.losses().with(|known| known.shape == *shape, make, of)
    }
}

impl Shape {
    /// Checks descriptors of a loss whose labels are of so many classes at most.
    pub fn of(
        loss: &Loss,
        label_length_max: i32,
        probs: Ref<Tensor>,
        gradients: Ref<Tensor>,
    ) -> Outcome<Shape> {
        let probs = probs.get("probsDesc")?.layout();
        let gradients = match gradients.is_null() {
            true => None,
            false => Some(gradients.get("gradientsDesc")?.layout()),
        };
        if probs.dims.len() != 3 {
            let dims = &probs.dims;
            return bad(format!(
                "probsDesc has dimensions {dims:?}, expected steps, sequences, classes"
            ));
        }
        if let Some(gradients) = gradients.as_ref().filter(|of| of.dims != probs.dims) {
            let [gradients, probs] = [&gradients.dims, &probs.dims];
            return bad(format!(
                "gradientsDesc has dimensions {gradients:?}, probsDesc has {probs:?}"
            ));
        }
        let types =
            [Some(("probsDesc", &probs)), gradients.as_ref().map(|of| ("gradientsDesc", of))];
        for (name, layout) in types.into_iter().flatten() {
            if layout.data_type == DataType::DOUBLE {
                return refuse(format!("{name} is MCDNN_DATA_DOUBLE, the loss computes in float"));
            }
            layout.data_type.dtype(name)?;
        }
        let input = match loss.normalization {
            LossNormalizationMode::SOFTMAX => CtcInput::Logits,
            _ => CtcInput::Probabilities,
        };
        let infinite = match loss.gradient {
            NanPropagation::PROPAGATE_NAN => CtcInfinite::Keep,
            _ => CtcInfinite::Zero,
        };
        let loss = CtcLoss {
            input,
            infinite,
            gradient: gradients.is_some(),
            math: Math::F32,
            ..CtcLoss::new(label_length_max.into())
        };
        Ok(Shape { loss, probs, gradients })
    }

    /// Sequences of the loss.
    pub fn sequences(&self) -> usize {
        self.extent(1) as usize
    }

    /// Whether gradients are computed.
    pub fn has_gradients(&self) -> bool {
        self.gradients.is_some()
    }

    fn extent(&self, axis: usize) -> i32 {
        self.probs.dims[axis]
    }

    /// Checks labels and lengths in host memory.
    pub fn check(&self, labels: &HostLabels) -> Outcome {
        let [steps, classes] = [0, 2].map(|axis| self.extent(axis));
        for (n, length) in labels.input_lengths.iter().enumerate() {
            if !(0..=steps).contains(length) {
                return bad(format!("inputLengths[{n}] is {length}, probsDesc has {steps} steps"));
            }
        }
        match labels.labels.iter().position(|label| !(1..classes).contains(label)) {
            None => Ok(()),
            Some(at) => {
                let (label, last) = (labels.labels[at], classes - 1);
                bad(format!("labels[{at}] is {label}, expected 1 to {last}"))
            }
        }
    }

    fn graph(&self) -> Outcome<OperationGraph> {
        let sequences = i64::from(self.extent(1));
        let mut graph = OperationGraph::builder();
        let x = graph.tensor(described(X, "probs", &self.probs)?);
        let gradients = |uid: i64, name: &str| {
            let layout = self.gradients.as_ref();
            layout.map(|layout| described(uid, name, layout)).transpose()
        };
        let dx = gradients(DX, "gradients")?.map(|of| graph.tensor(of));
        let kept = match self.loss.infinite {
            CtcInfinite::Keep => gradients(BEFORE, "gradients_before")?,
            _ => None,
        };
        let kept = kept.map(|of| graph.tensor(of));
        let mut array = |uid: i64, name: &str, count: i64, dtype: DType| {
            let packed = TensorDesc::packed(uid, name, &[count], dtype);
            graph.tensor(TensorDesc { alignment: dtype.bytes(), ..packed })
        };
        let inputs = [
            x,
            // There are as many as their lengths say.
            array(LABELS, "labels", 0, DType::I32),
            array(LABEL_LENGTHS, "label_lengths", sequences, DType::I32),
            array(INPUT_LENGTHS, "input_lengths", sequences, DType::I32),
        ];
        let inputs: Vec<i64> = inputs.into_iter().chain(kept).collect();
        let costs = array(COSTS, "costs", sequences, DType::F32);
        let outputs: Vec<i64> = [costs].into_iter().chain(dx).collect();
        graph.operation_into(Op::CtcLoss(self.loss.clone()), &inputs, &outputs);
        Ok(graph.build()?)
    }
}

/// A tensor of a layout.
fn described(uid: i64, name: &str, layout: &Layout) -> Outcome<TensorDesc> {
    let dtype = layout.data_type.dtype(name)?;
    let [dims, strides] = [&layout.dims, &layout.strides]
        .map(|all| all.iter().map(|of| i64::from(*of)).collect::<Vec<i64>>());
    let packed = TensorDesc::packed(uid, name, &dims, dtype);
    Ok(TensorDesc { strides, alignment: dtype.bytes(), ..packed })
}

impl HostLabels {
    /// Labels and lengths of so many sequences; refuses lengths that labels cannot have.
    pub fn new(
        labels: impl FnOnce(usize) -> Outcome<Vec<i32>>,
        label_lengths: Vec<i32>,
        input_lengths: Vec<i32>,
    ) -> Outcome<HostLabels> {
        for (n, length) in label_lengths.iter().enumerate() {
            if !(0..=LABELS_MAX).contains(length) {
                let text = format!("labelLengths[{n}] is {length}, expected at most {LABELS_MAX}");
                return bad(text);
            }
        }
        let count: i64 = label_lengths.iter().map(|length| i64::from(*length)).sum();
        Ok(HostLabels { labels: labels(count as usize)?, label_lengths, input_lengths })
    }

    /// The most labels of a sequence that a kernel for these is made for: what fills whole warps,
    /// so that there are few kernels.
    pub fn label_length_max(&self) -> i32 {
        let most = self.label_lengths.iter().max().copied().unwrap_or(0);
        [31, 63, 127].into_iter().find(|of| most <= *of).unwrap_or(LABELS_MAX)
    }

    /// All of them, one array behind the other.
    fn all(&self) -> Vec<i32> {
        [&self.labels[..], &self.label_lengths, &self.input_lengths].concat()
    }
}

impl PlannedLoss {
    fn new(kiln: &Kiln, shape: Shape) -> Outcome<PlannedLoss> {
        let graph = shape.graph()?;
        let target = kiln.device().target();
        let supported = engine::supported("ctc_loss", graph.canonical(), target)?;
        let config = supported.heuristic();
        let needed = supported.lower(&config)?.scratch.iter().sum::<u64>();
        drop(supported);
        let (pack, labels) = (VariantPack::new(), Lengths::default());
        Ok(PlannedLoss { shape, graph, config, needed, plan: None, pack, labels })
    }

    /// Bytes of its workspace.
    pub fn workspace_bytes(&self) -> usize {
        workspace_bytes(self.needed) as usize
    }

    /// Labels of host memory in device memory.
    pub fn upload(&mut self, kiln: &Kiln, labels: &HostLabels) -> Outcome<DeviceLabels> {
        let start = self.labels.address(kiln, 0, &labels.all())?;
        let bytes = |of: &[i32]| size_of_val(of) as u64;
        let lengths = start + bytes(&labels.labels);
        Ok([start, lengths, lengths + bytes(&labels.label_lengths)])
    }

    /// Queues the loss on a handle's stream.
    pub fn launch(&mut self, handle: &Handle, labels: DeviceLabels, call: &Call) -> Outcome {
        let (start, given) = call.workspace;
        let workspace = aligned(start, given as u64).filter(|(_, bytes)| *bytes >= self.needed);
        if self.needed > 0 && workspace.is_none() {
            let wanted = self.workspace_bytes();
            return bad(format!("the workspace has {given} bytes, the loss needs {wanted}"));
        }
        let plan = match &mut self.plan {
            Some(plan) => plan,
            none => none.insert(handle.gpu().kiln.plan_with(&self.graph, &self.config)?),
        };
        let [own, label_lengths, input_lengths] = labels;
        for uid in plan.tensors() {
            let address = match uid {
                X => call.probs,
                LABELS => own,
                LABEL_LENGTHS => label_lengths,
                INPUT_LENGTHS => input_lengths,
                COSTS => call.costs,
                _ => call.gradients,
            };
            let memory = DeviceMemory { address, bytes: UNKNOWN };
            // SAFETY: the program keeps its memory until the work of the call is done.
            unsafe { self.pack.set_address(uid, memory) };
        }
        if let Some((address, bytes)) = workspace {
            // SAFETY: as above.
            unsafe { self.pack.set_workspace_address(DeviceMemory { address, bytes }) };
        }
        Ok(plan.execute(&handle.stream(), &self.pack)?)
    }
}
