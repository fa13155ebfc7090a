//! The kernels of `rnn_step` besides its GEMMs, and the workspace between them.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::header::KernelNames;
use crate::engine::rnn::elements::{
    Constant, Elements, Field, InputRow, LayerNorm, QuantizedState, RowFunction, SavedValue, State,
};
use crate::engine::rnn::layer::{GemmShape, Layer};
use crate::engine::rnn::step_buffers::{Buffer, Buffers};
use crate::engine::signature::ctype;
use crate::expr::Math;
use crate::graph::CellValue;
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan};
use crate::target::Arch;

/// Threads per block, which processes one row.
pub(super) const THREADS: u32 = 256;

const TEMPLATE: &str = "rnn/sm75_rnn_cell.cu";
const ENTRY: &str = "rnn_cell";

/// Variables of the template.
#[derive(Serialize)]
struct Variables {
    /// Lines of the header comment.
    about: String,
    listing: Vec<String>,
    stored: &'static str,
    math: &'static str,
    /// C++ type of accumulators.
    accumulator: &'static str,
    /// How h is quantised, and the C++ function from a number to an element of h.
    quantization: Option<QuantizedState>,
    narrow_h: &'static str,
    constants: Vec<Constant>,
    /// Kernel parameters, and functions that return their rows.
    fields: Vec<Field>,
    rows: Vec<RowFunction>,
    functions: BTreeSet<&'static str>,
    layout: &'static str,
    lengths: bool,
    /// C++ condition.
    reverse: &'static str,
    fill: String,
    with_reset: bool,
    /// The flag of a row.
    reset: Option<String>,
    /// Names of all members of a cell, and of those that are read at every step.
    members: String,
    step_inputs: String,
    input_rows: Vec<InputRow>,
    step_loads: Vec<StepLoad>,
    parameters: Vec<Parameter>,
    states: Vec<StepState>,
    history: bool,
    saved: Vec<SavedValue>,
    /// Whether states are reset after a step instead of before it.
    backward: bool,
    /// With transposed weights, the elements of an operand.
    operand_size: Option<i64>,
    /// States that make up h.
    outputs: i64,
    /// Element of y of a column.
    y_column: String,
    /// Lines of the program of each stage, where the kernel runs stages.
    stage_programs: Vec<Vec<String>>,
    has_layer_norms: bool,
    #[serde(flatten)]
    kernel: Kernel,
}

/// What a kernel does.
#[derive(Serialize, Default)]
struct Kernel {
    /// `initial`: initialises the states. `phase`: one phase of a step. `rest`: all phases of all
    /// steps from one on. `final`: writes the final states.
    kind: &'static str,
    phases: Vec<Phase>,
    /// The first value of h in a column, and whether states are read.
    h_first: Option<String>,
    reads_initial: bool,
    /// The weight of a `row` at `k`, and the first compensation of the block's direction, where
    /// there are compensations.
    compensated_weight: Option<String>,
    compensations: String,
    /// Where the last value of h in a column is written, and whether the other states are written.
    h_final: Option<String>,
    states_final: bool,
}

/// A part of a step that needs no other block: a stage, or the projection.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Phase {
    Stage {
        stage: usize,
        first: bool,
        last: bool,
        gemm: Option<RowGemm>,
        gates: Vec<Gate>,
        layer_norms: Vec<LayerNorm>,
        /// Values of the cell from earlier stages, and for later ones.
        carried_in: Vec<Carried>,
        carried_out: Vec<Carried>,
        /// The vectors of the next GEMM's operand: members of the cell, or 0.
        operand: Vec<String>,
    },
    Projection {
        gemm: Option<RowGemm>,
    },
}

/// A GEMM that a block computes for its batch row.
#[derive(Serialize)]
struct RowGemm {
    /// Names of constants.
    k: &'static str,
    rows: String,
    /// C++ expressions: the operand, the weight of a `row` of the results at `k`, and the results.
    operand: String,
    weight: String,
    results: String,
}

