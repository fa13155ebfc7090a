//! Template parameters and launches of a schedule.

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::{access_bytes, ceil_div};
use crate::engine::rnn::elements::{Elements, Given};
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Exchange, Placed, Schedule, Units};
use crate::engine::signature::{ctype, merged};
use crate::expr::Math;
use crate::graph::{CellValue, Direction};
use crate::kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Arch;

/// Row of `x` and `y` of a step of batch row `b`.
const ROW: &str = "rows.row(step, b)";

/// The kernels of a layer: a prepack kernel where the workspace needs initial contents, and the
/// layer.
pub(super) fn lowering(layer: &Layer<'_>, schedule: &Schedule, arch: Arch) -> Lowering {
    let writer = Writer { layer, schedule, elements: Elements::of(layer), arch };
    let scratch = writer.scratch();
    let start = (!scratch.is_empty()).then(|| writer.start());
    let kernels = start.into_iter().chain([writer.layer()]).collect();
    Lowering { kernels, scratch: scratch.into_iter().map(|piece| piece.bytes as u64).collect() }
}

/// A workspace buffer.
struct Piece {
    name: String,
    ctype: String,
    bytes: i64,
}

struct Writer<'a> {
    layer: &'a Layer<'a>,
    schedule: &'a Schedule,
    elements: Elements<'a>,
    arch: Arch,
}

