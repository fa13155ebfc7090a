//! Gradients of scaled dot-product attention: which there are, and the rules.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::attention::modifier::{CAPTURED_MAX, captured, captured_slots};
use crate::graph::attention::{Attention, AttentionShape};
use crate::graph::norm::expect_dims;
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

const NAME: &str = "attention_backward";

/// Gradients of the captured tensors of a `score` program.
const CAPTURED_GRADIENTS: [&str; CAPTURED_MAX] = [
    "dscore_0", "dscore_1", "dscore_2", "dscore_3", "dscore_4", "dscore_5", "dscore_6", "dscore_7",
];

/// Gradients of the operands of [`Attention`], given `do`, that of its result (Dao et al. 2022,
/// "FlashAttention", appendix B.2).
///
/// Operands are those of the forward operation, followed by its results `o` and `lse`, by `do` and,
/// with `dlse`, by the gradient of `lse`. Results are `dq`, `dk` and `dv`, like `q`, `k` and `v`,
/// followed by those that the fields enable, each like its operand and summed over the dimensions
/// along which that is broadcast.
///
/// With the scores S of the forward operation, its dropout mask K, which is 0 or `1 / (1 - p)`, and
/// sums over elements of a head,
///
/// ```text
/// P  = exp(min(S - lse, 0))      dV = (P K)^T dO
/// dP = K (dO V^T)                dS = P (dP - sum(dO O) + dlse)
/// ```
///
/// and dS is led through the modifications of the score to the operands. P is 0 for masked keys and
/// where `lse` is minus infinity: a query without unmasked keys contributes nothing. P and the
/// gradients of scores may be rounded to the type of `q`, `k`, `v` and `do` where these have the
/// same 16 bits, and to tf32.
///
/// Rows of queries and keys beyond the length of a sequence, and of keys outside the sliding window
/// and key intervals of all queries, are never used and may hold anything, including NaN; their
/// gradients are 0. All other rows must be finite, of masked keys too. Gradients of rows outside
/// every sequence are not written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AttentionBackward {
    /// The operation whose gradients these are: not paged, and without factors of 8-bit operands.
    /// Its `statistics` are needed and taken as given.
    pub forward: Attention,
    /// Whether `dlse`, the gradient of `lse`, is an operand.
    pub dlse: bool,
    /// Whether `dbias` is a result.
    pub dbias: bool,
    /// Whether `dslopes` is a result.
    pub dslopes: bool,
    /// Whether `dsinks` is a result.
    pub dsinks: bool,
    /// Whether `dscore_0` and so on, of the tensors that the `score` program captures, are results.
    pub dscore: [bool; CAPTURED_MAX],
}

impl AttentionBackward {
    /// The gradients of `q`, `k` and `v` alone.
    pub fn new(forward: Attention) -> AttentionBackward {
        AttentionBackward {
            forward: Attention { statistics: true, ..forward },
            ..AttentionBackward::default()
        }
    }

    /// Derives the extents from `inputs`, which are in the order of the slots.
    ///
    /// # Errors
    /// As [`Attention::shape`].
    pub fn shape(&self, inputs: &[&TensorDesc]) -> Result<AttentionShape> {
        self.forward.shape(&inputs[..self.operands().len().min(inputs.len())])
    }

    /// The slots of the forward operation's operands.
    fn operands(&self) -> Vec<&'static str> {
        self.forward.slots().inputs
    }

    /// The results besides `dq`, `dk` and `dv`, each with the operand whose gradient it is.
    pub fn optional(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let named = [
            (self.dbias, "dbias", "bias"),
            (self.dslopes, "dslopes", "slopes"),
            (self.dsinks, "dsinks", "sinks"),
        ];
        let slots = CAPTURED_GRADIENTS.into_iter().zip(captured_slots("score"));
        let captured = self.dscore.into_iter().zip(slots);
        let captured = captured.map(|(given, (result, operand))| (given, result, operand));
        let all = named.into_iter().chain(captured);
        all.filter(|(given, ..)| *given).map(|(_, result, operand)| (result, operand))
    }
}

