//! Normalisations and their gradients.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::semantics::{Semantics, resolve_to_f32};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// Elements that are normalised together (`mcdnnBackendNormMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NormMode {
    /// Layer norm: the dimensions of the scale (Ba et al. 2016).
    Layer,
    /// RMS norm: layer norm without subtraction of the mean (Zhang and Sennrich 2019).
    Rms,
    /// Instance norm: all positions of a channel of a sample; dimension 1 is the channel (Ulyanov
    /// et al. 2016).
    Instance,
    /// Batch norm: all positions of a channel in all samples (Ioffe and Szegedy 2015).
    Batch,
    /// Group norm with this number of channel groups per sample (Wu and He 2018).
    Group(i64),
}

/// Whether statistics are computed or read (`mcdnnBackendNormFwdPhase_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Mean and inverse standard deviation may be inputs.
    Inference,
    /// Mean and inverse standard deviation are computed and may be saved.
    Training,
}

/// `y = scale * (x - mean) * inv_variance + bias` with `inv_variance = 1 / sqrt(var + epsilon)`
/// (`MCDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR`, section 8.2.2.18).
///
/// Operands: `x`, `scale`, `bias`, `epsilon` (one element), followed by the optional ones. Running
/// statistics are updated to `(1 - f) * old + f * new` with `f = exp_avg_factor` and the unbiased
/// variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormForward {
    /// Elements that are normalised together.
    pub mode: NormMode,
    /// Whether statistics are computed or read.
    pub phase: Phase,
    /// Precision of the computation.
    pub math: Math,
    /// Whether there is a bias.
    pub bias: bool,
    /// Training: `mean` and `inv_variance` are saved; inference: they are inputs. RMS norm has no
    /// mean.
    pub statistics: bool,
    /// Training: running mean and variance are updated.
    pub running: bool,
}

/// The gradients of [`NormForward`] (`MCDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR`, section
/// 8.2.2.17): `dx`, `dscale` and `dbias` from `x`, `dy`, `scale` and either the saved statistics
/// or `epsilon`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NormBackward {
    /// Elements that were normalised together.
    pub mode: NormMode,
    /// Precision of the computation.
    pub math: Math,
    /// Whether the gradient of the bias is computed.
    pub bias: bool,
    /// Whether the statistics saved by the forward pass are inputs.
    pub statistics: bool,
}

impl NormMode {
    /// Name in messages and problem files, without the number of groups.
    pub fn name(self) -> &'static str {
        match self {
            NormMode::Layer => "layer",
            NormMode::Rms => "rms",
            NormMode::Instance => "instance",
            NormMode::Batch => "batch",
            NormMode::Group(_) => "group",
        }
    }

    /// Whether the mean is subtracted.
    pub fn centred(self) -> bool {
        self != NormMode::Rms
    }

    fn statistics(self) -> &'static [&'static str] {
        if self.centred() { &["mean", "inv_variance"] } else { &["inv_variance"] }
    }

    /// Checks the dimensions of `scale` and returns those of parameters and statistics.
    fn shapes(self, x: &TensorDesc, scale: &TensorDesc) -> Result<Shapes> {
        let fail = |rule: String| {
            Err(Error::bad_param(format!(
                "{} norm: {rule}: `{}` is {:?}, `{}` is {:?}",
                self.name(),
                x.name,
                x.dims,
                scale.name,
                scale.dims
            )))
        };
        let rank = x.dims.len();
        if scale.dims.len() != rank {
            return fail("operands differ in rank".to_owned());
        }
        if let NormMode::Layer | NormMode::Rms = self {
            let fits = |(x, scale): (&i64, &i64)| x == scale || *scale == 1;
            if !x.dims.iter().zip(&scale.dims).all(fits) {
                return fail("each extent of the scale must be that of x or 1".to_owned());
            }
            let left = |(x, scale): (&i64, &i64)| if *scale == 1 { *x } else { 1 };
            let statistics = x.dims.iter().zip(&scale.dims).map(left).collect();
            let (data, parameters) = (x.dims.clone(), scale.dims.clone());
            return Ok(Shapes { data, parameters, statistics });
        }
        if rank < 2 {
            return fail("x has no channel dimension".to_owned());
        }
        let channels = x.dims[1];
        let mut parameters = vec![1; rank];
        parameters[1] = channels;
        if scale.dims != parameters {
            return fail(format!("expected a scale of {parameters:?}"));
        }
        let mut statistics = vec![1; rank];
        (statistics[0], statistics[1]) = match self {
            NormMode::Batch => (1, channels),
            NormMode::Group(groups) if groups < 1 || channels % groups != 0 => {
                return fail(format!("{channels} channels do not split into {groups} groups"));
            }
            NormMode::Group(groups) => (x.dims[0], groups),
            _ => (x.dims[0], channels),
        };
        Ok(Shapes { data: x.dims.clone(), parameters, statistics })
    }
}

/// Dimensions of the tensors of a normalisation.
struct Shapes {
    data: Vec<i64>,
    parameters: Vec<i64>,
    statistics: Vec<i64>,
}

