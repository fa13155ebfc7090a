//! A layer's tensors and cell as C++ expressions, common to all of its kernels.

use serde::Serialize;

use crate::engine::rnn::cell_struct::CellStruct;
use crate::engine::rnn::layer::Layer;
use crate::engine::signature::{Indent, ctype};
use crate::expr::{Identifiers, Math, Real};
use crate::graph::{CellValue, Direction, LayerNormStatistics, Quantization, Stage};
use crate::tensor::TensorDesc;

/// Slots with a row per step.
const STEPPED: [&str; 6] = ["x", "row_inputs", "unit_inputs", "y", "history", "saved"];

/// A field of a struct.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Field {
    pub(super) ctype: String,
    pub(super) name: String,
}

/// A constant of a kernel.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Constant {
    ctype: &'static str,
    pub(super) name: String,
    value: String,
    /// Comment.
    about: &'static str,
}

impl Constant {
    pub(super) fn new(name: impl Into<String>, value: i64, about: &'static str) -> Constant {
        let ctype = if i32::try_from(value).is_ok() { "int" } else { "index_t" };
        Constant { ctype, name: name.into(), value: value.to_string(), about }
    }
}

/// The function `{name}_row` of the kernel parameters: a row of a tensor.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RowFunction {
    /// Type of the pointer that it returns.
    pub(super) ctype: String,
    pub(super) name: &'static str,
    /// Declaration of its parameter, if it has one.
    pub(super) parameter: &'static str,
    /// The pointer.
    pub(super) from: String,
}

/// A pointer to the row of a tensor from which a cell reads at every step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct InputRow {
    ctype: String,
    name: &'static str,
    /// C++ expression of the pointer.
    from: String,
}

/// A value that a cell reads from memory at every step.
#[derive(Debug, Clone)]
pub(super) struct StepInput {
    pub(super) name: String,
    /// C++ expression of the element, by the name of an [`InputRow`].
    pub(super) from: String,
    /// Gate that it belongs to.
    pub(super) gate: Option<usize>,
}

/// An element in memory that is written.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Written {
    /// C++ expression of the element.
    to: String,
    /// C++ function that gives it from a number.
    narrow: String,
}

/// A state of a cell.
#[derive(Debug, Clone, Serialize)]
pub(super) struct State {
    pub(super) name: String,
    /// C++ expression of its first value.
    pub(super) initial: Option<String>,
    /// Where its last value is written.
    #[serde(rename = "final")]
    pub(super) last: Option<Written>,
    /// Where its value is written at every step.
    history: Option<Written>,
}

/// A value of the cell that is written at every step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SavedValue {
    #[serde(flatten)]
    written: Written,
    member: String,
}

/// A layer norm of a stage.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LayerNorm {
    pub(super) name: String,
    /// Members of the cell for the mean and the inverse standard deviation.
    mean: String,
    inverse: String,
    /// Values of a `cell` that are normalised.
    values: Vec<String>,
    /// Their number in a row.
    count: String,
    epsilon: String,
}

/// How h is quantised: C++ literals.
#[derive(Debug, Clone, Serialize)]
pub(super) struct QuantizedState {
    scale: String,
    shift: i64,
    unit: String,
}

/// C++ expressions of one layer.
#[derive(Debug, Clone)]
pub(super) struct Elements<'a> {
    pub(super) layer: &'a Layer<'a>,
    pub(super) cell: CellStruct,
    /// Names of the gate index constants.
    gates: Vec<String>,
}

/// Name of the constant of a tensor's stride along an axis.
pub(super) fn stride(slot: &str, axis: &str) -> String {
    format!("{}_STRIDE_{axis}", slot.to_uppercase())
}

/// Whether rows are numbered by steps. One kernel serves every number of steps, including 1.
fn has_steps(slot: &str) -> bool {
    STEPPED.contains(&slot) || slot == "reset"
}

/// The type of a pointer to a tensor.
fn pointer(slot: &str, tensor: &TensorDesc) -> String {
    let written = matches!(slot, "y" | "h_final" | "states_final" | "history" | "saved");
    let constant = if written { "" } else { "const " };
    format!("{constant}{}*", ctype(tensor.dtype))
}

/// The conversion from a number to a storage type.
fn narrow(ctype: &str) -> String {
    format!("Narrow<{ctype}>::from")
}

/// Characters of a line.
const COLUMNS_MAX: usize = 100;

