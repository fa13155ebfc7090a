//! The engine for recurrent layers of any size: at every step a product of matrices for each
//! product of the cell, and a kernel for each of its stages.
//!
//! Nothing stays on chip between kernels, so nothing limits the layer: states, sums and what later
//! stages read lie in memory. Moments need all units of a row, and a block has them here.

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::rnn::elements::Elements;
use crate::engine::rnn::layer::{Layer, ProductShape};
use crate::engine::signature::{ctype, merged};
use crate::engine::{
    Argument, BehaviorNote, Engine, EngineConfig, Grid, KernelPlan, KernelSpec, KernelWork, Knob,
    LaunchPlan, Lowering, Notes, Setting, Supported, WorkOf, supported,
};
use crate::error::Result;
use crate::expr::Math;
use crate::graph::{CanonicalGraph, CellValue, Matmul, OperationGraph};
use crate::target::{Arch, Target};
use crate::tensor::TensorDesc;

const NAME: &str = "rnn_step";

/// Threads of a block, which has one row.
const THREADS: u32 = 256;

/// See the module.
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
        Ok(Box::new(Steps { layer: Layer::of(graph)?, target }))
    }
}

#[derive(Debug, Clone)]
struct Steps<'a> {
    layer: Layer<'a>,
    target: &'a Target,
}

impl Supported for Steps<'_> {
    fn knobs(&self) -> Vec<Knob> {
        Vec::new()
    }

    fn heuristic(&self) -> EngineConfig {
        EngineConfig::new(NAME, &[])
    }

    fn reasons(&self) -> Vec<String> {
        Vec::new()
    }

    fn smaller(&self, _config: &EngineConfig) -> Option<EngineConfig> {
        None
    }

    fn settings(&self) -> Vec<Setting> {
        let op = self.layer.op;
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
        let products = self.layer.products.iter().map(|of| {
            let bytes = (op.direction.count() * of.gates * of.units * of.depth) as f64
                * self.layer.dtype().bytes() as f64;
            KernelWork { dram_bytes: bytes, l2_bytes: bytes, ..cell }
        });
        let step: Vec<KernelWork> = products.chain([cell]).collect();
        let steps = self.layer.steps().max(1) as usize;
        let work = step.iter().cycle().take(step.len() * steps).copied().collect();
        vec![Setting { config: self.heuristic(), work }]
    }

    fn work_of(&self) -> WorkOf<'_> {
        Box::new(|_| self.settings().pop().map(|setting| setting.work))
    }

    fn notes(&self, _config: &EngineConfig) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    /// For what no engine keeps on chip.
    fn pays(&self) -> bool {
        false
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&self.knobs())?;
        let writer = Writer::of(&self.layer, self.target.arch);
        let mut scratch: Vec<u64> = writer.pieces().iter().map(|piece| piece.bytes).collect();
        let mut step = Vec::new();
        for (stage, _) in self.layer.op.cell.stages.iter().enumerate() {
            let own = |of: &&ProductShape| of.stage == Some(stage);
            if let Some(product) = self.layer.products.iter().find(own) {
                step.extend(self.product(&writer, product, &mut scratch)?);
            }
            step.push(writer.stage(stage));
        }
        if let Some(projection) = self.layer.products.iter().find(|of| of.stage.is_none()) {
            step.extend(self.product(&writer, projection, &mut scratch)?);
            step.push(writer.project());
        }
        let mut kernels = vec![writer.start()];
        for at in 0..self.layer.longest() {
            kernels.extend(step.iter().map(|kernel| writer.at_step(kernel, at)));
        }
        kernels.extend(writer.finish());
        Ok(Lowering { kernels, scratch })
    }
}

