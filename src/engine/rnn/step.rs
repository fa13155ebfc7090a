//! The engine for recurrent layers of any size: at every step a GEMM kernel per GEMM of the cell,
//! and a kernel per stage.
//!
//! Nothing stays on chip between kernels, so nothing limits the layer: states, accumulators and
//! values carried between stages are in memory. A block processes a whole row, as layer norms need.
//!
//! The number of kernels of a launch is fixed, and with packed rows the longest length is known on
//! the device only. So the steps of sequences of average length have kernels of their own, and one
//! more kernel processes the rest, a block per sequence, including the GEMMs.

use std::collections::BTreeSet;
use std::convert::Infallible;

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::ceil_div;
use crate::engine::gemm::{MmaEngine, SimtEngine};
use crate::engine::rnn::elements::Elements;
use crate::engine::rnn::layer::{Layer, ProductShape};
use crate::engine::rnn::step_product::ProductOn;
use crate::engine::signature::{ctype, merged};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, NumericalNote, Supported};
use crate::error::Result;
use crate::expr::Math;
use crate::graph::{CanonicalGraph, CellValue, MatmulMath};
use crate::kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::{Arch, Target};

const NAME: &str = "rnn_step";

/// Threads per block, which processes one row.
const THREADS: u32 = 256;

/// Maximum launches of a plan's steps, which bounds the cost of planning: each launch is rendered
/// and kept, 62 kB and 0.5 ms in an unoptimised build. This covers 4096 steps of an LSTM, whose
/// GEMM and cell are a launch each.
const LAUNCHES_MAX: i64 = 1 << 13;

/// The knob's values: 1 where tensor cores support the layer's type and precision.
const TENSOR_CORES: [i64; 2] = [0, 1];

settings! { struct Settings { tensor_cores } }

impl Settings {
    /// The engine that runs the GEMMs.
    fn gemm_engine(self) -> &'static dyn Engine {
        if self.tensor_cores == 1 { &MmaEngine } else { &SimtEngine }
    }
}

/// The engine `rnn_step`: GEMMs and a cell kernel at every step, for layers of any size.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct StepEngine;

impl Engine for StepEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let layer = Layer::of(graph)?;
        let steps = Steps { tensor_cores: false, layer, target };
        let products = &steps.layer.products;
        let takes = |engine: &dyn Engine| {
            let all = |product| steps.layer.with_product(product, (engine, target), |_| Ok(()));
            products.iter().try_for_each(all)
        };
        takes(&SimtEngine)?;
        let tensor_cores = !products.is_empty() && takes(&MmaEngine).is_ok();
        Ok(Box::new(Tuned(Steps { tensor_cores, ..steps })))
    }
}

/// A layer, step by step. Its kernels are those of a GEMM engine, with the settings which that
/// engine chooses, and its own; the knob chooses the engine.
#[derive(Debug, Clone)]
struct Steps<'a> {
    layer: Layer<'a>,
    /// Whether tensor cores support the GEMMs.
    tensor_cores: bool,
    target: &'a Target,
}

impl Tunable<1> for Steps<'_> {
    const KNOBS: [&'static str; 1] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = Infallible;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 1] {
        let values = TENSOR_CORES[..=usize::from(self.tensor_cores)].to_vec();
        [Knob { name: "tensor_cores", about: "whether GEMMs use tensor cores", values }]
    }

    /// None: the kernels besides the GEMMs do not depend on the knob.
    fn listed_knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, Infallible> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        Settings { tensor_cores: i64::from(self.tensor_cores) }
    }

    fn reasons(&self) -> Vec<String> {
        let supported = match self.tensor_cores {
            true => "they support the GEMMs",
            false => "they do not support the GEMMs",
        };
        vec![format!("tensor_cores={}: {supported}", i64::from(self.tensor_cores))]
    }

    fn smaller(&self, _settings: Settings) -> Vec<Settings> {
        vec![Settings { tensor_cores: 0 }]
    }

    fn notes(&self, settings: Settings) -> Notes {
        let on = (settings.gemm_engine(), self.target);
        let own = |product: &ProductShape| {
            let notes = |on: ProductOn<'_>| Ok(on.own.notes(&on.own.heuristic()).numerical);
            self.layer.with_product(product, on, notes).unwrap_or_default()
        };
        let numerical: BTreeSet<NumericalNote> = self.layer.products.iter().flat_map(own).collect();
        Notes {
            numerical: numerical.into_iter().collect(),
            behavior: vec![BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace],
        }
    }

    /// Never: it is for layers that no other engine supports.
    fn pays(&self) -> bool {
        false
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        self.work_on(settings.tensor_cores == 1)
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let on = (settings.gemm_engine(), self.target);
        let writer = Writer::of(&self.layer, self.target.arch);
        let mut scratch: Vec<u64> = writer.pieces().iter().map(|piece| piece.bytes).collect();
        let mut gemm = |product| {
            let piece = |name: &str| writer.piece(name);
            let kernels = self.layer.product_kernels(product, on, piece, &mut scratch);
            kernels.expect("the engine supports it, and its own settings lower")
        };
        let mut step = Vec::new();
        for (stage, _) in self.layer.op.cell.stages.iter().enumerate() {
            step.extend(self.layer.product(Some(stage)).into_iter().flat_map(&mut gemm));
            step.push(writer.stage(stage));
        }
        if let Some(projection) = self.layer.product(None) {
            step.extend(gemm(projection));
            step.push(writer.project());
        }
        let launched = self.launched(step.len() as i64);
        let mut kernels = vec![writer.start()];
        for at in 0..launched {
            kernels.extend(step.iter().map(|kernel| writer.at_step(kernel, at)));
        }
        if launched < self.layer.longest() {
            kernels.push(writer.at_step(&writer.rest(), launched));
        }
        kernels.extend(writer.finish());
        Lowering { kernels, scratch }
    }
}