/// Entries with separators, on as many lines as they need, all but the first with an indent.
pub(super) fn wrapped(entries: &[String], separator: &str, indent: Indent) -> String {
    let (mut text, mut column) = (String::new(), indent.0);
    for (at, entry) in entries.iter().enumerate() {
        let separator = if at + 1 < entries.len() { separator } else { "" };
        // One more for what ends the statement.
        if at > 0 && column + entry.len() + separator.trim_end().len() >= COLUMNS_MAX {
            text.truncate(text.trim_end().len());
            text += &format!("\n{}", " ".repeat(indent.0));
            column = indent.0;
        }
        text += entry;
        text += separator;
        column += entry.len() + separator.len();
    }
    text
}

impl<'a> Elements<'a> {
    pub(super) fn of(layer: &'a Layer<'a>) -> Elements<'a> {
        let mut identifiers = Identifiers::new();
        let name = |gate: &String| identifiers.fresh(&format!("gate_{}", Identifiers::base(gate)));
        let gates = layer.op.cell.gates.iter().map(name).collect();
        Elements { layer, cell: CellStruct::of(layer), gates }
    }

    /// Run-time numbers of the launch, which depend on the number of steps.
    pub(super) fn numbers(&self) -> Vec<(String, i64)> {
        let layer = self.layer;
        let mut numbers =
            vec![("steps".to_owned(), layer.steps_max()), ("rows".to_owned(), layer.rows())];
        for slot in STEPPED {
            let shared = |tensor: &&TensorDesc| tensor.dims[0] > 1;
            if let Some(tensor) = layer.tensor(slot).filter(shared) {
                numbers.push((format!("{slot}_direction"), tensor.strides[0]));
            }
        }
        numbers
    }

    fn has_rows(&self, slot: &str) -> bool {
        let tensor = self.layer.tensor(slot).expect("the slot is there");
        tensor.dims[1] > 1 || has_steps(slot)
    }

    /// The function that returns a row of a tensor in the direction of the block.
    pub(super) fn row_function(&self, slot: &'static str) -> RowFunction {
        let tensor = self.layer.tensor(slot).expect("the slot is there");
        let direction = match (tensor.dims[0] > 1, has_steps(slot)) {
            (false, _) => String::new(),
            (true, true) => format!("block_direction() * {slot}_direction"),
            (true, false) => {
                format!("index_t(block_direction()) * {}", stride(slot, "DIRECTION"))
            }
        };
        let (parameter, row) = match self.has_rows(slot) {
            true => ("index_t row", format!("row * {}", stride(slot, "ROW"))),
            false => ("", String::new()),
        };
        let terms = [slot.to_owned(), direction, row].into_iter().filter(|term| !term.is_empty());
        let from = wrapped(&terms.collect::<Vec<_>>(), " + ", Indent(15));
        RowFunction { ctype: pointer(slot, tensor), name: slot, parameter, from }
    }

    /// A row of a tensor.
    pub(super) fn row(&self, slot: &str, row: &str) -> String {
        let row = if self.has_rows(slot) { row } else { "" };
        format!("t.{slot}_row({row})")
    }

    /// An element of a tensor.
    pub(super) fn element(&self, slot: &str, row: &str, column: &str) -> String {
        format!("{}[{column}]", self.row(slot, row))
    }

    /// An element by its offset from the first row. Pointers to rows, in the rolled loop that loads
    /// weights, are read before they are set in the PTX of NVRTC 13.0.
    pub(super) fn element_of_first_row(&self, slot: &str, row: &str, column: &str) -> String {
        match self.has_rows(slot) {
            true => {
                let offset = format!("index_t({row}) * {} + {column}", stride(slot, "ROW"));
                self.element(slot, "0", &offset)
            }
            false => self.element(slot, row, column),
        }
    }

    /// Constants: the strides of all tensors, and the index of each gate in a row.
    pub(super) fn constants(&self) -> Vec<Constant> {
        let strides = self.layer.tensors().flat_map(|(slot, uid)| {
            let strides = &self.layer.graph.tensors[uid].strides;
            // Those of tensors with a row for every step depend on their number (`numbers`).
            let direction = (!has_steps(slot)).then(|| (stride(slot, "DIRECTION"), strides[0]));
            direction.into_iter().chain([(stride(slot, "ROW"), strides[1])])
        });
        let gates = self.gates.iter().cloned().zip(0..);
        strides.chain(gates).map(|(name, value)| Constant::new(name, value, "")).collect()
    }

    /// Column of `unit` of a gate in a row of all gates.
    pub(super) fn gate_column(&self, at: usize, unit: &str) -> String {
        format!("{} * HIDDEN_SIZE + {unit}", self.gates[at])
    }

    /// Column of `unit` of one of several vectors in a row.
    pub(super) fn vector_column(at: usize, unit: &str) -> String {
        match at {
            0 => unit.to_owned(),
            1 => format!("HIDDEN_SIZE + {unit}"),
            _ => format!("{at} * HIDDEN_SIZE + {unit}"),
        }
    }

    /// The address of a tensor as a field of the kernel parameters.
    pub(super) fn field(&self, slot: &str, uid: usize) -> Field {
        Field { ctype: pointer(slot, &self.layer.graph.tensors[uid]), name: slot.to_owned() }
    }

    /// The declarators of a cell's members, and of those that are read at every step.
    pub(super) fn members(&self) -> String {
        let names: Vec<String> = self.cell.all().into_iter().map(str::to_owned).collect();
        wrapped(&names, ", ", Indent(9))
    }

    pub(super) fn step_input_members(&self) -> String {
        let names: Vec<String> = self.cell.step_inputs().map(|(_, name)| name.to_owned()).collect();
        wrapped(&names, ", ", Indent(9))
    }

    /// The rows that unit `unit` of row `row` reads at every step.
    pub(super) fn input_rows(&self) -> Vec<InputRow> {
        let slots = ["x", "row_inputs", "unit_inputs"].into_iter();
        let tensors = slots.filter_map(|slot| Some((slot, self.layer.tensor(slot)?)));
        let row = |(slot, tensor): (&'static str, &TensorDesc)| {
            let unit = if slot == "row_inputs" { "" } else { " + unit" };
            let from = format!("{}{unit}", self.row(slot, "row"));
            InputRow { ctype: pointer(slot, tensor), name: slot, from }
        };
        tensors.map(row).collect()
    }

    /// Values read at every step from [`input_rows`](Self::input_rows).
    pub(super) fn step_inputs(&self) -> Vec<StepInput> {
        let x_width = self.layer.tensor("x").map(|x| x.dims[2]);
        let vector = |at: usize| match at {
            0 => "0".to_owned(),
            1 => "HIDDEN_SIZE".to_owned(),
            _ => format!("{at} * HIDDEN_SIZE"),
        };
        let value = |(value, name): (CellValue, &str)| {
            let (from, gate) = match value {
                // One contribution for all gates.
                CellValue::Gate(gate) if x_width == Some(self.layer.hidden_size()) => {
                    ("x[0]".to_owned(), Some(gate))
                }
                CellValue::Gate(gate) => {
                    (format!("x[{} * HIDDEN_SIZE]", self.gates[gate]), Some(gate))
                }
                CellValue::RowInput(at) => (format!("row_inputs[{at}]"), None),
                CellValue::UnitInput(at) => (format!("unit_inputs[{}]", vector(at)), None),
                other => unreachable!("{other:?} is not read from memory"),
            };
            StepInput { name: name.to_owned(), from, gate }
        };
        self.cell.step_inputs().map(value).collect()
    }

    /// The reset flag of row `row`.
    pub(super) fn reset(&self) -> Option<String> {
        self.layer.op.with.reset.then(|| self.element("reset", "row", "0"))
    }

    /// States, of unit `unit` of batch row `b`, which is row `row` of the history.
    pub(super) fn states(&self) -> Vec<State> {
        let (layer, op, cell) = (self.layer, self.layer.op, &self.layer.op.cell);
        let outputs = cell.outputs();
        let written = |slot: &str, row: &str, column: &str| {
            let tensor = layer.tensor(slot).expect("the slot is there");
            let narrow = match slot {
                "h_final" if layer.quantization().is_some() => self.narrow_h().to_owned(),
                _ => narrow(ctype(tensor.dtype)),
            };
            Written { to: self.element(slot, row, column), narrow }
        };
        let state = |at: usize| {
            let output = at < outputs;
            let others = || Self::vector_column(at - outputs, "unit");
            let initial = match at {
                _ if output && (cell.projected || !op.with.h_initial) => None,
                _ if output => {
                    let column = Self::vector_column(at, "unit");
                    let element = self.element("h_initial", "b", &column);
                    Some(format!("{}({element})", self.widen_h()))
                }
                _ if op.with.states_initial => {
                    Some(format!("widen({})", self.element("states_initial", "b", &others())))
                }
                _ => None,
            };
            let last = match at {
                _ if output && (cell.projected || !op.with.h_final) => None,
                _ if output => Some(("h_final", Self::vector_column(at, "unit"))),
                _ if op.with.states_final => Some(("states_final", others())),
                _ => None,
            };
            let last = last.map(|(slot, column)| written(slot, "b", &column));
            let history =
                (!output && op.with.history).then(|| written("history", "row", &others()));
            State { name: self.cell.state(at).to_owned(), initial, last, history }
        };
        (0..cell.states.len()).map(state).collect()
    }

    /// What is saved at every step, of unit `unit` and row `row`.
    pub(super) fn saved(&self) -> Vec<SavedValue> {
        let (layer, op) = (self.layer, self.layer.op);
        let saved = |(at, name): (usize, &String)| {
            let value = op.cell.final_value(name).expect("the layer is valid");
            let tensor = layer.tensor("saved").expect("something is saved");
            let to = self.element("saved", "row", &Self::vector_column(at, "unit"));
            let written = Written { to, narrow: narrow(ctype(tensor.dtype)) };
            SavedValue { written, member: self.cell.name(value).to_owned() }
        };
        op.saved.iter().enumerate().map(saved).collect()
    }

    /// C++ function from a number to an element of h, and back.
    pub(super) fn narrow_h(&self) -> &'static str {
        if self.layer.quantization().is_some() { "quantized" } else { "Narrow<Stored>::from" }
    }

    pub(super) fn widen_h(&self) -> &'static str {
        if self.layer.quantization().is_some() { "number" } else { "widen" }
    }

    /// How h is quantised, if it is.
    pub(super) fn quantization(&self) -> Option<QuantizedState> {
        let Quantization { scale, shift } = self.layer.quantization()?;
        let unit = Real::new(self.layer.quantization()?.unit());
        let [scale, unit] = [scale, unit].map(|of| of.literal(Math::F32));
        Some(QuantizedState { scale, shift, unit })
    }

    /// A recurrent gate from its accumulator, and what that is too large by.
    pub(super) fn gate(
        &self,
        gate: usize,
        acc: String,
        compensation: impl FnOnce() -> String,
    ) -> String {
        match (self.layer.quantization().is_some(), self.layer.is_compensated()) {
            (false, _) => acc,
            (_, false) => format!("dequantized({acc}, 0, {})", self.recurrent_scale(gate)),
            (_, true) => {
                let scale = self.recurrent_scale(gate);
                format!("dequantized({acc}, {}, {scale})", compensation())
            }
        }
    }

    /// The factor from integers to a gate, of a row of recurrent weights.
    pub(super) fn recurrent_scale(&self, gate: usize) -> String {
        let scales = self.layer.tensor("r_scales").expect("quantised weights have scales");
        let column = match scales.dims[2] {
            1 => "0".to_owned(),
            _ => Self::vector_column(gate, "unit"),
        };
        format!("widen({}) * UNIT", self.element("r_scales", "0", &column))
    }

    /// Member of the cell that becomes a state.
    pub(super) fn next_state(&self, at: usize) -> &str {
        match self.layer.op.cell.next(at) {
            Some(CellValue::Result { stage, at }) => self.cell.result(stage, at),
            _ => unreachable!("the cell is valid"),
        }
    }

    /// Layer norms of a stage over members of a `cell`.
    pub(super) fn layer_norms(&self, stage: usize) -> Vec<LayerNorm> {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let math = Math::of(op.math.dtype());
        let norm = |(at, of): (usize, &LayerNormStatistics)| {
            let value = |name: &String| {
                let value = cell.value(stage, name, false).expect("the cell is valid");
                format!("cell.{}", self.cell.name(value))
            };
            let values: Vec<String> = of.of.iter().map(value).collect();
            LayerNorm {
                name: of.name.clone(),
                mean: self.cell.name(CellValue::Mean { stage, at }).to_owned(),
                inverse: self.cell.name(CellValue::InverseDeviation { stage, at }).to_owned(),
                count: format!("{} * HIDDEN_SIZE", values.len()),
                values,
                epsilon: of.epsilon.literal(math),
            }
        };
        cell.stages[stage].statistics.iter().enumerate().map(norm).collect()
    }

    /// The element of `y` in a column of a row.
    pub(super) fn y(&self, row: &str, column: &str) -> String {
        match self.layer.op.apart || self.layer.op.direction.count() == 1 {
            true => self.element("y", row, column),
            false => self.element("y", row, &format!("block_direction() * OUTPUT_SIZE + {column}")),
        }
    }

    /// C++ condition for processing the steps in reverse.
    pub(super) fn reverse(&self) -> &'static str {
        let op = self.layer.op;
        match (op.direction, op.is_reversed(0)) {
            (Direction::Both, false) => "block_direction() == 1",
            (Direction::Both, true) => "block_direction() == 0",
            (_, false) => "false",
            (_, true) => "true",
        }
    }

    /// All programs, line by line, for the header comment.
    pub(super) fn listing(&self) -> Vec<String> {
        let program = |stage: &Stage| stage.program.to_string();
        let text: String = self.layer.op.cell.stages.iter().map(program).collect();
        text.lines().map(str::to_owned).collect()
    }
}
