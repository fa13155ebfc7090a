//! The stages of a batch norm that is split so that other operations can run between them.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::norm::{Phase, expect_dims, one_element};
use crate::graph::semantics::{Semantics, resolve_to_f32};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// Per-channel sum and sum of squares; dimension 1 is the channel
/// (`MCDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR`, section 8.2.2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GenStats {
    /// Precision of the computation.
    pub math: Math,
}

/// Per-channel `eq_scale` and `eq_bias` from the sums of [`GenStats`], such that `eq_scale * x +
/// eq_bias` is the normalised value (`MCDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR`).
///
/// Training derives mean and variance from `sum`, `sq_sum` and `accum_count` and saves the mean and
/// `1 / sqrt(var + epsilon)`; inference uses the running statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BnFinalize {
    /// Source of mean and variance.
    pub phase: Phase,
    /// Precision of the computation.
    pub math: Math,
    /// Training: running mean and variance are updated.
    pub running: bool,
}

/// Gradients of a batch norm's scale and bias, and the coefficients of its data gradient `dx =
/// eq_dy_scale * dy + eq_x_scale * x + eq_bias`
/// (`MCDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BnBackwardWeights {
    /// Precision of the computation.
    pub math: Math,
}

/// Dimensions of a per-channel tensor of `x`.
fn channels(what: &dyn fmt::Display, x: &TensorDesc) -> Result<Vec<i64>> {
    if x.dims.len() < 2 {
        return Err(Error::bad_param(format!(
            "{what}: `{}` is {:?}, which has no channel dimension",
            x.name, x.dims
        )));
    }
    let mut dims = vec![1; x.dims.len()];
    dims[1] = x.dims[1];
    Ok(dims)
}

/// The dimensions of results that are all per channel of the first operand.
fn per_channel(of: &dyn Semantics, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
    Ok(Some(vec![channels(of, inputs[0])?; of.slots().outputs.len()]))
}

impl Semantics for GenStats {
    fn name(&self) -> &'static str {
        "gen_stats"
    }

    fn slots(&self) -> Slots {
        Slots::new(&["x"], &["sum", "sq_sum"])
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        per_channel(self, inputs)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let dims = channels(self, inputs[0])?;
        expect_dims(self, "sum", outputs[0], &dims)?;
        expect_dims(self, "sq_sum", outputs[1], &dims)
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }
}

impl BnFinalize {
    /// Returns the operation in f32 without running statistics.
    pub fn new(phase: Phase) -> BnFinalize {
        BnFinalize { phase, math: Math::F32, running: false }
    }
}

impl Semantics for BnFinalize {
    fn name(&self) -> &'static str {
        "bn_finalize"
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&["scale", "bias", "epsilon"], &["eq_scale", "eq_bias"]);
        if self.phase == Phase::Training {
            slots.inputs.extend(["sum", "sq_sum", "accum_count"]);
            slots.outputs.extend(["saved_mean", "saved_inv_std"]);
        }
        if self.phase == Phase::Inference || self.running {
            slots.inputs.extend(["prev_running_mean", "prev_running_var"]);
        }
        if self.running {
            slots.inputs.push("exp_avg_factor");
            slots.outputs.extend(["updated_running_mean", "updated_running_var"]);
        }
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        per_channel(self, inputs)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        if self.running && self.phase == Phase::Inference {
            return Err(Error::bad_param(format!("{self}: inference updates no statistics")));
        }
        let dims = channels(self, inputs[0])?;
        let slots = self.slots();
        let named = slots.inputs.iter().zip(inputs).chain(slots.outputs.iter().zip(outputs));
        for (slot, tensor) in named {
            match *slot {
                "epsilon" | "exp_avg_factor" | "accum_count" => one_element(self, slot, tensor)?,
                slot => expect_dims(self, slot, tensor, &dims)?,
            }
        }
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }
}

impl Semantics for BnBackwardWeights {
    fn name(&self) -> &'static str {
        "bn_backward_weights"
    }

    fn slots(&self) -> Slots {
        Slots::new(
            &["x", "dy", "mean", "inv_std", "scale"],
            &["dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias"],
        )
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        per_channel(self, inputs)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let dims = channels(self, inputs[0])?;
        expect_dims(self, "dy", inputs[1], &inputs[0].dims)?;
        let slots = self.slots();
        let parameters = slots.inputs.iter().zip(inputs).skip(2);
        for (slot, tensor) in parameters.chain(slots.outputs.iter().zip(outputs)) {
            expect_dims(self, slot, tensor, &dims)?;
        }
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }
}

fn in_math(f: &mut fmt::Formatter<'_>, name: &str, math: Math) -> fmt::Result {
    f.write_str(name)?;
    if math == Math::F64 { f.write_str("[f64]") } else { Ok(()) }
}

impl fmt::Display for GenStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_math(f, "gen_stats", self.math)
    }
}

impl fmt::Display for BnFinalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.phase {
            Phase::Inference => "bn_finalize_inference",
            Phase::Training => "bn_finalize_training",
        };
        in_math(f, name, self.math)
    }
}

impl fmt::Display for BnBackwardWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_math(f, "bn_backward_weights", self.math)
    }
}
