//! The variables of the templates for recurrent layers: a kernel plan from a schedule.

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::{access_bytes, ceil_div};
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::members::{Members, Program};
use crate::engine::rnn::schedule::{Placed, Schedule, Units, is_packed};
use crate::engine::signature::ctype;
use crate::engine::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan};
use crate::expr::Math;
use crate::graph::{CellValue, Direction};
use crate::target::Arch;
use crate::tensor::TensorDesc;

/// Assembles spec and launch.
pub(super) fn kernel_plan(layer: &Layer<'_>, schedule: &Schedule, arch: Arch) -> KernelPlan {
    let writer = Writer { layer, schedule, members: Members::of(layer) };
    let (sm, variant, template) = match schedule.units {
        Units::Lanes => ("sm75", "simt", "rnn/sm75_rnn_simt.cu"),
        _ => ("sm80", "mma", "rnn/sm80_rnn_mma.cu"),
    };
    let (cell, dtype) = (&layer.op.cell.name, layer.dtype());
    let mut spec = KernelSpec {
        stem: format!("{sm}_rnn_{dtype}_{cell}_{variant}"),
        template,
        entry: "rnn",
        arch,
        parameters: writer.parameters(),
    };
    spec.parameters["stem"] = json!(spec.stem);
    spec.parameters["entry"] = json!(spec.entry);
    spec.parameters["arch"] = json!(arch.to_string());
    let launch = LaunchPlan {
        grid: Grid::Fixed((layer.op.direction.count() * writer.batch_tiles()) as u32),
        threads: schedule.threads as u32,
        shared_bytes: schedule.memory.total as u32,
        cooperative: false,
        arguments: layer.tensors().map(|(_, uid)| Argument::Address(uid as i64)).collect(),
        maps: Vec::new(),
        numbers: writer.numbers().into_iter().map(|(_, number)| number).collect(),
    };
    KernelPlan { spec, launch }
}

struct Writer<'a> {
    layer: &'a Layer<'a>,
    schedule: &'a Schedule,
    members: Members,
}