impl Steps<'_> {
    /// Number of steps with kernels of their own, `kernels` each.
    fn launched(&self, kernels: i64) -> i64 {
        ceil_div(self.layer.rows(), self.layer.op.batch).min(LAUNCHES_MAX / kernels.max(1))
    }

    /// Work of a forward pass, for the cost model.
    fn work_on(&self, tensor_cores: bool) -> Vec<KernelWork> {
        let (layer, op) = (&self.layer, self.layer.op);
        let rows = op.direction.count() * op.batch;
        let values = (rows * op.units * (op.cell.gates.len() as i64 + 4)) as f64;
        let cell = KernelWork {
            blocks: rows as u64,
            threads: THREADS,
            registers: 64,
            shared_bytes: 0,
            dram_bytes: values * 4.0,
            l2_bytes: values * 4.0,
            in_flight_bytes: f64::from(THREADS) * 32.0,
            round_trips: 2.0,
            lane_instructions: values * 32.0,
            f64_instructions: 0.0,
            tensor: None,
        };
        let product = |of: &ProductShape| {
            let weights = (op.direction.count() * of.gates * of.units * of.depth) as f64;
            let bytes = weights * layer.dtype().bytes() as f64;
            let lanes = if tensor_cores { 0.0 } else { weights * op.batch as f64 };
            let doubles = if op.math == MatmulMath::F64 { lanes } else { 0.0 };
            KernelWork {
                dram_bytes: bytes,
                l2_bytes: bytes,
                lane_instructions: cell.lane_instructions + lanes,
                f64_instructions: doubles,
                ..cell
            }
        };
        let step: Vec<KernelWork> = layer.products.iter().map(product).chain([cell]).collect();
        let launched = self.launched(step.len() as i64);
        let mut work = step.repeat(launched as usize);
        let rest = layer.steps() - launched;
        if rest > 0 {
            // Each sequence reads all weights at every step.
            let weights = layer.products.iter().map(|of| of.gates * of.units * of.depth);
            let read = (rest * rows) as f64 * weights.sum::<i64>() as f64;
            work.push(KernelWork {
                dram_bytes: cell.dram_bytes * rest as f64,
                l2_bytes: read * layer.dtype().bytes() as f64,
                lane_instructions: cell.lane_instructions * rest as f64 + 2.0 * read,
                round_trips: (rest * step.len() as i64) as f64,
                ..cell
            });
        }
        work
    }
}

/// A workspace buffer.
struct Piece {
    name: &'static str,
    ctype: &'static str,
    bytes: u64,
}

struct Writer<'a> {
    elements: Elements<'a>,
    layer: &'a Layer<'a>,
    /// Values that later stages read.
    carried: Vec<CellValue>,
    arch: Arch,
}