/// A value that is read at every step.
#[derive(Serialize)]
struct StepLoad {
    name: String,
    /// The element.
    from: String,
    /// Element that is added to it.
    bias: Option<String>,
}

/// A parameter of the cell.
#[derive(Serialize)]
struct Parameter {
    name: String,
    /// The element.
    from: String,
}

/// A result of a GEMM.
#[derive(Serialize)]
struct Gate {
    name: String,
    from: String,
    /// Element that is added to it.
    bias: Option<String>,
}

/// A value that is stored between stages.
#[derive(Serialize)]
struct Carried {
    name: String,
    element: String,
}

/// A state of the cell.
#[derive(Serialize)]
struct StepState {
    #[serde(flatten)]
    state: State,
    /// Its value before the step.
    from: String,
    /// Member of the cell that it becomes.
    next: String,
    /// The element that holds it between steps.
    element: Option<String>,
    /// For a part of h: that, and the element of y.
    hidden: Option<String>,
    y: Option<String>,
}

/// The kernels of a layer.
pub(super) struct StepKernels<'a> {
    elements: Elements<'a>,
    layer: &'a Layer<'a>,
    buffers: Buffers<'a>,
    arch: Arch,
}

impl<'a> StepKernels<'a> {
    pub(super) fn of(layer: &'a Layer<'a>, arch: Arch) -> StepKernels<'a> {
        let buffers = Buffers::of(layer);
        StepKernels { elements: Elements::of(layer), layer, buffers, arch }
    }

    /// The function that returns a vector of the block's batch row.
    fn row_function(&self, buffer: Buffer) -> RowFunction {
        let (dtype, vectors, _, length) = self.buffers.shape(buffer);
        let of = if buffer == Buffer::Compensation { "block_direction()" } else { "blockIdx.x" };
        let row = match vectors {
            0 | 1 => format!("index_t({of})"),
            _ => format!("(index_t({of}) * {vectors} + n)"),
        };
        RowFunction {
            ctype: format!("{}*", ctype(dtype)),
            name: buffer.name(),
            parameter: if vectors > 1 { "int n" } else { "" },
            from: format!("{} + {row} * {length}", buffer.name()),
        }
    }

    /// A vector of the block's batch row.
    fn vector(&self, buffer: Buffer, at: usize) -> String {
        match self.buffers.shape(buffer) {
            (_, 0 | 1, ..) => format!("t.{}_row()", buffer.name()),
            _ => format!("t.{}_row({at})", buffer.name()),
        }
    }

    /// A kernel with everything that does not depend on what it does.
    fn kernel(&self, name: &str, about: impl Into<String>, kernel: Kernel) -> KernelPlan {
        let StepKernels { elements, layer, .. } = self;
        let (op, cell) = (layer.op, &elements.cell);
        let tensors = layer.tensors().map(|(slot, uid)| elements.field(slot, uid));
        let buffers = self.buffers.all().map(|buffer| Field {
            ctype: format!("{}*", ctype(self.buffers.shape(buffer).0)),
            name: buffer.name().to_owned(),
        });
        let numbers = elements.numbers();
        let number = |name: &str| Field { ctype: "index_t".to_owned(), name: name.to_owned() };
        let rows = layer.tensors().map(|(slot, _)| elements.row_function(slot));
        let extents = [
            Constant::new("HIDDEN_SIZE", layer.hidden_size(), ""),
            Constant::new("OUTPUT_SIZE", layer.output_size(), "of h and y"),
            Constant::new("BATCH", op.batch, ""),
            Constant::new("THREADS", i64::from(THREADS), ""),
        ];
        let operand = self.operand_size();
        let operand = operand.map(|size| {
            Constant::new("OPERAND_SIZE", size, "of the operand, for all rows of the weights")
        });
        let gates = kernel
            .compensated_weight
            .as_ref()
            .map(|_| Constant::new("RECURRENT_GATES", layer.op.cell.recurrent_gates() as i64, ""));
        let phases = &kernel.phases;
        let stages = phases.iter().any(|phase| matches!(phase, Phase::Stage { .. }));
        let normalises = |phase: &Phase| match phase {
            Phase::Stage { layer_norms, .. } => !layer_norms.is_empty(),
            Phase::Projection { .. } => false,
        };
        let has_layer_norms = phases.iter().any(normalises);
        let programs = stages.then(|| cell.programs(layer));
        let (stage_programs, functions) =
            programs.map(|programs| (programs.lines, programs.functions)).unwrap_or_default();
        let dtype = layer.dtype();
        let variables = Variables {
            about: about.into(),
            listing: if stages { elements.listing() } else { Vec::new() },
            stored: ctype(dtype),
            math: op.math.dtype().register(),
            accumulator: layer.accumulator(),
            quantization: elements.quantization(),
            narrow_h: elements.narrow_h(),
            constants: { extents.into_iter().chain(operand).chain(gates) }
                .chain(elements.constants())
                .collect(),
            fields: tensors
                .chain(buffers)
                .chain(numbers.iter().map(|(name, _)| number(name)))
                .chain([number("at")])
                .collect(),
            rows: rows.chain(self.buffers.all().map(|buffer| self.row_function(buffer))).collect(),
            functions,
            layout: op.layout.name(),
            lengths: op.with.lengths,
            reverse: elements.reverse(),
            fill: op.fill.literal(Math::of(op.math.dtype())),
            with_reset: op.with.reset,
            reset: elements.reset(),
            members: elements.members(),
            step_inputs: elements.step_input_members(),
            input_rows: elements.input_rows(),
            step_loads: self.step_loads(),
            parameters: self.parameters(),
            states: self.states(),
            history: op.with.history,
            saved: elements.saved(),
            backward: op.backward,
            operand_size: self.operand_size(),
            outputs: layer.outputs(),
            y_column: elements.y("row", "column"),
            stage_programs,
            has_layer_norms,
            kernel,
        };
        let stem = format!("sm75_rnn_cell_{dtype}_{}_{name}", layer.cell_word());
        let arguments = layer.tensors().map(|(_, uid)| Argument::Address(uid as i64));
        let scratch = (0..self.buffers.all().count()).map(Argument::Scratch);
        KernelPlan {
            spec: KernelNames { stem, template: TEMPLATE, entry: ENTRY }
                .spec(self.arch, &variables),
            launch: LaunchPlan {
                grid: Grid::fixed((op.direction.count() * op.batch) as u32),
                threads: THREADS,
                shared_bytes: 0,
                cooperative: false,
                arguments: arguments.chain(scratch).collect(),
                maps: Vec::new(),
                numbers: numbers.into_iter().map(|(_, number)| number).chain([0]).collect(),
            },
        }
    }

    /// A kernel of a step with its number, the last run-time number; a GEMM has none.
    pub(super) fn at_step(&self, kernel: &KernelPlan, at: i64) -> KernelPlan {
        let mut kernel = kernel.clone();
        if kernel.spec.entry == ENTRY {
            *kernel.launch.numbers.last_mut().expect("the step is a number") = at;
        }
        kernel
    }

    /// The kernel that initialises the states.
    pub(super) fn initial(&self) -> KernelPlan {
        let h_initial = self.layer.tensor("h_initial").is_some();
        let h_first = match h_initial {
            true => self.elements.element("h_initial", "b", "column"),
            false => format!("{}(0.f)", self.elements.narrow_h()),
        };
        let others = self.elements.states().into_iter().skip(1);
        let reads_initial = h_initial || others.into_iter().any(|state| state.initial.is_some());
        let about = "the initial states of a recurrent layer.";
        let (kind, h_first) = ("initial", Some(h_first));
        let compensated = self.layer.is_compensated();
        let kernel = Kernel {
            kind,
            h_first,
            reads_initial,
            compensated_weight: compensated.then(|| self.elements.element("r", "row", "k")),
            compensations: self.vector(Buffer::Compensation, 0),
            ..Kernel::default()
        };
        self.kernel(kind, about, kernel)
    }

    /// The kernel that writes the final states.
    pub(super) fn last(&self) -> Option<KernelPlan> {
        let with = self.layer.op.with;
        let h_final = with.h_final.then(|| self.elements.element("h_final", "b", "column"));
        let states_final = with.states_final;
        let (kind, about) = ("final", "the final states of a recurrent layer.");
        (h_final.is_some() || states_final).then(|| {
            self.kernel(kind, about, Kernel { kind, h_final, states_final, ..Kernel::default() })
        })
    }

    /// The kernel of a stage of one step.
    pub(super) fn stage(&self, stage: usize) -> KernelPlan {
        let about = format!("stage {stage} of a recurrent layer at one step.");
        let phases = vec![self.stage_phase(stage, false)];
        self.kernel(
            &format!("stage{stage}"),
            about,
            Kernel { kind: "phase", phases, ..Kernel::default() },
        )
    }

    /// The kernel that rounds the results of the projection of one step.
    pub(super) fn projection(&self) -> KernelPlan {
        let about = "the projection of a recurrent layer at one step.";
        let phases = vec![Phase::Projection { gemm: None }];
        self.kernel("projection", about, Kernel { kind: "phase", phases, ..Kernel::default() })
    }

    /// The kernel of all remaining steps.
    pub(super) fn rest(&self) -> KernelPlan {
        let stages = 0..self.layer.op.cell.stages.len();
        let stages = stages.map(|stage| self.stage_phase(stage, true));
        let projection = self.layer.gemm(None);
        let projection =
            projection.map(|gemm| Phase::Projection { gemm: Some(self.row_gemm(gemm)) });
        let about = "the remaining steps of a recurrent layer.";
        let (kind, phases) = ("rest", stages.chain(projection).collect());
        self.kernel(kind, about, Kernel { kind, phases, ..Kernel::default() })
    }

    fn step_loads(&self) -> Vec<StepLoad> {
        let inputs = self.elements.step_inputs().into_iter().map(|input| {
            let gate = input.gate.filter(|_| self.layer.op.with.x_bias);
            let column = |gate| self.elements.gate_column(gate, "unit");
            let bias = gate.map(|gate| self.elements.element("x_bias", "", &column(gate)));
            StepLoad { name: input.name, from: input.from, bias }
        });
        inputs.collect()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let names = self.elements.cell.parameters().enumerate();
        let parameter = |(at, name): (usize, &str)| Parameter {
            name: name.to_owned(),
            from: self.elements.element("parameters", &at.to_string(), "unit"),
        };
        names.map(parameter).collect()
    }

    fn states(&self) -> Vec<StepState> {
        let cell = &self.layer.op.cell;
        let outputs = cell.outputs();
        let states = self.elements.states().into_iter().enumerate().map(|(at, state)| {
            let other = at.checked_sub(outputs);
            let element = other.map(|at| format!("{}[unit]", self.vector(Buffer::States, at)));
            let output = (at < outputs && !cell.projected).then(|| {
                let column = Elements::vector_column(at, "unit");
                (format!("hidden[{column}]"), self.elements.y("row", &column))
            });
            let (hidden, y) = output.unzip();
            let from = match (&element, &hidden) {
                (Some(element), _) => element.clone(),
                (None, Some(hidden)) => format!("Math({}({hidden}))", self.elements.widen_h()),
                (None, None) => "Math(0)".to_owned(),
            };
            let next = self.elements.next_state(at).to_owned();
            StepState { state, from, next, element, hidden, y }
        });
        states.collect()
    }

    /// With transposed weights, the elements of an operand: it has all rows of the weights, 0 for
    /// those of other stages.
    fn operand_size(&self) -> Option<i64> {
        let cell = &self.layer.op.cell;
        cell.is_transposed().then(|| self.layer.hidden_size() * cell.blocks() as i64)
    }

    /// A GEMM that a block computes for its row.
    fn row_gemm(&self, gemm: &GemmShape) -> RowGemm {
        let rows = if gemm.stage.is_some() { "HIDDEN_SIZE" } else { "OUTPUT_SIZE" };
        let operand = self.vector(gemm.operand(), 0);
        if gemm.transposed {
            return RowGemm {
                k: "OPERAND_SIZE",
                rows: rows.to_owned(),
                operand,
                weight: self.elements.element(gemm.slot(), "k", "row"),
                results: self.vector(gemm.results(), 0),
            };
        }
        let row = match gemm.first_block {
            0 => "row".to_owned(),
            first => format!("{first} * {rows} + row"),
        };
        RowGemm {
            k: if gemm.is_of_state() { "OUTPUT_SIZE" } else { "HIDDEN_SIZE" },
            rows: format!("{} * {rows}", gemm.gates),
            operand,
            weight: self.elements.element(gemm.slot(), &row, "k"),
            results: self.vector(gemm.results(), gemm.first_block as usize),
        }
    }

    /// The element of the bias of a recurrent gate.
    fn recurrent_bias(&self, at: usize) -> String {
        self.elements.element("r_bias", "", &Elements::vector_column(at, "unit"))
    }

    /// A stage, with its GEMM if `multiplies`.
    fn stage_phase(&self, stage: usize, multiplies: bool) -> Phase {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let (elements, members) = (&self.elements, &self.elements.cell);
        let gates = cell.stages[stage].gemm.iter().flat_map(|of| 0..of.gates.len());
        let gates = gates.map(|gate| {
            let row = cell.first_gate(stage) + gate;
            let vector = if cell.is_transposed() { 0 } else { row };
            let acc = format!("{}[unit]", self.vector(Buffer::Gates, vector));
            let compensation = || format!("{}[unit]", self.vector(Buffer::Compensation, row));
            Gate {
                name: members.recurrent(row).to_owned(),
                from: elements.gate(row, acc, compensation),
                bias: op.with.r_bias.then(|| self.recurrent_bias(row)),
            }
        });
        let carried = |made: &dyn Fn(usize) -> bool| {
            let all = self.buffers.carried.iter().enumerate();
            let these = all.filter(|(_, value)| cell.made_in(**value).is_some_and(made));
            let carried = |(at, value): (usize, &CellValue)| Carried {
                name: members.name(*value).to_owned(),
                element: format!("{}[unit]", self.vector(Buffer::Carried, at)),
            };
            these.map(carried).collect()
        };
        let last = stage + 1 == cell.stages.len();
        let next = cell.stages.get(stage + 1).and_then(|next| next.gemm.as_ref());
        let operand = match next {
            Some(gemm) => {
                let value = |operand: &String| {
                    let output = cell.output(stage, operand).expect("the cell is valid");
                    format!("cell.{}", members.result(stage, output))
                };
                let mut vectors: Vec<String> = gemm.operands.iter().map(value).collect();
                if gemm.transposed {
                    let mut all = vec!["Math(0)".to_owned(); cell.blocks()];
                    let first = cell.first_block(stage + 1);
                    all.splice(first..first + vectors.len(), vectors);
                    vectors = all;
                }
                vectors
            }
            None if last && cell.projected => vec![format!("cell.{}", elements.next_state(0))],
            None => Vec::new(),
        };
        let gemm = self.layer.gemm(Some(stage)).filter(|_| multiplies);
        Phase::Stage {
            stage,
            first: stage == 0,
            last,
            gemm: gemm.map(|gemm| self.row_gemm(gemm)),
            gates: gates.collect(),
            layer_norms: elements.layer_norms(stage),
            carried_in: carried(&|made| made < stage),
            carried_out: carried(&|made| made == stage),
            operand,
        }
    }
}