impl Semantics for AttentionBackward {
    fn name(&self) -> &'static str {
        NAME
    }

    fn slots(&self) -> Slots {
        let mut slots = Slots::new(&self.operands(), &["dq", "dk", "dv"]);
        slots.inputs.extend(["o", "lse", "do"]);
        slots.inputs.extend(self.dlse.then_some("dlse"));
        slots.outputs.extend(self.optional().map(|(result, _)| result));
        slots
    }

    fn math(&self) -> DType {
        self.forward.score_dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        self.shape(inputs).map_err(of_forward)?;
        supported(self)?;
        Ok(Some(results(self, inputs)))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        supported(self)?;
        let operands = self.operands();
        let (forward, others) = inputs.split_at(operands.len());
        let (o, lse, d_o) = (others[0], others[1], others[2]);
        for (slot, tensor) in [("q", inputs[0]), ("k", inputs[1]), ("v", inputs[2])] {
            if tensor.dtype.is_f8() {
                let TensorDesc { name, dtype, .. } = tensor;
                return unsupported(format!("{slot} `{name}` is {dtype}"));
            }
        }
        let op = Attention { statistics: true, ..self.forward.clone() };
        op.check(forward, &[o, lse]).map_err(of_forward)?;
        float("do", d_o)?;
        expect_dims(&NAME, "do", d_o, &o.dims)?;
        if let Some(dlse) = others.get(3) {
            float("dlse", dlse)?;
            expect_dims(&NAME, "dlse", dlse, &lse.dims)?;
        }
        let slots = self.slots().outputs;
        for ((slot, tensor), dims) in slots.iter().zip(outputs).zip(results(self, inputs)) {
            float(slot, tensor)?;
            expect_dims(&NAME, slot, tensor, &dims)?;
        }
        Ok(())
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, operands: &[DType]) {
        self.forward.resolve(operands);
        self.forward.statistics = true;
    }

    fn normalise(&mut self) {
        self.forward.normalise();
        self.forward.statistics = true;
    }
}

/// The dimensions of the results.
fn results(op: &AttentionBackward, inputs: &[&TensorDesc]) -> Vec<Vec<i64>> {
    let operands = op.operands();
    let dims = |operand: &str| {
        let at = operands.iter().position(|slot| *slot == operand);
        inputs[at.expect("the attributes were checked")].dims.clone()
    };
    let optional = op.optional().map(|(_, operand)| operand);
    ["q", "k", "v"].into_iter().chain(optional).map(dims).collect()
}

/// Checks that the forward operation has gradients, and the operands whose gradients are results.
fn supported(op: &AttentionBackward) -> Result<()> {
    let forward = &op.forward;
    let inference = [
        (forward.paged, "a paged cache"),
        (forward.descale_q, "descale_q"),
        (forward.descale_k, "descale_k"),
        (forward.descale_v, "descale_v"),
    ];
    if let Some((_, what)) = inference.iter().find(|(given, _)| *given) {
        return unsupported((*what).to_owned());
    }
    let operands = op.operands();
    for (result, operand) in op.optional() {
        let captured = forward.score.as_deref().map(|score| captured(score).collect::<Vec<_>>());
        let at = captured_slots("score").position(|slot| slot == operand);
        let dtype = at.and_then(|at| captured.as_ref()?.get(at).copied());
        if !operands.contains(&operand) {
            return Err(Error::bad_param(format!("{NAME}: {result} without {operand}")));
        }
        if let Some(dtype) = dtype.filter(|dtype| !dtype.is_float()) {
            let text = format!("{NAME}: {result} of {operand}, which is {dtype}");
            return Err(Error::bad_param(text));
        }
    }
    Ok(())
}

/// An error of the forward operation's rules.
fn of_forward(error: Error) -> Error {
    error.context(NAME)
}

fn unsupported<T>(what: String) -> Result<T> {
    Err(Error::not_supported(format!("{NAME}: {what}, which is for inference only")))
}

fn float(slot: &str, tensor: &TensorDesc) -> Result<()> {
    match tensor.dtype {
        dtype if dtype.is_f8() => unsupported(format!("{slot} `{}` is {dtype}", tensor.name)),
        dtype if dtype.is_float() => Ok(()),
        dtype => Err(Error::bad_param(format!(
            "{NAME}: {slot} `{}` is {dtype}, expected a floating-point type",
            tensor.name
        ))),
    }
}

impl fmt::Display for AttentionBackward {
    /// Formats as `attention_backward[causal, softcap 30]`, with the attributes of the forward
    /// operation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forward = self.forward.to_string();
        let attributes = forward.strip_prefix("attention").unwrap_or_default();
        write!(f, "{NAME}{attributes}")
    }
}