impl Writer<'_> {
    /// The layer kernel.
    fn layer(&self) -> KernelPlan {
        let Writer { layer, schedule, .. } = self;
        let tensors = layer.tensors().map(|(_, uid)| Argument::Address(uid as i64));
        let scratch = (0..self.scratch().len()).map(Argument::Scratch);
        let launch = LaunchPlan {
            grid: Grid::Fixed((schedule.teams * schedule.settings.blocks) as u32),
            threads: schedule.threads as u32,
            shared_bytes: schedule.memory.total as u32,
            cooperative: schedule.exchange.through_memory(),
            arguments: tensors.chain(scratch).collect(),
            maps: Vec::new(),
            numbers: self.elements.numbers().into_iter().map(|(_, number)| number).collect(),
        };
        let name = format!("rnn_{}_{}", layer.dtype(), layer.cell_word());
        KernelPlan { spec: self.spec("rnn", &name, self.parameters()), launch }
    }

    /// The prepack kernel.
    fn start(&self) -> KernelPlan {
        let Writer { layer, schedule, .. } = self;
        let weights = |(slot, _): &(&str, usize)| matches!(*slot, "r" | "projection");
        let tensors: Vec<(&'static str, usize)> = layer.tensors().filter(weights).collect();
        let mut parameters = self.shared_parameters();
        let fields = tensors.iter().map(|(slot, uid)| self.elements.field(slot, *uid));
        parameters["fields"] = fields.chain(self.scratch_fields()).collect();
        let constants = parameters["constants"].as_array_mut().expect("constants are a list");
        constants.push(constant(
            "CTA_GROUPS",
            schedule.teams,
            "groups of CTAs that share batch rows",
        ));
        // A block for each with its own weights.
        for one in constants.iter_mut().filter(|one| one["name"] == "BATCH_TILES") {
            *one = constant("BATCH_TILES", 1, "all have the same weights");
        }
        let tensors = tensors.iter().map(|(_, uid)| Argument::Address(*uid as i64));
        let scratch = (0..self.scratch().len()).map(Argument::Scratch);
        let launch = LaunchPlan {
            grid: Grid::Fixed((layer.op.direction.count() * schedule.settings.blocks) as u32),
            threads: schedule.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: tensors.chain(scratch).collect(),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        let name = format!("rnn_start_{}_{}", layer.dtype(), layer.cell_word());
        KernelPlan { spec: self.spec("rnn_start", &name, parameters), launch }
    }

    fn spec(&self, entry: &'static str, name: &str, mut parameters: Json) -> KernelSpec {
        let lanes = self.schedule.units == Units::Lanes;
        let template = match (entry, lanes) {
            ("rnn", true) => "rnn/sm75_rnn_simt.cu",
            ("rnn", false) => "rnn/sm80_rnn_mma.cu",
            (_, true) => "rnn/sm75_rnn_start_simt.cu",
            (_, false) => "rnn/sm80_rnn_start_mma.cu",
        };
        let (sm, variant) = if lanes { ("sm75", "simt") } else { ("sm80", "mma") };
        let (stem, arch) = (format!("{sm}_{name}_{variant}"), self.arch);
        parameters["stem"] = json!(stem);
        parameters["entry"] = json!(entry);
        parameters["arch"] = json!(arch.to_string());
        KernelSpec { stem, template, entry, arch, parameters }
    }

    /// Workspace: exchange buffers, counters, and prepacked weights that are streamed.
    fn scratch(&self) -> Vec<Piece> {
        let Writer { layer, schedule, .. } = self;
        let mut pieces = Vec::new();
        let mut add = |name: String, ctype: &str, bytes: i64| {
            pieces.push(Piece { name, ctype: format!("{ctype}*"), bytes });
        };
        let rows = schedule.teams * schedule.operands() * schedule.settings.batch_tile;
        let bytes = rows * schedule.shared_width * layer.dtype().bytes() as i64;
        match schedule.exchange {
            Exchange::None | Exchange::Cluster => {}
            Exchange::Counter => {
                add("exchanged".to_owned(), ctype(layer.dtype()), bytes);
                add("arrivals".to_owned(), "unsigned", schedule.teams * 4);
            }
            Exchange::Data => add("exchanged".to_owned(), "LLWord", 2 * bytes),
        }
        let warps = layer.op.direction.count() * schedule.settings.blocks * schedule.threads / 32;
        for (at, placed) in schedule.products.iter().enumerate() {
            if placed.streamed() > 0 {
                let bytes = warps * placed.streamed() * placed.step_bytes;
                add(format!("streamed{at}"), "WeightFrag", bytes);
            }
        }
        pieces
    }

    fn scratch_fields(&self) -> impl Iterator<Item = Json> {
        let field = |piece: Piece| json!({ "type": piece.ctype, "name": piece.name });
        self.scratch().into_iter().map(field)
    }

    fn batch_tiles(&self) -> i64 {
        ceil_div(self.layer.op.batch, self.schedule.settings.batch_tile)
    }

    /// Parameters common to all kernels of the layer.
    fn shared_parameters(&self) -> Json {
        let Writer { layer, schedule, .. } = self;
        let math = layer.op.math.dtype();
        let simt = schedule.units == Units::Lanes;
        let products = schedule.products.iter().enumerate();
        let products = products.map(|(at, placed)| self.product(at, placed));
        json!({
            "mma": self.mma(),
            "simt": simt,
            "stored": ctype(layer.dtype()),
            "element": if simt { math.register() } else { ctype(layer.dtype()) },
            "math": math.register(),
            "constants": self.constants(),
            "products": products.collect::<Vec<_>>(),
            "streams": schedule.products.iter().any(|placed| placed.streamed() > 0),
            "exchange": schedule.exchange.name(),
            "reverse": self.elements.reverse(),
        })
    }

    fn parameters(&self) -> Json {
        let Writer { layer, schedule, elements, .. } = self;
        let (op, members) = (layer.op, &elements.members);
        let programs = members.programs(layer);
        let math = Math::of(op.math.dtype());
        let tensors = layer.tensors().map(|(slot, uid)| self.elements.field(slot, uid));
        let numbers = self.elements.numbers().into_iter();
        let numbers = numbers.map(|(name, _)| json!({ "type": "index_t", "name": name }));
        let fields: Vec<Json> = tensors.chain(self.scratch_fields()).chain(numbers).collect();
        let given: Vec<&str> = members.given().map(|(_, name)| name).collect();
        let buffers = (0..schedule.memory.operands.len()).map(|at| {
            let offset = format!("SMEM_OPERAND{}_OFFSET", at + 1);
            json!({ "name": operand(at), "at": offset })
        });
        let initial = |slot: &str, column: &str| {
            layer.tensor(slot).map(|_| self.elements.element(slot, "index_t(b)", column))
        };
        let cluster = match schedule.exchange {
            Exchange::Cluster => schedule.settings.blocks,
            _ => 1,
        };
        let own = json!({
            "cell": op.cell.name,
            "listing": self.elements.listing(),
            "shape": self.shape(),
            "functions": programs.functions,
            "fields": fields,
            "members": members.all(),
            "given": given,
            "given_values": self.given_values(),
            "given_biased": op.with.x_bias,
            "parameters": self.cell_parameters(),
            "stages": self.stages(programs.lines),
            "moments": layer.moments(),
            "buffers": buffers.collect::<Vec<_>>(),
            "parts": schedule.settings.parts,
            "cluster": cluster,
            "turns": false,
            "vectors": self.vectors(),
            "vector": self.vector(),
            "lengths": op.with.lengths,
            "with_reset": op.with.reset,
            "reset": op.with.reset.then(|| self.elements.element("reset", "row", "0")),
            "layout": op.layout.name(),
            "projected": op.cell.projected,
            "projected_gathered": self.gathered("projected", "subtile"),
            "states": self.elements.states(ROW),
            "h_initial": initial("h_initial", "unit"),
            "h_final": initial("h_final", "own"),
            "states_final": op.with.states_final,
            "history": op.with.history,
            "y": self.elements.y(ROW),
            "y_behind": self.elements.y("row"),
            "histories_behind": self.elements.histories("row"),
            "fill": op.fill.literal(math),
        });
        merged(self.shared_parameters(), own)
    }

    /// The layer's extents and operands, for the header comment.
    fn shape(&self) -> Vec<String> {
        let layer = self.layer;
        let op = layer.op;
        let direction = match op.direction {
            Direction::Forward => "forward",
            Direction::Reverse => "backward",
            Direction::Both => "in both directions",
        };
        let (layout, size) = (op.layout.name(), layer.size());
        let tensor =
            |(slot, uid): (&str, usize)| format!("{slot} {}", layer.graph.tensors[uid].dtype);
        let tensors: Vec<String> = layer.tensors().map(tensor).collect();
        vec![
            format!(
                "batch {}, hidden size {}, output size {size}, {direction}, rows {layout}",
                op.batch, op.units
            ),
            tensors.join(", "),
        ]
    }

    /// C++ expression that gathers a GEMM's accumulators.
    fn gathered(&self, sums: &str, square: &str) -> String {
        match self.schedule.settings.parts {
            1 => format!("{sums}, {square}"),
            _ => format!("partial, coords.warp_n, {square}"),
        }
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
        let mut add = |name: &str, value, about: &str| constants.push(constant(name, value, about));
        add("HIDDEN", op.units, "");
        add("OUT_SIZE", layer.size(), "of h and y");
        add("BATCH", op.batch, "");
        add("BATCH_TILE", settings.batch_tile, "");
        add("BATCH_TILES", self.batch_tiles(), "");
        add("BATCH_SUBTILES", squares, "of 8 batch rows");
        add("CTAS", settings.blocks, "CTAs that share the units of a batch tile");
        add("WARPS_N", settings.columns, "along the units");
        add("WARPS_K", settings.parts, "along K");
        add("THREADS", schedule.threads, "");
        add("CTA_HIDDEN", schedule.slice, "units of a CTA");
        add("UNIT_GROUPS", schedule.groups(), "groups of 8 units of a warp");
        add(
            "SUBTILES",
            schedule.groups() * squares,
            "8 x 8 subtiles of units and batch rows, of a group of warps",
        );
        add(
            "WARP_SUBTILES",
            schedule.cells(schedule.groups()),
            "subtiles whose cells a warp updates",
        );
        if let Some(projection) = self.projection() {
            add("PROJ_GROUPS", projection.groups, "");
            add("PROJ_SUBTILES", projection.groups * squares, "");
            add("PROJ_WARP_SUBTILES", schedule.cells(projection.groups), "");
        }
        add("CTA_OUT", self.out_slice(), "columns of h of a CTA");
        add("VECTOR", self.vector(), "elements of y per store");
        add(
            "STAGING_BYTES",
            schedule.staged_bytes(),
            "of a warp, to load register-resident weights",
        );
        add("FRAG_K", schedule.units.fragment_depth(), "");
        add("ROW_STRIDE", schedule.row_stride, "elements between batch rows in shared memory");
        add("BUFFER_ELEMENTS", schedule.buffer_elements(), "");
        for (at, byte) in memory.operands.iter().enumerate() {
            add(&format!("SMEM_OPERAND{}_OFFSET", at + 1), *byte, "bytes");
        }
        for (at, byte) in memory.kept.iter().enumerate() {
            add(&format!("SMEM_WEIGHTS{at}_OFFSET"), *byte, "bytes");
        }
        if settings.parts > 1 {
            add("SMEM_PARTIAL_OFFSET", memory.partial, "bytes");
        }
        if schedule.vectors > 0 {
            add("SMEM_VECTORS_OFFSET", memory.vectors, "bytes");
        }
        if schedule.exchange != Exchange::None {
            add("OPERANDS", schedule.operands(), "that CTAs exchange");
        }
        match schedule.exchange {
            Exchange::None => {}
            Exchange::Cluster => {
                add("BARRIERS", schedule.barriers(layer), "of a CTA");
                add("SMEM_BARRIERS_OFFSET", memory.barriers, "bytes");
            }
            Exchange::Counter => {
                add("EXCHANGE_WIDTH", schedule.shared_width, "elements of a row in memory");
                let bytes = schedule.element_bytes.max(layer.dtype().bytes() as i64);
                add("CHUNK", 16 / bytes, "elements per access");
            }
            Exchange::Data => {
                let bytes = layer.dtype().bytes() as i64;
                add("EXCHANGE_WORDS", schedule.shared_width * bytes / 4, "of a row in memory");
                add("CHUNK", 8 / bytes, "elements per access");
            }
        }
        if layer.moments() > 0 {
            add("MOMENTS", layer.moments(), "of a stage, at most");
            add("SMEM_SUMS_OFFSET", memory.sums, "bytes");
        }
        if layer.moments() > 0 && schedule.exchange == Exchange::Cluster {
            add("SMEM_JOINED_OFFSET", memory.joined, "bytes");
        }
        if op.with.lengths {
            add("BATCH_ALL", ceil_div(op.batch, 32) * 32, "");
            add("SMEM_LENGTHS_OFFSET", memory.lengths, "bytes");
        }
        for (name, value) in self.elements.constants() {
            add(&name, value, "");
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

    /// Elements of `y` per store.
    fn vector(&self) -> i64 {
        let y = self.layer.y();
        let (stored, element) = (y.dtype.bytes() as i64, self.schedule.element_bytes);
        let fits = |vector: &i64| {
            // Strides between directions and between rows of a step.
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

    /// Biases and parameters in shared memory order.
    fn vectors(&self) -> Vec<Json> {
        let op = self.layer.op;
        let mut vectors = Vec::new();
        let mut add = |slot: &str, count: usize| {
            for at in 0..count {
                let column = match slot {
                    "x_bias" => self.elements.gate_column(at, "unit"),
                    "parameters" => format!("{at} * PARAMETERS_STRIDE_ROW + unit"),
                    _ => Elements::vector_column(at, "unit"),
                };
                vectors.push(json!({
                    "at": vectors.len(),
                    "from": self.elements.element(slot, "", &column),
                }));
            }
        };
        if op.with.x_bias {
            add("x_bias", op.cell.gates.len());
        }
        if op.with.r_bias {
            add("r_bias", op.cell.recurrent_gates());
        }
        if self.layer.tensor("parameters").is_some() {
            add("parameters", op.cell.parameters.len());
        }
        vectors
    }

    /// Index of the first vector of a slot.
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

    /// Values read at every step, with their biases.
    fn given_values(&self) -> Vec<Json> {
        let value = |given: Given| {
            let sum = biased(
                format!("from.{}", given.name),
                given.gate.filter(|_| self.layer.op.with.x_bias),
            );
            json!({ "name": given.name, "from": given.from, "sum": sum })
        };
        self.elements.given().into_iter().map(value).collect()
    }

    fn cell_parameters(&self) -> Vec<Json> {
        let first = self.first_vector("parameters");
        let names = self.elements.members.parameters().enumerate();
        names.map(|(at, name)| json!({ "name": name, "at": first + at })).collect()
    }

    fn stages(&self, programs: Vec<Vec<String>>) -> Vec<Json> {
        let (op, cell) = (self.layer.op, &self.layer.op.cell);
        let first_bias = self.first_vector("r_bias");
        let count = programs.len();
        let stage = |(at, lines): (usize, Vec<String>)| {
            let product = self.schedule.products.iter().position(|of| of.shape.stage == Some(at));
            let gates = cell.stages[at].product.iter().flat_map(|of| of.gates.iter().enumerate());
            let gates = gates.map(|(gate, _)| {
                let row = cell.first_row(at) + gate;
                let sum = format!("acc[{gate}][i]");
                let bias = op.with.r_bias.then_some(first_bias + row);
                json!({ "name": self.elements.members.recurrent(row), "sum": biased(sum, bias) })
            });
            let last = at + 1 == count;
            let publishes = match cell.stages.get(at + 1).and_then(|next| next.product.as_ref()) {
                Some(product) => {
                    let output = cell.output(at, &product.operand).expect("the cell is valid");
                    let position = self.schedule.products.iter();
                    let mut position = position.map(|of| of.shape.stage);
                    let position = position.position(|stage| stage == Some(at + 1));
                    Some((position.unwrap_or(0), self.elements.members.result(at, output)))
                }
                None if last && cell.projected => match cell.next(0) {
                    Some(CellValue::Result { stage, at }) => Some((
                        self.schedule.products.len() - 1,
                        self.elements.members.result(stage, at),
                    )),
                    _ => None,
                },
                None => None,
            };
            let sums = format!("acc{at}");
            json!({
                "number": at,
                "gathered": self.gathered(&sums, "coords.subtile(sub)"),
                "biased": op.with.r_bias,
                "first": at == 0,
                "last": last,
                "moments": self.elements.moments(at, "unit"),
                "sizes": cell.stages[at].moments.iter().map(|of| of.of.len()).collect::<Vec<_>>(),
                "lines": lines,
                "product": product.map_or(-1, |at| at as i64),
                "gates": gates.collect::<Vec<_>>(),
                "publishes": publishes.map(|(product, value)| {
                    let made = self.schedule.made_operands(product);
                    json!({ "buffer": operand(made), "which": made + 2, "value": value })
                }),
            })
        };
        programs.into_iter().enumerate().map(stage).collect()
    }

    fn product(&self, at: usize, placed: &Placed) -> Json {
        let Placed { shape, groups, steps, held, kept, .. } = placed;
        let weights = if shape.stage.is_some() { "r" } else { "projection" };
        let tensor = self.layer.tensor(weights).expect("the product has weights");
        let (name, variable, units, slice, depth) = match shape.stage {
            Some(stage) => {
                let depth = if shape.is_of_state() { "OUT_SIZE" } else { "HIDDEN" };
                (
                    format!("Product{stage}"),
                    format!("product{stage}"),
                    "HIDDEN",
                    "CTA_HIDDEN",
                    depth,
                )
            }
            None => {
                ("Projection".to_owned(), "projection".to_owned(), "OUT_SIZE", "CTA_OUT", "HIDDEN")
            }
        };
        let gate = match shape.row {
            0 => "gate".to_owned(),
            row => format!("({row} + gate)"),
        };
        let row = format!("index_t({gate} * {units} + own)");
        let row = if tensor.dims[1] == 1 { "" } else { &row };
        let factor = match shape.is_of_state() {
            true => "h_prev".to_owned(),
            false => operand(self.schedule.made_operands(at)),
        };
        let left = placed.streamed();
        let streamed = match left {
            0 => "nullptr".to_owned(),
            _ => format!(
                "t.streamed{at} + ((index_t(block_direction()) * CTAS + coords.rank) * \
                 (THREADS / WARP_SIZE) + warp) * ({name}::GMEM_STEPS * {name}::STEP)"
            ),
        };
        json!({
            "name": name,
            "variable": variable,
            "comment": self.comment(placed),
            "gates": shape.gates,
            "left": left,
            "units": units,
            "slice": slice,
            "depth": depth,
            "from": self.elements.element(weights, row, "k"),
            "weights": format!("{}, {groups}, {steps}, {held}, {kept}", shape.gates),
            "factor": format!("{factor} + coords.warp_k * {name}::K_PER_WARP"),
            "kept_at": format!("SMEM_WEIGHTS{at}_OFFSET"),
            "streamed": streamed,
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
}

/// Shared memory buffer of an operand that a stage computes, by index.
fn operand(made: usize) -> String {
    format!("operand{}", made + 1)
}

/// A value with its bias added.
fn biased(value: String, bias: Option<usize>) -> String {
    match bias {
        Some(bias) => format!("{value} + of_unit[{bias} * CTA_HIDDEN]"),
        None => value,
    }
}

fn constant(name: &str, value: i64, about: &str) -> Json {
    let ctype = if i32::try_from(value).is_ok() { "int" } else { "index_t" };
    json!({ "type": ctype, "name": name, "value": value.to_string(), "about": about })
}