impl Writer<'_> {
    fn batch_tiles(&self) -> i64 {
        ceil_div(self.layer.op.batch, self.schedule.settings.batch_tile)
    }

    /// What depends on the number of steps, and so is a number of the launch.
    fn numbers(&self) -> Vec<(String, i64)> {
        let layer = self.layer;
        let mut numbers =
            vec![("steps".to_owned(), layer.steps()), ("rows".to_owned(), layer.rows())];
        for slot in ["x", "row_inputs", "unit_inputs", "y", "history"] {
            let shared = |tensor: &&TensorDesc| tensor.dims[0] > 1;
            if let Some(tensor) = layer.tensor(slot).filter(shared) {
                numbers.push((format!("{slot}_direction"), tensor.strides[0]));
            }
        }
        numbers
    }

    /// An element of a tensor: `name[direction * .. + row * .. + ..]`.
    fn element(&self, slot: &str, row: &str, column: &str) -> String {
        let tensor = self.layer.tensor(slot).expect("the slot is there");
        let per_step = ["x", "row_inputs", "unit_inputs", "y", "history"].contains(&slot);
        let direction = match (tensor.dims[0] > 1, per_step) {
            (false, _) => String::new(),
            (true, true) => format!("direction * t.{slot}_direction + "),
            (true, false) => format!("index_t(direction) * {} + ", tensor.strides[0]),
        };
        let row = match (tensor.dims[1], row) {
            (1, _) | (_, "") => String::new(),
            (_, row) => format!("{row} * {} + ", tensor.strides[1]),
        };
        format!("{slot}[{direction}{row}{column}]")
    }

    fn parameters(&self) -> Json {
        let Writer { layer, schedule, members } = self;
        let op = layer.op;
        let programs: Vec<Program> = members.programs(layer);
        let functions: std::collections::BTreeSet<&str> =
            programs.iter().flat_map(|program| program.functions.iter().copied()).collect();
        let math = op.math.dtype();
        let simt = schedule.units == Units::Lanes;
        let vectors = self.vectors();
        let fields = layer.tensors().map(|(slot, uid)| {
            let tensor = &layer.graph.tensors[uid];
            let written = matches!(slot, "y" | "h_final" | "states_final" | "history");
            let constant = if written { "" } else { "const " };
            json!({ "type": format!("{constant}{}*", ctype(tensor.dtype)), "name": slot })
        });
        let numbers = self.numbers();
        let numbers = numbers.iter().map(|(name, _)| json!({ "type": "index_t", "name": name }));
        let members_all = members.all();
        json!({
            "cell": op.cell.name,
            "listing": self.listing(),
            "mma": self.mma(),
            "simt": simt,
            "stored": ctype(layer.dtype()),
            "element": if simt { math.register() } else { ctype(layer.dtype()) },
            "math": math.register(),
            "functions": functions,
            "constants": self.constants(),
            "fields": fields.chain(numbers).collect::<Vec<_>>(),
            "members": members_all,
            "given": members.given().map(|(_, name)| name).collect::<Vec<_>>(),
            "given_values": self.given_values(),
            "parameters": self.cell_parameters(),
            "stages": self.stages(&programs),
            "products": schedule.products.iter().enumerate()
                .map(|(at, placed)| self.product(at, placed)).collect::<Vec<_>>(),
            "buffers": schedule.memory.operands.iter().enumerate()
                .map(|(at, place)| json!({ "name": buffer(at + 1), "at": place }))
                .collect::<Vec<_>>(),
            "parts": schedule.settings.parts,
            "vectors": vectors,
            "vector": self.vector(),
            "lengths": op.with.lengths,
            "with_reset": op.with.reset,
            "layout": op.layout.name(),
            "packed": is_packed(layer),
            "directions": op.direction.count(),
            "reverse": match op.direction {
                Direction::Forward => "false",
                Direction::Reverse => "true",
                Direction::Both => "direction == 1",
            },
            "projected": op.cell.projected,
            "states": self.states(),
            "h_initial": layer.tensor("h_initial").is_some().then(|| self.element("h_initial", "index_t(b)", "unit")),
            "h_final": layer.tensor("h_final").is_some().then(|| self.element("h_final", "index_t(b)", "own")),
            "states_initial": op.with.states_initial,
            "states_final": op.with.states_final,
            "history": op.with.history,
            "y": self.y(),
            "reset": op.with.reset.then(|| self.element("reset", "row", "0")),
            "fill": op.fill.literal(if math == DType::F64 { Math::F64 } else { Math::F32 }),
        })
    }

    fn listing(&self) -> Vec<String> {
        let program = |stage: &crate::graph::Stage| stage.program.to_string();
        let text: String = self.layer.op.cell.stages.iter().map(program).collect();
        text.lines().map(str::to_owned).collect()
    }

    fn mma(&self) -> Json {
        let name = match self.schedule.units {
            Units::Tf32 => "tf32",
            _ if self.layer.dtype() == DType::Bf16 => "bf16",
            _ => "f16",
        };
        json!({
            "shape": format!("m16n8k{}", self.schedule.units.fragment_depth()),
            "a": name,
            "b": name,
            "sum": "f32",
            "sum_type": "float",
            "constraint": "f",
        })
    }

    fn constants(&self) -> Vec<Json> {
        let Writer { layer, schedule, .. } = self;
        let (op, settings) = (layer.op, schedule.settings);
        let memory = &schedule.memory;
        let squares = schedule.batch_squares();
        let mut constants = Vec::new();
        let mut add = |name: &str, value: i64, about: &str| {
            let value = value.to_string();
            let constant = json!({ "type": "int", "name": name, "value": value, "about": about });
            constants.push(constant);
        };
        add("UNITS", op.units, "");
        add("SIZE", layer.size(), "elements of what the cell gives out");
        add("BATCH", op.batch, "");
        add("BATCH_TILE", settings.batch_tile, "");
        add("BATCH_TILES", self.batch_tiles(), "");
        add("BATCH_SQUARES", squares, "of 8 rows");
        add("CTAS", 1, "blocks that share the units");
        add("COLUMNS", settings.columns, "warps along the units");
        add("PARTS", settings.parts, "warps along the depth");
        add("THREADS", schedule.threads, "");
        add("SLICE", schedule.slice, "units of a block");
        add("GROUPS", schedule.groups(), "of 8 units of a warp");
        add("SQUARES", schedule.groups() * squares, "of 8 units and 8 batch rows");
        add("CELLS", schedule.cells(schedule.groups()), "squares whose cells a warp computes");
        if let Some(projection) = self.projection() {
            let slice = projection.groups * 8 * settings.columns;
            add("PROJECTED_SLICE", slice, "of what the cell gives out, of a block");
            add("PROJECTED_GROUPS", projection.groups, "");
            add("PROJECTED_SQUARES", projection.groups * squares, "");
            add("PROJECTED_CELLS", schedule.cells(projection.groups), "");
        }
        add("OUT_SLICE", self.out_slice(), "of what the cell gives out, of a block");
        add("VECTOR", self.vector(), "elements of y that are stored at once");
        add("FRAGMENT_DEPTH", schedule.units.fragment_depth(), "");
        add("ROW_STRIDE", schedule.row_stride, "elements between batch rows in shared memory");
        add("BUFFER_ELEMENTS", schedule.buffer_elements(), "");
        if settings.parts > 1 {
            add("PARTIAL_AT", memory.partial, "byte of shared memory");
        }
        if schedule.vectors > 0 {
            add("VECTORS_AT", memory.vectors, "byte of shared memory");
        }
        if op.with.lengths {
            add("BATCH_ALL", ceil_div(op.batch, 32) * 32, "");
            add("LENGTHS_AT", memory.lengths, "byte of shared memory");
        }
        constants
    }

    fn projection(&self) -> Option<&Placed> {
        self.schedule.products.iter().find(|of| of.shape.stage.is_none())
    }

    fn out_slice(&self) -> i64 {
        match self.projection() {
            Some(projection) => projection.groups * 8 * self.schedule.settings.columns,
            None => self.schedule.slice,
        }
    }

    /// Elements of `y` that a thread stores at once.
    fn vector(&self) -> i64 {
        let y = self.layer.y();
        let (stored, element) = (y.dtype.bytes() as i64, self.schedule.element_bytes);
        let fits = |vector: &i64| {
            // Directions and rows of a step are as far apart as the strides say.
            let strides = [y.strides[0], y.strides[1]];
            let size = self.layer.size();
            vector * element <= 16
                && [8, 16].contains(&(vector * stored))
                && [8, 16].contains(&(vector * element))
                && size % vector == 0
                && access_bytes(y, &strides, &y.dims[..2], *vector) == vector * stored
        };
        [8, 4, 2].into_iter().find(fits).unwrap_or(1)
    }

    /// Biases and parameters in the order they have in shared memory.
    fn vectors(&self) -> Vec<Json> {
        let (op, units) = (self.layer.op, self.layer.op.units);
        let mut vectors = Vec::new();
        let mut add = |slot: &str, count: usize, stride: i64| {
            for at in 0..count as i64 {
                let column = format!("{} + slice_first + own", at * stride);
                vectors.push(json!({
                    "at": vectors.len(),
                    "from": self.element(slot, "", &column),
                }));
            }
        };
        if op.with.x_bias {
            add("x_bias", op.cell.gates.len(), units);
        }
        if op.with.r_bias {
            add("r_bias", op.cell.recurrent_gates(), units);
        }
        if let Some(parameters) = self.layer.tensor("parameters") {
            add("parameters", op.cell.parameters.len(), parameters.strides[1]);
        }
        vectors
    }

    /// Where the vectors of a kind begin.
    fn first_vector(&self, slot: &str) -> usize {
        let op = self.layer.op;
        let x = if op.with.x_bias { op.cell.gates.len() } else { 0 };
        let r = if op.with.r_bias { op.cell.recurrent_gates() } else { 0 };
        match slot {
            "x_bias" => 0,
            "r_bias" => x,
            _ => x + r,
        }
    }

    fn given_values(&self) -> Vec<Json> {
        let (op, units) = (self.layer.op, self.layer.op.units);
        let value = |(value, name): (CellValue, &str)| {
            let (slot, column, bias) = match value {
                CellValue::Gate(gate) => {
                    let shared = self.layer.tensor("x").map(|x| x.dims[2]) == Some(units);
                    let gate_first = if shared { 0 } else { gate as i64 * units };
                    let bias = op.with.x_bias.then_some(gate as i64);
                    ("x", format!("{gate_first} + unit"), bias)
                }
                CellValue::RowInput(at) => ("row_inputs", at.to_string(), None),
                CellValue::UnitInput(at) => {
                    ("unit_inputs", format!("{} + unit", at as i64 * units), None)
                }
                other => unreachable!("{other:?} is not given"),
            };
            json!({
                "name": name,
                "from": self.element(slot, "row", &column),
                "bias": bias.unwrap_or(-1),
            })
        };
        self.members.given().map(value).collect()
    }

    fn cell_parameters(&self) -> Vec<Json> {
        let first = self.first_vector("parameters");
        let names = self.members.parameters().enumerate();
        names.map(|(at, name)| json!({ "name": name, "at": first + at })).collect()
    }

    fn stages(&self, programs: &[Program]) -> Vec<Json> {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let first_bias = self.first_vector("r_bias");
        let stage = |(at, program): (usize, &Program)| {
            let product = self.schedule.products.iter().position(|of| of.shape.stage == Some(at));
            let gates = cell.stages[at].product.iter().flat_map(|of| of.gates.iter().enumerate());
            let gates = gates.map(|(gate, _)| {
                let row = cell.first_row(at) + gate;
                let bias = op.with.r_bias.then_some((first_bias + row) as i64);
                json!({
                    "name": self.members.recurrent(row),
                    "bias": bias.unwrap_or(-1),
                })
            });
            let last = at + 1 == programs.len();
            let publishes = match cell.stages.get(at + 1).and_then(|next| next.product.as_ref()) {
                Some(product) => {
                    let output = cell.output(at, &product.operand).expect("the cell is valid");
                    let position = self.schedule.products.iter();
                    let mut position = position.map(|of| of.shape.stage);
                    let position = position.position(|stage| stage == Some(at + 1));
                    Some((position.unwrap_or(0), self.members.result(at, output)))
                }
                None if last && cell.projected => match cell.next(0) {
                    Some(CellValue::Result { stage, at }) => {
                        Some((self.schedule.products.len() - 1, self.members.result(stage, at)))
                    }
                    _ => None,
                },
                None => None,
            };
            json!({
                "number": at,
                "first": at == 0,
                "last": last,
                "lines": program.lines,
                "product": product.map_or(-1, |at| at as i64),
                "gates": gates.collect::<Vec<_>>(),
                "publishes": publishes.map(|(product, value)| {
                    json!({ "buffer": buffer(product), "value": value })
                }),
            })
        };
        programs.iter().enumerate().map(stage).collect()
    }

    fn product(&self, at: usize, placed: &Placed) -> Json {
        let Placed { shape, groups, steps, held, .. } = placed;
        let weights = if shape.stage.is_some() { "r" } else { "projection" };
        let tensor = self.layer.tensor(weights).expect("the product has weights");
        let row = format!("index_t(({} + gate) * {} + own)", shape.row, shape.units);
        let units = if shape.stage.is_some() { "UNITS" } else { "SIZE" };
        let row = if tensor.dims[1] == 1 { "" } else { &row };
        json!({
            "name": match shape.stage {
                Some(stage) => format!("Product{stage}"),
                None => "Projection".to_owned(),
            },
            "variable": match shape.stage {
                Some(stage) => format!("product{stage}"),
                None => "projection".to_owned(),
            },
            "comment": self.comment(placed),
            "gates": shape.gates,
            "groups": groups,
            "steps": steps,
            "held": held,
            "units": units,
            "depth": shape.depth,
            "slice_first": if shape.stage.is_some() { "slice_first" } else { "projected_first" },
            "from": self.element(weights, row, "k"),
            "operand": if at == 0 { "before".to_owned() } else { buffer(at) },
            "kept_at": self.schedule.memory.kept[at],
        })
    }

    fn comment(&self, placed: &Placed) -> String {
        let cell = &self.layer.op.cell;
        match placed.shape.stage.and_then(|stage| cell.stages[stage].product.as_ref()) {
            Some(product) => {
                format!("{} <- recurrent weights * {}", product.gates.join(", "), product.operand)
            }
            None => format!("{} <- projection * next_{0}", cell.states[0]),
        }
    }

    fn states(&self) -> Vec<Json> {
        let (layer, op, cell) = (self.layer, self.layer.op, &self.layer.op.cell);
        let state = |at: usize| {
            let others = (at as i64 - 1) * op.units;
            let initial = match at {
                0 if cell.projected || !op.with.h_initial => None,
                0 => Some(self.element("h_initial", "index_t(b)", "unit")),
                _ if op.with.states_initial => {
                    let column = format!("{others} + unit");
                    Some(self.element("states_initial", "index_t(b)", &column))
                }
                _ => None,
            };
            let place = match at {
                0 if cell.projected || !op.with.h_final => None,
                0 => Some(("h_final", "own".to_owned())),
                _ if op.with.states_final => Some(("states_final", format!("{others} + own"))),
                _ => None,
            };
            let name = self.members.state(at);
            let written = place.map(|(slot, column)| {
                let dtype = layer.tensor(slot).map_or(DType::F32, |tensor| tensor.dtype);
                let to = self.element(slot, "index_t(b)", &column);
                format!("t.{to} = Narrow<{}>::from(units[cell][i].{name})", ctype(dtype))
            });
            let history = (at > 0 && op.with.history).then(|| {
                let tensor = layer.tensor("history").expect("the slot is there");
                let column = format!("{others} + own");
                json!({
                    "to": self.element("history", "rows.row(step, b)", &column),
                    "type": ctype(tensor.dtype),
                })
            });
            let next = match cell.next(at) {
                Some(CellValue::Result { stage, at }) => self.members.result(stage, at),
                _ => unreachable!("the cell is valid"),
            };
            json!({
                "name": name,
                "next": next,
                "initial": initial,
                "final": written,
                "history": history,
            })
        };
        (0..cell.states.len()).map(state).collect()
    }

    fn y(&self) -> Json {
        let first = match self.layer.op.apart || self.layer.op.direction.count() == 1 {
            true => String::new(),
            false => format!("direction * {} + ", self.layer.size()),
        };
        json!(self.element("y", "of.row(step, b)", &format!("{first}own")))
    }
}

/// The operand of a product in shared memory.
fn buffer(product: usize) -> String {
    format!("operand{product}")
}
