//! A layer's tensors and cell as C++ expressions, common to all of its kernels.

use serde_json::{Value as Json, json};

use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::members::Members;
use crate::engine::signature::ctype;
use crate::expr::{Identifiers, Math};
use crate::graph::{CellValue, Direction, Moments, Stage};
use crate::tensor::TensorDesc;

/// Slots with a row per step.
const STEPPED: [&str; 5] = ["x", "row_inputs", "unit_inputs", "y", "history"];

/// A value that is read from memory at every step.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) name: String,
    /// C++ expression of the element.
    pub(super) from: String,
    /// Gate that it belongs to.
    pub(super) gate: Option<usize>,
}

/// C++ expressions of one layer.
#[derive(Debug, Clone)]
pub(super) struct Elements<'a> {
    pub(super) layer: &'a Layer<'a>,
    pub(super) members: Members,
    /// Names of the gate index constants.
    gates: Vec<String>,
}

/// Name of the constant of a tensor's stride along an axis.
fn stride(slot: &str, axis: &str) -> String {
    format!("{}_STRIDE_{axis}", slot.to_uppercase())
}

impl<'a> Elements<'a> {
    pub(super) fn of(layer: &'a Layer<'a>) -> Elements<'a> {
        let mut identifiers = Identifiers::new();
        let name = |gate: &String| identifiers.fresh(&format!("gate_{}", Identifiers::base(gate)));
        let gates = layer.op.cell.gates.iter().map(name).collect();
        Elements { layer, members: Members::of(layer), gates }
    }

    /// Run-time numbers of the launch, which depend on the number of steps.
    pub(super) fn numbers(&self) -> Vec<(String, i64)> {
        let layer = self.layer;
        let mut numbers =
            vec![("steps".to_owned(), layer.steps()), ("rows".to_owned(), layer.rows())];
        for slot in STEPPED {
            let shared = |tensor: &&TensorDesc| tensor.dims[0] > 1;
            if let Some(tensor) = layer.tensor(slot).filter(shared) {
                numbers.push((format!("{slot}_direction"), tensor.strides[0]));
            }
        }
        numbers
    }

    /// An element of a tensor: `name[direction * stride + row * stride + column]`.
    pub(super) fn element(&self, slot: &str, row: &str, column: &str) -> String {
        let tensor = self.layer.tensor(slot).expect("the slot is there");
        let stepped = STEPPED.contains(&slot) || slot == "reset";
        let direction = match (tensor.dims[0] > 1, stepped) {
            (false, _) => String::new(),
            (true, true) => format!("block_direction() * t.{slot}_direction + "),
            (true, false) => {
                format!("index_t(block_direction()) * {} + ", stride(slot, "DIRECTION"))
            }
        };
        // One kernel serves every number of steps, including 1.
        let row = match row {
            "" => String::new(),
            _ if tensor.dims[1] == 1 && !stepped => String::new(),
            row => format!("{row} * {} + ", stride(slot, "ROW")),
        };
        format!("{slot}[{direction}{row}{column}]")
    }

    /// Constants: the strides of all tensors, and the index of each gate in a row.
    pub(super) fn constants(&self) -> Vec<(String, i64)> {
        let strides = self.layer.tensors().flat_map(|(slot, uid)| {
            let strides = &self.layer.graph.tensors[uid].strides;
            [(stride(slot, "DIRECTION"), strides[0]), (stride(slot, "ROW"), strides[1])]
        });
        let gates = self.gates.iter().cloned().zip(0..);
        strides.chain(gates).collect()
    }

    /// Column of `unit` of a gate in a row of all gates.
    pub(super) fn gate_column(&self, at: usize, unit: &str) -> String {
        format!("{} * HIDDEN + {unit}", self.gates[at])
    }

    /// Column of `unit` of one of several vectors in a row.
    pub(super) fn vector_column(at: usize, unit: &str) -> String {
        match at {
            0 => unit.to_owned(),
            1 => format!("HIDDEN + {unit}"),
            _ => format!("{at} * HIDDEN + {unit}"),
        }
    }

    /// A tensor as a field of the kernel parameters.
    pub(super) fn field(&self, slot: &str, uid: usize) -> Json {
        let written = matches!(slot, "y" | "h_final" | "states_final" | "history");
        let constant = if written { "" } else { "const " };
        let ctype = ctype(self.layer.graph.tensors[uid].dtype);
        json!({ "type": format!("{constant}{ctype}*"), "name": slot })
    }

    /// Values read at every step, for unit `unit` of row `row`.
    pub(super) fn given(&self) -> Vec<Given> {
        let units = self.layer.op.units;
        let value = |(value, name): (CellValue, &str)| {
            let (slot, column, gate) = match value {
                CellValue::Gate(gate) => {
                    let shared = self.layer.tensor("x").map(|x| x.dims[2]) == Some(units);
                    let column = match shared {
                        true => "unit".to_owned(),
                        false => self.gate_column(gate, "unit"),
                    };
                    ("x", column, Some(gate))
                }
                CellValue::RowInput(at) => ("row_inputs", at.to_string(), None),
                CellValue::UnitInput(at) => ("unit_inputs", Self::vector_column(at, "unit"), None),
                other => unreachable!("{other:?} is not given"),
            };
            Given { name: name.to_owned(), from: self.element(slot, "row", &column), gate }
        };
        self.members.given().map(value).collect()
    }

    /// States with their initial and final elements: unit `own` of batch row `b`, which is row
    /// `row` of the history.
    pub(super) fn states(&self, row: &str) -> Vec<Json> {
        let (layer, op, cell) = (self.layer, self.layer.op, &self.layer.op.cell);
        let state = |at: usize| {
            let others = |unit| Self::vector_column(at - 1, unit);
            let initial = match at {
                0 if cell.projected || !op.with.h_initial => None,
                0 => Some(self.element("h_initial", "index_t(b)", "unit")),
                _ if op.with.states_initial => {
                    Some(self.element("states_initial", "index_t(b)", &others("unit")))
                }
                _ => None,
            };
            let place = match at {
                0 if cell.projected || !op.with.h_final => None,
                0 => Some(("h_final", "own".to_owned())),
                _ if op.with.states_final => Some(("states_final", others("own"))),
                _ => None,
            };
            let name = self.members.state(at);
            let written = |slot: &str, row: &str, column: String| {
                let tensor = layer.tensor(slot).expect("the slot is there");
                json!({ "to": self.element(slot, row, &column), "type": ctype(tensor.dtype) })
            };
            let end = place.map(|(slot, column)| written(slot, "index_t(b)", column));
            let history =
                (at > 0 && op.with.history).then(|| written("history", row, others("own")));
            let next = match cell.next(at) {
                Some(CellValue::Result { stage, at }) => self.members.result(stage, at),
                _ => unreachable!("the cell is valid"),
            };
            let new = match at {
                0 if !cell.projected => format!("stored(unit.{next})"),
                _ => format!("unit.{next}"),
            };
            json!({
                "name": name,
                "new": new,
                "next": next,
                "initial": initial,
                "final": end,
                "history": history,
            })
        };
        (0..cell.states.len()).map(state).collect()
    }

    /// Elements of `history` of unit `own`, one per recorded state.
    pub(super) fn histories(&self, row: &str) -> Vec<Json> {
        let states = self.states(row).into_iter();
        let histories = states.map(|mut state| state["history"].take());
        histories.filter(|history| !history.is_null()).collect()
    }

    /// Layer-norm statistics of a stage over members of the struct `unit`.
    pub(super) fn moments(&self, stage: usize, unit: &str) -> Vec<Json> {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let math = Math::of(op.math.dtype());
        let moment = |(at, of): (usize, &Moments)| {
            let value = |name: &String| {
                let value = cell.value(stage, name, false).expect("the cell is valid");
                format!("{unit}.{}", self.members.name(value))
            };
            let values: Vec<String> = of.of.iter().map(value).collect();
            json!({
                "comment": format!("The moments `{}` of the row.", of.name),
                "mean_member": self.members.name(CellValue::Mean { stage, at }),
                "inverse_member": self.members.name(CellValue::InverseDeviation { stage, at }),
                "count": format!("{} * HIDDEN", values.len()),
                "values": values,
                "epsilon": of.epsilon.literal(math),
            })
        };
        cell.stages[stage].moments.iter().enumerate().map(moment).collect()
    }

    /// The element of `y` that holds unit `own` of row `row`.
    pub(super) fn y(&self, row: &str) -> String {
        let first = match self.layer.op.apart || self.layer.op.direction.count() == 1 {
            true => String::new(),
            false => "block_direction() * OUT_SIZE + ".to_owned(),
        };
        self.element("y", row, &format!("{first}own"))
    }

    /// C++ condition for processing the steps in reverse.
    pub(super) fn reverse(&self) -> &'static str {
        match self.layer.op.direction {
            Direction::Forward => "false",
            Direction::Reverse => "true",
            Direction::Both => "block_direction() == 1",
        }
    }

    /// All programs, line by line, for the header comment.
    pub(super) fn listing(&self) -> Vec<String> {
        let program = |stage: &Stage| stage.program.to_string();
        let text: String = self.layer.op.cell.stages.iter().map(program).collect();
        text.lines().map(str::to_owned).collect()
    }
}