impl<'a> Writer<'a> {
    fn of(layer: &'a Layer<'a>, arch: Arch) -> Writer<'a> {
        let cell = &layer.op.cell;
        let mut carried = Vec::new();
        for stage in 0..cell.stages.len() {
            let last = stage + 1 == cell.stages.len();
            let states = (0..cell.states.len()).filter(|_| last).filter_map(|at| cell.next(at));
            for value in cell.reads(stage).into_iter().chain(states) {
                let earlier = cell.made_in(value).is_some_and(|made| made < stage);
                if earlier && !carried.contains(&value) {
                    carried.push(value);
                }
            }
        }
        Writer { elements: Elements::of(layer), layer, carried, arch }
    }

    fn pieces(&self) -> Vec<Piece> {
        let (layer, op) = (self.layer, self.layer.op);
        let rows = (op.direction.count() * op.batch) as u64;
        let (stored, math) = (layer.dtype(), op.math.dtype());
        let columns = |slot| layer.tensor(slot).map_or(0, |weights| weights.dims[1] as u64);
        let piece = |name, dtype: DType, width: u64| Piece {
            name,
            ctype: ctype(dtype),
            bytes: (rows * width * dtype.bytes() as u64).max(1),
        };
        let units = op.units as u64;
        vec![
            piece("hidden", stored, layer.size() as u64),
            piece("kept", math, (op.cell.states.len() - 1) as u64 * units),
            piece("sums", math, columns("r")),
            piece("projected", math, columns("projection")),
            piece("operand", stored, units),
            piece("carried", math, self.carried.len() as u64 * units),
        ]
    }

    /// Index of a workspace buffer.
    fn piece(&self, name: &str) -> usize {
        let pieces = self.pieces();
        pieces.iter().position(|piece| piece.name == name).expect("the piece is there")
    }

    fn kernel(&self, name: &str, about: &str, own: Json) -> KernelPlan {
        let Writer { elements, layer, .. } = self;
        let op = layer.op;
        let tensors = layer.tensors().map(|(slot, uid)| elements.field(slot, uid));
        let pieces = self.pieces();
        let piece = |of: &Piece| json!({ "type": format!("{}*", of.ctype), "name": of.name });
        let numbers = elements.numbers();
        let number = |name: &str| json!({ "type": "index_t", "name": name });
        let fields: Vec<Json> = tensors
            .chain(pieces.iter().map(piece))
            .chain(numbers.iter().map(|(name, _)| number(name)))
            .chain([number("at")])
            .collect();
        let constant = |name: &str, value: i64| {
            let ctype = if i32::try_from(value).is_ok() { "int" } else { "index_t" };
            json!({ "type": ctype, "name": name, "value": value.to_string(), "about": "" })
        };
        let extents = [
            constant("HIDDEN", op.units),
            constant("OUT_SIZE", layer.size()),
            constant("BATCH", op.batch),
            constant("THREADS", i64::from(THREADS)),
        ];
        let strides = elements.constants().into_iter();
        let strides = strides.map(|(name, value)| constant(&name, value));
        let dtype = layer.dtype();
        let stem = format!("sm75_rnn_cell_{dtype}_{}_{name}", layer.cell_word());
        let shared = json!({
            "stem": stem,
            "entry": "rnn_cell",
            "arch": self.arch.to_string(),
            "about": about,
            "stored": ctype(dtype),
            "math": op.math.dtype().register(),
            "constants": extents.into_iter().chain(strides).collect::<Vec<_>>(),
            "fields": fields,
            "functions": [],
            "listing": [],
            "stages": [],
            "pieces": [],
            "moments": false,
            "layout": op.layout.name(),
            "fill": op.fill.literal(Math::of(op.math.dtype())),
        });
        let parameters = merged(shared, own);
        let arguments = layer.tensors().map(|(_, uid)| Argument::Address(uid as i64));
        let scratch = (0..pieces.len()).map(Argument::Scratch);
        let template = "rnn/sm75_rnn_cell.cu";
        KernelPlan {
            spec: KernelSpec { stem, template, entry: "rnn_cell", arch: self.arch, parameters },
            launch: LaunchPlan {
                grid: Grid::Fixed((op.direction.count() * op.batch) as u32),
                threads: THREADS,
                shared_bytes: 0,
                cooperative: false,
                arguments: arguments.chain(scratch).collect(),
                maps: Vec::new(),
                numbers: numbers.into_iter().map(|(_, number)| number).chain([0]).collect(),
            },
        }
    }

    /// The kernel with its step index, which is its last run-time number, if it has one.
    fn at_step(&self, kernel: &KernelPlan, at: i64) -> KernelPlan {
        let mut kernel = kernel.clone();
        if kernel.spec.entry == "rnn_cell" {
            *kernel.launch.numbers.last_mut().expect("the step is a number") = at;
        }
        kernel
    }

    /// The kernel that initialises the states.
    fn start(&self) -> KernelPlan {
        let op = self.layer.op;
        let first = match self.layer.tensor("h_initial") {
            Some(_) => format!("t.{}", self.elements.element("h_initial", "index_t(b)", "own")),
            None => "Narrow<Stored>::from(0.f)".to_owned(),
        };
        let state = |at: usize| {
            let column = Elements::vector_column(at - 1, "own");
            let from = match op.with.states_initial {
                true => {
                    let from = self.elements.element("states_initial", "index_t(b)", &column);
                    format!("widen(t.{from})")
                }
                false => "0".to_owned(),
            };
            json!({ "kept": self.kept(at, "own"), "from": from })
        };
        let states: Vec<Json> = (1..op.cell.states.len()).map(state).collect();
        let about = "the states of a recurrent layer before its first step.";
        let own = json!({
            "kind": "start",
            "y": self.elements.y("row"),
            "histories": self.elements.histories("row"),
            "first_state": first,
            "reads_initial": self.layer.tensor("h_initial").is_some()
                || op.with.states_initial && !states.is_empty(),
            "others": states.len(),
            "states": states,
        });
        self.kernel("start", about, own)
    }

    /// The kernel that stores the final states.
    fn finish(&self) -> Option<KernelPlan> {
        let with = self.layer.op.with;
        let h_final = with.h_final.then(|| self.elements.element("h_final", "index_t(b)", "own"));
        if h_final.is_none() && !with.states_final {
            return None;
        }
        let states = self.elements.states("row").into_iter().enumerate().map(|(at, mut state)| {
            state["kept"] = json!((at > 0).then(|| self.kept(at, "own")));
            state
        });
        let own = json!({
            "kind": "finish",
            "h_final": h_final,
            "states_final": with.states_final,
            "states": states.collect::<Vec<_>>(),
        });
        Some(self.kernel("finish", "the states of a recurrent layer after its last step.", own))
    }

    /// A kernel that runs pieces of a step.
    fn step(&self, name: &str, about: &str, pieces: &[Json]) -> KernelPlan {
        let (op, layer, elements) = (self.layer.op, self.layer, &self.elements);
        let members = &elements.members;
        let programs = members.programs(layer);
        let given = elements.given().into_iter().map(|value| {
            let bias = value.gate.filter(|_| op.with.x_bias);
            let bias = bias.map(|gate| self.bias("x_bias", gate)).unwrap_or_default();
            json!({ "name": value.name, "from": value.from, "bias": bias })
        });
        let parameters = members.parameters().enumerate().map(|(at, name)| {
            let column = format!("{at} * PARAMETERS_STRIDE_ROW + unit");
            json!({ "name": name, "from": elements.element("parameters", "", &column) })
        });
        let states = elements.states("row").into_iter().enumerate().map(|(at, mut state)| {
            state["kept"] = json!((at > 0).then(|| self.kept(at, "own")));
            state["from"] = json!(match at {
                0 if op.cell.projected => "Math(0)".to_owned(),
                0 => "Math(widen(hidden[unit]))".to_owned(),
                _ => format!("t.{}", self.kept(at, "unit")),
            });
            state
        });
        let moments = pieces.iter().any(|piece| piece["moments"].get(0).is_some());
        let staged = pieces.iter().any(|piece| piece["kind"] == "stage");
        let stages: Vec<Json> = match staged {
            true => programs.lines.iter().map(|lines| json!({ "lines": lines })).collect(),
            false => Vec::new(),
        };
        let listing = if staged { elements.listing() } else { Vec::new() };
        let own = json!({
            "kind": "step",
            "pieces": pieces,
            "reverse": elements.reverse(),
            "lengths": op.with.lengths,
            "projected": op.cell.projected,
            "with_reset": op.with.reset,
            "reset": op.with.reset.then(|| elements.element("reset", "row", "0")),
            "y": elements.y("row"),
            "listing": listing,
            "functions": programs.functions,
            "members": members.all(),
            "given": members.given().map(|(_, name)| name).collect::<Vec<_>>(),
            "stages": stages,
            "moments": moments,
            "given_values": given.collect::<Vec<_>>(),
            "parameters": parameters.collect::<Vec<_>>(),
            "states": states.collect::<Vec<_>>(),
        });
        self.kernel(name, about, own)
    }

    fn project(&self) -> KernelPlan {
        let about = "the projection of a recurrent layer at one step.";
        self.step("project", about, &[json!({ "kind": "project", "product": null })])
    }

    fn stage(&self, stage: usize) -> KernelPlan {
        let about = format!("stage {stage} of a recurrent layer at one step.");
        self.step(&format!("stage{stage}"), &about, &[self.piece_of_stage(stage, false)])
    }

    /// The kernel of all remaining steps.
    fn rest(&self) -> KernelPlan {
        let stages = 0..self.layer.op.cell.stages.len();
        let mut pieces: Vec<Json> = stages.map(|stage| self.piece_of_stage(stage, true)).collect();
        if let Some(projection) = self.layer.product(None) {
            let product = self.multiplied(projection);
            pieces.push(json!({ "kind": "project", "product": product }));
        }
        let about = "the steps of a recurrent layer behind those with kernels of their own.";
        let mut kernel = self.step("rest", about, &pieces);
        kernel.spec.parameters["kind"] = json!("rest");
        kernel
    }

    /// A GEMM that a block computes for its row.
    fn multiplied(&self, product: &ProductShape) -> Json {
        let weights = self.layer.tensor(product.slot()).expect("the product has weights");
        let (units, depth) = match product.stage {
            Some(0) => ("HIDDEN", "OUT_SIZE"),
            Some(_) => ("HIDDEN", "HIDDEN"),
            None => ("OUT_SIZE", "HIDDEN"),
        };
        let first = match product.row {
            0 => String::new(),
            row => format!("{row} * {units} + "),
        };
        let row = format!("index_t({first}own)");
        let row = if weights.dims[1] == 1 { "" } else { &row };
        json!({
            "operand": product.operand(),
            "depth": depth,
            "columns": format!("{} * {units}", product.gates),
            "weights": self.elements.element(product.slot(), row, "k"),
            "sums": format!(
                "{}[index_t(blockIdx.x) * ({} * {units}) + {first}own]",
                product.sums(),
                weights.dims[1] / product.units
            ),
        })
    }

    /// C++ expression of the bias of a gate.
    fn bias(&self, slot: &str, at: usize) -> String {
        let column = Elements::vector_column(at, "unit");
        format!(" + Math(widen(t.{}))", self.elements.element(slot, "", &column))
    }

    /// A stage, including its GEMM if `multiplies`.
    fn piece_of_stage(&self, stage: usize, multiplies: bool) -> Json {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let (elements, members) = (&self.elements, &self.elements.members);
        let gates = cell.stages[stage].product.iter().flat_map(|of| 0..of.gates.len());
        let gates = gates.map(|gate| {
            let row = cell.first_row(stage) + gate;
            let from = self.in_row("sums", cell.recurrent_gates(), row, "unit");
            let bias = if op.with.r_bias { self.bias("r_bias", row) } else { String::new() };
            json!({ "name": members.recurrent(row), "from": from, "bias": bias })
        });
        let value = |value: CellValue| {
            let at = self.carried.iter().position(|of| *of == value).expect("it is carried");
            let place = self.in_row("carried", self.carried.len(), at, "unit");
            json!({ "name": members.name(value), "from": place, "to": place })
        };
        let made = |of: &&CellValue| cell.made_in(**of);
        let carried = self.carried.iter().filter(|of| made(of).is_some_and(|at| at < stage));
        let leaves = self.carried.iter().filter(|of| made(of) == Some(stage));
        let next = cell.stages.get(stage + 1).and_then(|next| next.product.as_ref());
        let last = stage + 1 == cell.stages.len();
        let publishes = match next {
            Some(product) => {
                let output = cell.output(stage, &product.operand).expect("the cell is valid");
                Some(members.result(stage, output))
            }
            None if last && cell.projected => cell.next(0).map(|value| members.name(value)),
            None => None,
        };
        let moments =
            elements.moments(stage, "of").into_iter().enumerate().map(|(at, mut moment)| {
                moment["mean"] = json!(format!("mean{at}"));
                moment["inverse"] = json!(format!("inverse{at}"));
                moment
            });
        let product = self.layer.product(Some(stage)).filter(|_| multiplies);
        json!({
            "kind": "stage",
            "product": product.map(|product| self.multiplied(product)),
            "stage": stage,
            "first": stage == 0,
            "last": last,
            "gates": gates.collect::<Vec<_>>(),
            "carried": carried.map(|of| value(*of)).collect::<Vec<_>>(),
            "leaves": leaves.map(|of| value(*of)).collect::<Vec<_>>(),
            "publishes": publishes,
            "moments": moments.collect::<Vec<_>>(),
        })
    }

    /// Element of a vector of the row in a workspace buffer with several vectors per batch row.
    fn in_row(&self, piece: &str, vectors: usize, at: usize, unit: &str) -> String {
        format!("{piece}[(index_t(blockIdx.x) * {vectors} + {at}) * HIDDEN + {unit}]")
    }

    /// Element of a state other than the first.
    fn kept(&self, at: usize, unit: &str) -> String {
        self.in_row("kept", self.layer.op.cell.states.len() - 1, at - 1, unit)
    }
}