impl Steps<'_> {
    /// The kernels of a product of all rows with the weights, by the engines for such.
    fn product(
        &self,
        writer: &Writer<'_>,
        product: &ProductShape,
        scratch: &mut Vec<u64>,
    ) -> Result<Vec<KernelPlan>> {
        const A: i64 = 1;
        const B: i64 = 2;
        const C: i64 = 3;
        let (op, dtype) = (self.layer.op, self.layer.dtype());
        let (slot, operand) = match product.stage {
            Some(0) => ("r", "hidden"),
            Some(_) => ("r", "operand"),
            None => ("projection", "operand"),
        };
        let weights = self.layer.tensor(slot).expect("the product has weights");
        let [directions, columns] = [weights.dims[0], weights.dims[1]];
        let mut graph = OperationGraph::builder();
        graph.tensor(TensorDesc::packed(A, "a", &[directions, op.batch, product.depth], dtype));
        let [direction, row, depth] = [0, 1, 2].map(|axis| weights.strides[axis]);
        graph.tensor(TensorDesc {
            strides: vec![direction, depth, row],
            alignment: weights.alignment,
            ..TensorDesc::packed(B, "b", &[directions, product.depth, columns], dtype)
        });
        let sums = [directions, op.batch, columns];
        graph.tensor(TensorDesc::packed(C, "c", &sums, op.math.dtype()));
        let matmul = crate::graph::Op::Matmul(Matmul::new(op.math));
        graph.operation_into(matmul, &[A, B], &[C]);
        let graph = graph.build()?;
        let canonical = graph.canonical();
        let of_engine = |name: &str| supported(name, canonical, self.target);
        let own = of_engine("gemm_mma").or_else(|_| of_engine("gemm_simt"))?;
        let lowered = own.lower(&own.heuristic())?;
        let first = scratch.len();
        scratch.extend(&lowered.scratch);
        let place = |argument: &Argument| match *argument {
            Argument::Address(at) => match canonical.uids[at as usize] {
                A => Argument::Scratch(writer.piece(operand)),
                B => Argument::Address(self.layer.uid(slot).expect("it has weights") as i64),
                _ => Argument::Scratch(writer.piece("sums")),
            },
            Argument::Scratch(at) => Argument::Scratch(first + at),
            other => other,
        };
        let placed = |mut kernel: KernelPlan| {
            kernel.launch.arguments = kernel.launch.arguments.iter().map(place).collect();
            kernel
        };
        Ok(lowered.kernels.into_iter().map(placed).collect())
    }
}

/// A piece of memory that the kernels share.
struct Piece {
    name: &'static str,
    ctype: &'static str,
    bytes: u64,
}