impl Shapes {
    /// Dimensions of the tensor in a slot; `None` for a scalar.
    fn of(&self, slot: &str) -> Option<&[i64]> {
        match slot {
            "x" | "y" | "dx" | "dy" => Some(&self.data),
            "mean" | "inv_variance" => Some(&self.statistics),
            "epsilon" | "exp_avg_factor" => None,
            _ => Some(&self.parameters),
        }
    }

    /// Dimensions of the results.
    fn results(&self, slots: &Slots) -> Vec<Vec<i64>> {
        slots.outputs.iter().filter_map(|slot| self.of(slot)).map(<[i64]>::to_vec).collect()
    }

    /// Checks the tensors of all slots.
    fn check(
        &self,
        what: &dyn fmt::Display,
        slots: &Slots,
        inputs: &[&TensorDesc],
        outputs: &[&TensorDesc],
    ) -> Result<()> {
        let named = slots.inputs.iter().zip(inputs).chain(slots.outputs.iter().zip(outputs));
        for (slot, tensor) in named {
            match self.of(slot) {
                None => one_element(what, slot, tensor)?,
                Some(dims) => expect_dims(what, slot, tensor, dims)?,
            }
        }
        Ok(())
    }
}

/// Checks that a tensor has the expected dimensions.
pub(super) fn expect_dims(
    what: &dyn fmt::Display,
    slot: &str,
    tensor: &TensorDesc,
    dims: &[i64],
) -> Result<()> {
    if tensor.dims == dims {
        return Ok(());
    }
    Err(Error::bad_param(format!(
        "{what}: {slot} `{}` is {:?}, expected {dims:?}",
        tensor.name, tensor.dims
    )))
}

/// Checks that a tensor has one element.
pub(super) fn one_element(what: &dyn fmt::Display, slot: &str, tensor: &TensorDesc) -> Result<()> {
    match tensor.elements() {
        Some(1) => Ok(()),
        _ => Err(Error::bad_param(format!(
            "{what}: {slot} `{}` is {:?}, expected one element",
            tensor.name, tensor.dims
        ))),
    }
}

impl NormForward {
    /// Returns a normalisation in f32 with a bias and without statistics as operands or results.
    pub fn new(mode: NormMode, phase: Phase) -> NormForward {
        let math = Math::F32;
        NormForward { mode, phase, math, bias: true, statistics: false, running: false }
    }
}

impl Semantics for NormForward {
    fn name(&self) -> &'static str {
        "norm_forward"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["x", "scale"], &["y"]);
        slots.inputs.extend(self.bias.then_some("bias"));
        slots.inputs.push("epsilon");
        if self.statistics {
            let side = match self.phase {
                Phase::Inference => &mut slots.inputs,
                Phase::Training => &mut slots.outputs,
            };
            side.extend(self.mode.statistics());
        }
        if self.running {
            let inputs = ["exp_avg_factor", "input_running_mean", "input_running_var"];
            slots.inputs.extend(inputs);
            slots.outputs.extend(["output_running_mean", "output_running_var"]);
        }
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let batch = self.mode == NormMode::Batch;
        if self.running && (!batch || self.phase == Phase::Inference) {
            let text = format!("{self}: running statistics require batch norm training");
            return Err(Error::bad_param(text));
        }
        if batch && self.phase == Phase::Inference && !self.statistics {
            let text = format!("{self}: inference requires mean and inv_variance");
            return Err(Error::bad_param(text));
        }
        let shapes = self.mode.shapes(inputs[0], inputs[1])?;
        shapes.check(self, &self.slots(), inputs, outputs)
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(Some(self.mode.shapes(inputs[0], inputs[1])?.results(&self.slots())))
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }
}

impl NormBackward {
    /// Returns the gradients in f32, including that of the bias, from saved statistics.
    pub fn new(mode: NormMode) -> NormBackward {
        NormBackward { mode, math: Math::F32, bias: true, statistics: true }
    }
}

impl Semantics for NormBackward {
    fn name(&self) -> &'static str {
        "norm_backward"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["x", "dy", "scale"], &["dx", "dscale"]);
        match self.statistics {
            true => slots.inputs.extend(self.mode.statistics()),
            false => slots.inputs.push("epsilon"),
        }
        slots.outputs.extend(self.bias.then_some("dbias"));
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let shapes = self.mode.shapes(inputs[0], inputs[2])?;
        shapes.check(self, &self.slots(), inputs, outputs)
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(Some(self.mode.shapes(inputs[0], inputs[2])?.results(&self.slots())))
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }
}

impl fmt::Display for NormForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Inference => "inference",
            Phase::Training => "training",
        };
        write!(f, "{}_norm_{phase}", self.mode.name())?;
        if let NormMode::Group(groups) = self.mode {
            write!(f, "[{groups} groups]")?;
        }
        if self.math == Math::F64 { f.write_str("[f64]") } else { Ok(()) }
    }
}

impl fmt::Display for NormBackward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_norm_backward", self.mode.name())?;
        if let NormMode::Group(groups) = self.mode {
            write!(f, "[{groups} groups]")?;
        }
        if self.math == Math::F64 { f.write_str("[f64]") } else { Ok(()) }
    }
}
