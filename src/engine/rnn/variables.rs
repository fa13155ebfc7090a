//! Variables of the templates of persistent layers (`rnn/sm75_rnn_mma.cu` and its relatives).

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::instruction::MmaInstruction;
use crate::engine::rnn::elements::{
    Constant, Field, InputRow, LayerNorm, QuantizedState, RowFunction, SavedValue, State,
};

/// Variables that the layer and its prepack kernel have in common.
#[derive(Serialize)]
pub(super) struct SharedVariables {
    /// Whether there are no tensor cores.
    pub(super) simt: bool,
    /// Whether weights are streamed.
    pub(super) streams: bool,
    /// The instruction, with tensor cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mma: Option<MmaInstruction>,
    /// C++ types of weights and y, of operands of the GEMMs, and of all else.
    pub(super) stored: &'static str,
    pub(super) element: &'static str,
    pub(super) math: &'static str,
    /// C++ types of weights and of accumulators.
    pub(super) weight: &'static str,
    pub(super) accumulator: &'static str,
    pub(super) constants: Vec<Constant>,
    /// Kernel parameters, and functions that return their rows.
    pub(super) fields: Vec<Field>,
    pub(super) rows: Vec<RowFunction>,
    pub(super) exchange: &'static str,
    /// Whether warps have halves of subtiles.
    pub(super) half_subtiles: bool,
    /// Whether a register is spared for a thread's index.
    pub(super) holds_thread: bool,
    /// C++ condition.
    pub(super) reverse: &'static str,
}

/// The weights of a GEMM.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Weights {
    /// C++ type.
    pub(super) name: String,
    /// Template arguments of the type.
    pub(super) weights: String,
    /// C++ expressions of the first unit and the first k of the warp.
    pub(super) first_unit: String,
    pub(super) first_k: String,
    /// C++ condition of what is no weight: absent where there is nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outside: Option<String>,
    /// Vectors of the operand.
    pub(super) operands: i64,
    /// C++ expression of the weight of a `gate` of a `unit` at `k`; with several vectors of the
    /// operand at element `of` of vector `n`.
    pub(super) weight: String,
    /// With tensor cores, whether rows can be read 16 bytes at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vectorised: Option<bool>,
    /// With tensor cores, the stride from row to row where K counts rows, of which 16 bytes' worth
    /// are all there or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) row_stride: Option<String>,
    /// C++ expression of the streamed weights of the warp.
    pub(super) streamed: Option<String>,
}

/// A GEMM.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Gemm {
    #[serde(flatten)]
    pub(super) weights: Weights,
    /// C++ variable of the weights.
    pub(super) variable: String,
    pub(super) comment: String,
    /// The operand of a step.
    pub(super) operand: String,
    /// Name of the constant.
    pub(super) smem_offset: String,
}

/// Variables of the prepack kernel.
#[derive(Serialize)]
pub(super) struct PrepackVariables {
    #[serde(flatten)]
    pub(super) shared: SharedVariables,
    pub(super) gemms: Vec<Weights>,
}