struct Writer<'a> {
    elements: Elements<'a>,
    layer: &'a Layer<'a>,
    /// What a later stage reads of an earlier one.
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
            piece("sums", math, columns("r").max(columns("projection"))),
            piece("operand", stored, units),
            piece("carried", math, self.carried.len() as u64 * units),
        ]
    }

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
            let value = value.to_string();
            json!({ "type": "int", "name": name, "value": value, "about": "" })
        };
        let dtype = layer.dtype();
        let stem = format!("sm75_rnn_cell_{dtype}_{}_{name}", layer.cell_word());
        let shared = json!({
            "stem": stem,
            "entry": "rnn_cell",
            "arch": self.arch.to_string(),
            "about": about,
            "stored": ctype(dtype),
            "math": op.math.dtype().register(),
            "constants": [
                constant("UNITS", op.units),
                constant("SIZE", layer.size()),
                constant("BATCH", op.batch),
                constant("THREADS", i64::from(THREADS)),
            ],
            "fields": fields,
            "functions": [],
            "listing": [],
            "stages": [],
            "moments": [],
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

    /// The same kernel at a step: its last number, if it asks for one.
    fn at_step(&self, kernel: &KernelPlan, at: i64) -> KernelPlan {
        let mut kernel = kernel.clone();
        if kernel.spec.entry == "rnn_cell" {
            *kernel.launch.numbers.last_mut().expect("the step is a number") = at;
        }
        kernel
    }

    /// States as they are before the first step.
    fn start(&self) -> KernelPlan {
        let op = self.layer.op;
        let first = match self.layer.tensor("h_initial") {
            Some(_) => format!("t.{}", self.elements.element("h_initial", "index_t(b)", "own")),
            None => "Narrow<Stored>::from(0.f)".to_owned(),
        };
        let state = |at: usize| {
            let column = format!("{} + own", (at as i64 - 1) * op.units);
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
            "first_state": first,
            "others": states.len(),
            "states": states,
        });
        self.kernel("start", about, own)
    }

    /// States as they are after the last step.
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

    /// What all kernels of a step say alike.
    fn step(&self, kind: &str) -> Json {
        let (op, elements) = (self.layer.op, &self.elements);
        let math = Math::of(op.math.dtype());
        json!({
            "kind": kind,
            "reverse": elements.reverse(),
            "lengths": op.with.lengths,
            "layout": op.layout.name(),
            "projected": op.cell.projected,
            "with_reset": op.with.reset,
            "y": elements.y("row"),
            "fill": op.fill.literal(math),
        })
    }

    fn project(&self) -> KernelPlan {
        let about = "the projection of a recurrent layer at one step.";
        self.kernel("project", about, self.step("project"))
    }

    fn stage(&self, stage: usize) -> KernelPlan {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let (elements, members) = (&self.elements, &self.elements.members);
        let programs = members.programs(self.layer);
        let bias = |slot: &str, given: bool, at: usize| match given {
            true => {
                let column = format!("{} + unit", at as i64 * op.units);
                format!(" + Math(widen(t.{}))", elements.element(slot, "", &column))
            }
            false => String::new(),
        };
        let given = elements.given().into_iter().map(|value| {
            let bias = value.gate.map(|gate| bias("x_bias", op.with.x_bias, gate));
            json!({ "name": value.name, "from": value.from, "bias": bias.unwrap_or_default() })
        });
        let gates = cell.stages[stage].product.iter().flat_map(|of| 0..of.gates.len());
        let gates = gates.map(|gate| {
            let row = cell.first_row(stage) + gate;
            let from = self.in_row("sums", cell.recurrent_gates(), row, "unit");
            let bias = bias("r_bias", op.with.r_bias, row);
            json!({ "name": members.recurrent(row), "from": from, "bias": bias })
        });
        let parameters = members.parameters().enumerate().map(|(at, name)| {
            let stride = self.layer.tensor("parameters").map_or(0, |of| of.strides[1]);
            let column = format!("{} + unit", at as i64 * stride);
            json!({ "name": name, "from": elements.element("parameters", "", &column) })
        });
        let states = elements.states("row").into_iter().enumerate().map(|(at, mut state)| {
            state["kept"] = json!((at > 0).then(|| self.kept(at, "own")));
            state["from"] = json!(match at {
                0 if cell.projected => "Math(0)".to_owned(),
                0 => "Math(widen(hidden[unit]))".to_owned(),
                _ => format!("t.{}", self.kept(at, "unit")),
            });
            state
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
        let stages = programs.lines.iter().map(|lines| json!({ "lines": lines }));
        let parts = json!({
            "listing": elements.listing(),
            "functions": programs.functions,
            "members": members.all(),
            "given": members.given().map(|(_, name)| name).collect::<Vec<_>>(),
            "stages": stages.collect::<Vec<_>>(),
            "stage": stage,
            "first": stage == 0,
            "last": last,
            "given_values": given.collect::<Vec<_>>(),
            "gates": gates.collect::<Vec<_>>(),
            "parameters": parameters.collect::<Vec<_>>(),
            "states": states.collect::<Vec<_>>(),
            "carried": carried.map(|of| value(*of)).collect::<Vec<_>>(),
            "leaves": leaves.map(|of| value(*of)).collect::<Vec<_>>(),
            "publishes": publishes,
            "reset": op.with.reset.then(|| elements.element("reset", "row", "0")),
            "moments": moments.collect::<Vec<_>>(),
        });
        let own = merged(self.step("stage"), parts);
        let about = format!("stage {stage} of a recurrent layer at one step.");
        self.kernel(&format!("stage{stage}"), &about, own)
    }

    /// A vector of a row in a piece that has some for every row of the batch.
    fn in_row(&self, piece: &str, vectors: usize, at: usize, unit: &str) -> String {
        format!("{piece}[(index_t(blockIdx.x) * {vectors} + {at}) * UNITS + {unit}]")
    }

    /// A state other than the first.
    fn kept(&self, at: usize, unit: &str) -> String {
        self.in_row("kept", self.layer.op.cell.states.len() - 1, at - 1, unit)
    }
}