/// Variables of the layer's kernel.
#[derive(Serialize)]
pub(super) struct LayerVariables {
    #[serde(flatten)]
    pub(super) shared: SharedVariables,
    pub(super) gemms: Vec<Gemm>,
    /// What `device/ptx/mbarrier.cuh` asks: blocks of a cluster, and whether consumer warpgroups
    /// alternate.
    pub(super) cluster: i64,
    pub(super) ping_pong: bool,
    /// Whether CTAs exchange partial sums.
    pub(super) reduce_scatter: bool,
    /// Lines of the header comment: the problem, and the programs of the cell.
    pub(super) shape: Vec<String>,
    pub(super) listing: Vec<String>,
    pub(super) functions: BTreeSet<&'static str>,
    /// How h is quantised, and C++ functions from a number to an element of h and back.
    pub(super) quantization: Option<QuantizedState>,
    pub(super) narrow_h: &'static str,
    /// Whether there are compensations.
    pub(super) compensated: bool,
    /// Names of all members of a cell, and of those that are read at every step.
    pub(super) members: String,
    pub(super) step_inputs: String,
    pub(super) input_rows: Vec<InputRow>,
    pub(super) step_loads: Vec<StepLoad>,
    pub(super) with_reset: bool,
    /// The flag of a row.
    pub(super) reset: Option<String>,
    pub(super) parameters: Vec<Parameter>,
    /// Lines of the program of each stage.
    pub(super) stage_programs: Vec<Vec<String>>,
    pub(super) stages: Vec<StageVariables>,
    pub(super) projection: Option<Gemm>,
    /// Maximum number of layer norms of a stage.
    pub(super) layer_norms: i64,
    /// Operands of GEMMs that stages compute.
    pub(super) operands: Vec<OperandBuffer>,
    pub(super) warps_k: i64,
    /// Biases and parameters of a `unit` in memory, in the order of shared memory.
    pub(super) vectors: Vec<String>,
    /// Whether a thread has those of its units in registers.
    pub(super) lane_vectors: bool,
    /// Elements of y per store.
    pub(super) vector: i64,
    pub(super) lengths: bool,
    pub(super) layout: &'static str,
    pub(super) states: Vec<LayerState>,
    pub(super) reads_initial_states: bool,
    pub(super) writes_final_states: bool,
    pub(super) history: bool,
    pub(super) saved: Vec<SavedValue>,
    /// Whether states are reset after a step instead of before it.
    pub(super) backward: bool,
    /// States that make up h.
    pub(super) outputs: i64,
    pub(super) h_initial: Option<String>,
    /// Whether it is read 16 bytes at a time, as elements that h is made of.
    pub(super) vector_h_initial: bool,
    pub(super) h_final: Option<String>,
    /// The element of y in a row of a step, and in a row beyond all sequences.
    pub(super) y: String,
    pub(super) y_beyond: String,
    pub(super) fill: String,
}

/// A value that is read at every step.
#[derive(Serialize)]
pub(super) struct StepLoad {
    pub(super) name: String,
    /// The element.
    pub(super) from: String,
    /// The vector that is added to it.
    pub(super) bias: Option<usize>,
}

/// A parameter of the cell.
#[derive(Serialize)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) vector: usize,
}

/// A state of the cell.
#[derive(Serialize)]
pub(super) struct LayerState {
    #[serde(flatten)]
    pub(super) state: State,
    /// C++ expression of its next value, of a `cell` after its last stage.
    pub(super) new: String,
}

/// The operand of a GEMM in shared memory.
#[derive(Serialize)]
pub(super) struct OperandBuffer {
    pub(super) name: String,
    /// Name of the constant.
    pub(super) offset: String,
}

/// A stage of the cell.
#[derive(Serialize)]
pub(super) struct StageVariables {
    pub(super) gemm: Option<Gemm>,
    /// The results of the GEMM, in order.
    pub(super) gates: Vec<Gate>,
    pub(super) layer_norms: Vec<LayerNorm>,
    /// How many values of a cell each of them normalises.
    pub(super) layer_norm_sizes: Vec<usize>,
    /// What the stage computes for the next GEMM.
    pub(super) operand: Option<StageOperand>,
    pub(super) last: bool,
}

/// A result of a GEMM.
#[derive(Serialize)]
pub(super) struct Gate {
    pub(super) name: String,
    /// The vector that is added to it.
    pub(super) bias: Option<usize>,
    /// The vector that its integers are multiplied by, and the one that is subtracted before.
    pub(super) scale: Option<usize>,
    pub(super) compensation: Option<usize>,
}

/// Results of a stage that are the operand of a GEMM.
#[derive(Serialize)]
pub(super) struct StageOperand {
    pub(super) buffer: String,
    /// Its index among the exchanged operands.
    pub(super) which: usize,
    /// Members of the cell.
    pub(super) values: Vec<String>,
}
