//! Template variables and launches of a schedule.

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{access_bytes, ceil_div};
use crate::engine::header::KernelNames;
use crate::engine::instruction::{MmaInstruction, mma_sm};
use crate::engine::rnn::elements::{Constant, Elements, Field, State, StepInput, stride, wrapped};
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{MathPath, PlacedGemm, SLOTS, Schedule, Settings};
use crate::engine::rnn::variables::{
    Gate, Gemm, LayerState, LayerVariables, OperandBuffer, Parameter, PrepackVariables,
    SharedVariables, StageOperand, StageVariables, StepLoad, Weights,
};
use crate::engine::rnn::variant::Exchange;
use crate::engine::signature::{Indent, ctype};
use crate::expr::Math;
use crate::graph::Direction;
use crate::kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Arch;

/// The kernels of a layer: a prepack kernel where the workspace needs initial contents, and the
/// layer.
pub(super) fn lowering(layer: &Layer<'_>, schedule: &Schedule, arch: Arch) -> Lowering {
    let writer = Writer { layer, schedule, elements: Elements::of(layer), arch };
    let scratch = scratch(layer, schedule);
    let prepack = (!scratch.is_empty()).then(|| writer.prepack());
    let kernels = prepack.into_iter().chain([writer.layer()]).collect();
    Lowering { kernels, scratch }
}

/// Sizes of the workspace's buffers.
pub(super) fn scratch(layer: &Layer<'_>, schedule: &Schedule) -> Vec<u64> {
    buffers(layer, schedule).into_iter().map(|buffer| buffer.bytes as u64).collect()
}

/// A workspace buffer.
struct Buffer {
    field: Field,
    bytes: i64,
}

/// Workspace: exchange buffers, counters, and prepacked weights that are streamed.
fn buffers(layer: &Layer<'_>, schedule: &Schedule) -> Vec<Buffer> {
    let mut buffers = Vec::new();
    let mut add = |name: String, ctype: &str, bytes: i64| {
        buffers.push(Buffer { field: Field { ctype: format!("{ctype}*"), name }, bytes });
    };
    let operands = schedule.cta_groups * schedule.operands();
    match schedule.exchange {
        Exchange::None | Exchange::Cluster | Exchange::ReduceScatter => {}
        Exchange::Counter => {
            let elements = schedule.settings.batch_tile * schedule.exchange_width;
            let bytes = operands * elements * layer.dtype().bytes() as i64;
            add("exchanged".to_owned(), ctype(layer.dtype()), bytes);
            add("arrivals".to_owned(), "unsigned", schedule.cta_groups * 4);
        }
        Exchange::Words => {
            let bytes = operands * SLOTS * schedule.slot_words(layer) * 8;
            add("exchanged".to_owned(), "Word", bytes);
        }
    }
    let blocks = layer.op.direction.count() * schedule.settings.group_ctas;
    let warps = blocks * schedule.threads / 32;
    for (at, placed) in schedule.gemms.iter().enumerate() {
        if placed.streamed_steps() > 0 {
            let bytes = warps * placed.streamed_steps() * placed.step_bytes;
            add(format!("streamed{at}"), "WeightFrag", bytes);
        }
    }
    buffers
}

/// Writes the variables of a layer's kernels.
pub(super) struct Writer<'a> {
    pub(super) layer: &'a Layer<'a>,
    pub(super) schedule: &'a Schedule,
    pub(super) elements: Elements<'a>,
    arch: Arch,
}

impl Writer<'_> {
    /// The layer kernel.
    fn layer(&self) -> KernelPlan {
        let Writer { layer, schedule, .. } = self;
        let tensors = layer.tensors().map(|(_, uid)| Argument::Address(uid as i64));
        let scratch = (0..self.scratch().len()).map(Argument::Scratch);
        let launch = LaunchPlan {
            grid: Grid::fixed((schedule.cta_groups * schedule.settings.group_ctas) as u32),
            threads: schedule.threads as u32,
            shared_bytes: schedule.memory.total as u32,
            cooperative: schedule.exchange.through_memory(),
            arguments: tensors.chain(scratch).collect(),
            maps: Vec::new(),
            numbers: self.elements.numbers().into_iter().map(|(_, number)| number).collect(),
        };
        KernelPlan { spec: self.spec("rnn", &self.layer_variables()), launch }
    }

    /// The prepack kernel.
    fn prepack(&self) -> KernelPlan {
        let Writer { layer, schedule, .. } = self;
        let weights = |(slot, _): &(&str, usize)| matches!(*slot, "r" | "projection");
        let tensors: Vec<(&'static str, usize)> = layer.tensors().filter(weights).collect();
        let mut constants = self.constants();
        constants.push(Constant::new(
            "CTA_GROUPS",
            schedule.cta_groups,
            "groups of CTAs that share batch rows",
        ));
        // A block for each with its own weights.
        for one in constants.iter_mut().filter(|one| one.name == "BATCH_TILES") {
            *one = Constant::new("BATCH_TILES", 1, "all have the same weights");
        }
        let gemms = schedule.gemms.iter().enumerate();
        let variables = PrepackVariables {
            shared: self.shared_variables(&tensors, constants, Vec::new()),
            gemms: gemms.map(|(at, placed)| self.weights(at, placed)).collect(),
        };
        let tensors = tensors.iter().map(|(_, uid)| Argument::Address(*uid as i64));
        let scratch = (0..self.scratch().len()).map(Argument::Scratch);
        let launch = LaunchPlan {
            grid: Grid::fixed((layer.op.direction.count() * schedule.settings.group_ctas) as u32),
            threads: schedule.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: tensors.chain(scratch).collect(),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        KernelPlan { spec: self.spec("rnn_prepack", &variables), launch }
    }

    fn spec(&self, entry: &'static str, variables: &impl Serialize) -> KernelSpec {
        let simt = !self.schedule.mma();
        let template = match (entry, simt) {
            ("rnn", true) => "rnn/sm75_rnn_simt.cu",
            ("rnn", false) => "rnn/sm75_rnn_mma.cu",
            (_, true) => "rnn/sm75_rnn_prepack_simt.cu",
            (_, false) => "rnn/sm75_rnn_prepack_mma.cu",
        };
        let (sm, variant) = match (simt, self.is_quantised()) {
            (true, _) => ("sm75", "simt"),
            (false, true) => ("sm75", "mma"),
            (false, false) => (mma_sm(self.arch), "mma"),
        };
        let (dtype, cell) = (self.layer.dtype(), self.layer.cell_word());
        let stem = format!("{sm}_{entry}_{dtype}_{cell}_{variant}");
        KernelNames { stem, template, entry }.spec(self.arch, variables)
    }

    fn scratch(&self) -> Vec<Buffer> {
        buffers(self.layer, self.schedule)
    }

    /// Tiles of batch rows.
    pub(super) fn batch_tiles(&self) -> i64 {
        ceil_div(self.layer.op.batch, self.schedule.settings.batch_tile)
    }

    /// Variables of a kernel that takes these tensors and run-time numbers.
    fn shared_variables(
        &self,
        tensors: &[(&'static str, usize)],
        constants: Vec<Constant>,
        numbers: Vec<(String, i64)>,
    ) -> SharedVariables {
        let Writer { layer, schedule, elements, .. } = self;
        let math = layer.op.math.dtype();
        let simt = !schedule.mma();
        let addresses = tensors.iter().map(|(slot, uid)| elements.field(slot, *uid));
        let scratch = self.scratch().into_iter().map(|buffer| buffer.field);
        let number = |(name, _)| Field { ctype: "index_t".to_owned(), name };
        SharedVariables {
            simt,
            streams: schedule.gemms.iter().any(|of| of.streamed_steps() > 0),
            mma: (!simt).then(|| self.mma()),
            stored: ctype(layer.dtype()),
            element: if simt { math.register() } else { ctype(layer.dtype()) },
            math: math.register(),
            weight: if self.is_quantised() { ctype(layer.weights_dtype()) } else { "Stored" },
            accumulator: layer.accumulator(),
            constants,
            fields: addresses.chain(scratch).chain(numbers.into_iter().map(number)).collect(),
            rows: tensors.iter().map(|(slot, _)| elements.row_function(slot)).collect(),
            exchange: schedule.exchange.name(),
            half_subtiles: schedule.half_subtiles,
            holds_thread: !schedule.streams,
            reverse: elements.reverse(),
        }
    }

    fn layer_variables(&self) -> LayerVariables {
        let Writer { layer, schedule, elements, .. } = self;
        let (op, cell) = (layer.op, &elements.cell);
        let programs = cell.programs(layer);
        let math = Math::of(op.math.dtype());
        let tensors: Vec<(&'static str, usize)> = layer.tensors().collect();
        let state = |slot: &str| layer.tensor(slot).map(|_| elements.element(slot, "b", "column"));
        let operands = (0..schedule.memory.operands.len()).map(|at| OperandBuffer {
            name: operand(at),
            offset: format!("SMEM_OPERAND{}_OFFSET", at + 1),
        });
        let gemms = schedule.gemms.iter().enumerate();
        let states = elements.states();
        LayerVariables {
            shared: self.shared_variables(&tensors, self.constants(), elements.numbers()),
            gemms: gemms.map(|(at, placed)| self.gemm(at, placed)).collect(),
            cluster: if schedule.exchange.in_cluster() { schedule.settings.group_ctas } else { 1 },
            reduce_scatter: self.is_reduced(),
            ping_pong: false,
            shape: self.shape(),
            listing: elements.listing(),
            members: elements.members(),
            step_inputs: elements.step_input_members(),
            input_rows: elements.input_rows(),
            step_loads: self.step_loads(),
            with_reset: op.with.reset,
            reset: elements.reset(),
            parameters: self.cell_parameters(),
            stages: self.stages(),
            functions: programs.functions,
            quantization: elements.quantization(),
            narrow_h: elements.narrow_h(),
            compensated: layer.is_compensated(),
            stage_programs: programs.lines,
            projection: self.projection().map(|(at, placed)| self.gemm(at, placed)),
            layer_norms: layer.layer_norms_max(),
            operands: operands.collect(),
            warps_k: schedule.settings.warps_k,
            vectors: self.vectors(),
            lane_vectors: schedule.lane_vectors,
            vector: self.vector(),
            lengths: op.with.lengths,
            layout: op.layout.name(),
            reads_initial_states: states.iter().any(|state| state.initial.is_some()),
            writes_final_states: states.iter().any(|state| state.last.is_some()),
            states: states.into_iter().enumerate().map(|(at, of)| self.state(at, of)).collect(),
            history: op.with.history,
            saved: elements.saved(),
            backward: op.backward,
            outputs: layer.outputs(),
            h_initial: state("h_initial"),
            vector_h_initial: self.has_vector_h_initial(),
            h_final: state("h_final"),
            y: elements.y("rows.row(step, b)", "column"),
            y_beyond: elements.y("row", "column"),
            fill: op.fill.literal(math),
        }
    }

    /// The layer's cell, extents and operands, for the header comment.
    fn shape(&self) -> Vec<String> {
        let layer = self.layer;
        let op = layer.op;
        let direction = match op.direction {
            Direction::Forward => "forward",
            Direction::Reverse => "backward",
            Direction::Both => "in both directions",
        };
        let (cell, layout) = (&op.cell.name, op.layout.name());
        let (hidden_size, output_size) = (layer.hidden_size(), layer.output_size());
        let tensor =
            |(slot, uid): (&str, usize)| format!("{slot} {}", layer.graph.tensors[uid].dtype);
        let tensors: Vec<String> = layer.tensors().map(tensor).collect();
        let lines = [
            format!("cell {cell}, {direction}, rows {layout}"),
            format!("batch {}, hidden size {hidden_size}, output size {output_size}", op.batch),
        ];
        let tensors = wrapped(&tensors, ", ", Indent(5));
        lines.into_iter().chain(tensors.lines().map(|line| line.trim().to_owned())).collect()
    }

    fn mma(&self) -> MmaInstruction {
        let [a, b] = match (self.schedule.path, self.layer.dtype()) {
            (MathPath::MmaTf32, _) => ["tf32"; 2],
            (_, DType::Bf16) => ["bf16"; 2],
            (_, DType::I8) => ["s8"; 2],
            (_, DType::U8) => ["s8", "u8"],
            _ => ["f16"; 2],
        };
        MmaInstruction::new(self.schedule.path.fragment_k(), [a, b]).on(self.arch)
    }

    /// The GEMM of the projection and its index.
    fn projection(&self) -> Option<(usize, &PlacedGemm)> {
        let mut gemms = self.schedule.gemms.iter().enumerate();
        gemms.find(|(_, of)| of.shape.stage.is_none())
    }

    /// Columns of h of a CTA.
    pub(super) fn cta_output(&self) -> i64 {
        match self.projection() {
            Some((_, projection)) => projection.unit_groups * 8 * self.schedule.settings.warps_n,
            None => self.layer.outputs() * self.schedule.cta_hidden,
        }
    }

    /// Elements of `y` per store.
    pub(super) fn vector(&self) -> i64 {
        let y = self.layer.y();
        let (stored, element) = (y.dtype.bytes() as i64, self.schedule.element_bytes);
        let fits = |vector: &i64| {
            // Strides between directions and between rows of a step.
            let strides = [y.strides[0], y.strides[1]];
            vector * element <= 16
                && [8, 16].contains(&(vector * stored))
                && [8, 16].contains(&(vector * element))
                && (self.layer.output_size() / self.layer.outputs()) % vector == 0
                && access_bytes(y, &strides, &y.dims[..2], *vector) == vector * stored
        };
        [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1)
    }

    /// Biases, parameters and scales in shared memory order; compensations follow.
    fn vectors(&self) -> Vec<String> {
        let (op, elements) = (self.layer.op, &self.elements);
        let counts = [
            ("x_bias", if op.with.x_bias { op.cell.gates.len() } else { 0 }),
            ("r_bias", if op.with.r_bias { op.cell.recurrent_gates() } else { 0 }),
            ("parameters", op.cell.parameters.len()),
            ("r_scales", if self.is_quantised() { op.cell.recurrent_gates() } else { 0 }),
        ];
        let element = |slot: &str, at: usize| {
            let element = match slot {
                "x_bias" => elements.element(slot, "0", &elements.gate_column(at, "unit")),
                "r_bias" => elements.element(slot, "0", &Elements::vector_column(at, "unit")),
                "r_scales" => return elements.recurrent_scale(at),
                _ => elements.element(slot, &at.to_string(), "unit"),
            };
            format!("widen({element})")
        };
        let of_slot = |(slot, count)| (0..count).map(move |at| element(slot, at));
        counts.into_iter().flat_map(of_slot).collect()
    }

    /// Index of the first vector of a slot.
    fn first_vector(&self, slot: &str) -> usize {
        let op = self.layer.op;
        let x = if op.with.x_bias { op.cell.gates.len() } else { 0 };
        let r = if op.with.r_bias { op.cell.recurrent_gates() } else { 0 };
        match slot {
            "x_bias" => 0,
            "r_bias" => x,
            "parameters" => x + r,
            _ => x + r + op.cell.parameters.len(),
        }
    }

    /// Whether blocks exchange partial sums.
    fn is_reduced(&self) -> bool {
        self.schedule.exchange == Exchange::ReduceScatter
    }

    fn is_quantised(&self) -> bool {
        self.layer.quantization().is_some()
    }

    /// Values read at every step, with their biases.
    fn step_loads(&self) -> Vec<StepLoad> {
        let with_bias = self.layer.op.with.x_bias;
        let load = |StepInput { name, from, gate }| StepLoad {
            name,
            from,
            bias: gate.filter(|_| with_bias),
        };
        self.elements.step_inputs().into_iter().map(load).collect()
    }

    fn state(&self, at: usize, state: State) -> LayerState {
        let next = self.elements.next_state(at);
        let new = match at {
            _ if at < self.layer.op.cell.outputs() && !self.layer.op.cell.projected => {
                format!("round_to_stored(cell.{next})")
            }
            _ => format!("cell.{next}"),
        };
        LayerState { state, new }
    }

    fn cell_parameters(&self) -> Vec<Parameter> {
        let first = self.first_vector("parameters");
        let names = self.elements.cell.parameters().enumerate();
        names.map(|(at, name)| Parameter { name: name.to_owned(), vector: first + at }).collect()
    }

    fn stages(&self) -> Vec<StageVariables> {
        (0..self.layer.op.cell.stages.len()).map(|at| self.stage(at)).collect()
    }

    fn stage(&self, at: usize) -> StageVariables {
        let Writer { layer, schedule, elements, .. } = self;
        let (op, cell) = (layer.op, &layer.op.cell);
        let stage = &cell.stages[at];
        let mut gemms = schedule.gemms.iter().enumerate();
        let gemm = gemms.find(|(_, of)| of.shape.stage == Some(at));
        let [first_bias, first_scale] = ["r_bias", "r_scales"].map(|slot| self.first_vector(slot));
        let gates = stage.gemm.iter().flat_map(|of| 0..of.gates.len()).map(|gate| {
            let row = cell.first_gate(at) + gate;
            let scale = first_scale + row;
            Gate {
                name: elements.cell.recurrent(row).to_owned(),
                bias: op.with.r_bias.then_some(first_bias + row),
                scale: self.is_quantised().then_some(scale),
                compensation: layer.is_compensated().then_some(scale + cell.recurrent_gates()),
            }
        });
        StageVariables {
            gemm: gemm.map(|(at, placed)| self.gemm(at, placed)),
            gates: gates.collect(),
            layer_norms: elements.layer_norms(at),
            layer_norm_sizes: stage.statistics.iter().map(|of| of.of.len()).collect(),
            operand: self.stage_operand(at),
            last: at + 1 == cell.stages.len(),
        }
    }

    /// What a stage computes for the GEMM of the next one, or of the projection.
    fn stage_operand(&self, at: usize) -> Option<StageOperand> {
        let (cell, gemms) = (&self.layer.op.cell, &self.schedule.gemms);
        let (gemm, values) = match cell.stages.get(at + 1) {
            Some(next) => {
                let gemm = next.gemm.as_ref()?;
                let value = |operand: &String| {
                    let output = cell.output(at, operand).expect("the cell is valid");
                    self.elements.cell.result(at, output).to_owned()
                };
                let of_next = |of: &PlacedGemm| of.shape.stage == Some(at + 1);
                let own = gemms.iter().position(of_next).expect("the GEMM is of the cell");
                (own, gemm.operands.iter().map(value).collect())
            }
            None if cell.projected => {
                (gemms.len() - 1, vec![self.elements.next_state(0).to_owned()])
            }
            None => return None,
        };
        let computed = self.schedule.computed_operands(gemm);
        let which = computed + self.schedule.state_operands();
        Some(StageOperand { buffer: operand(computed), which, values })
    }

    fn gemm(&self, at: usize, placed: &PlacedGemm) -> Gemm {
        let weights = self.weights(at, placed);
        let mut operand = match placed.shape.is_of_state() {
            true => "h_prev".to_owned(),
            false => operand(self.schedule.computed_operands(at)),
        };
        if !self.is_reduced() {
            operand += &format!(" + coords.warp_k * {}::WARP_ELEMENTS", weights.name);
        }
        Gemm {
            variable: weights.name.to_lowercase(),
            weights,
            comment: self.comment(placed),
            operand,
            smem_offset: smem_weights_offset(at),
        }
    }

    fn weights(&self, at: usize, placed: &PlacedGemm) -> Weights {
        let PlacedGemm { shape, unit_groups, k_steps, register_steps, smem_steps, .. } = placed;
        let (slot, name, rows, cta_rows) = match shape.stage {
            Some(stage) => ("r", format!("Recurrent{stage}"), "HIDDEN_SIZE", "CTA_HIDDEN"),
            None => ("projection", "Projection".to_owned(), "OUTPUT_SIZE", "CTA_OUTPUT"),
        };
        let k = if shape.is_of_state() { "OUTPUT_SIZE" } else { "HIDDEN_SIZE" };
        let block = |of: &str| match shape.first_block {
            0 => of.to_owned(),
            first => format!("({first} + {of})"),
        };
        let [row, column] = match (shape.transposed, shape.operands) {
            (false, _) => [format!("{} * {rows} + unit", block("gate")), "k".to_owned()],
            (true, 1) if shape.first_block == 0 => ["k".to_owned(), "unit".to_owned()],
            (true, 1) => [format!("{} * HIDDEN_SIZE + k", shape.first_block), "unit".to_owned()],
            (true, _) => [format!("{} * HIDDEN_SIZE + of", block("n")), "unit".to_owned()],
        };
        let streamed = (placed.streamed_steps() > 0)
            .then(|| format!("t.streamed{at} + coords.weights_warp() * {name}::GMEM_FRAGS"));
        let units = format!("({name}::UNIT_GROUPS * 8)"); // of a warp
        let [first_unit, first_k] = match self.is_reduced() {
            true => [
                format!("threadIdx.x / WARP_SIZE * {units}"),
                "coords.rank * CTA_OUTPUT".to_owned(),
            ],
            false => [
                format!("coords.rank * {cta_rows} + coords.warp_n * {units}"),
                format!("coords.warp_k * {name}::K_PER_WARP"),
            ],
        };
        Weights {
            weights: format!(
                "{}, {unit_groups}, {k_steps}, {register_steps}, {smem_steps}",
                shape.gates
            ),
            outside: self.outside(placed, [rows, k]),
            first_unit,
            first_k,
            operands: shape.operands,
            weight: self.elements.element_of_first_row(slot, &row, &column),
            vectorised: self
                .schedule
                .mma()
                .then(|| !shape.transposed && self.is_vectorised(slot, shape.k)),
            row_stride: (self.schedule.mma() && shape.transposed && self.has_whole_vectors(slot))
                .then(|| stride(slot, "ROW")),
            streamed,
            name,
        }
    }

    /// C++ condition of units, and of elements along K, that a warp has and the GEMM, of `rows` by
    /// `k` (names of constants), does not.
    fn outside(&self, placed: &PlacedGemm, [rows, k]: [&str; 2]) -> Option<String> {
        let Settings { group_ctas, warps_k, warps_n, .. } = self.schedule.settings;
        let PlacedGemm { shape, unit_groups, k_steps, .. } = placed;
        let warp_units = unit_groups * 8;
        let warp_k = k_steps * 2 * self.schedule.path.fragment_k();
        let [units, all_k] = match self.is_reduced() {
            true => [warps_n * warps_k * warp_units, group_ctas * self.cta_output()],
            false => [group_ctas * warps_n * warp_units, warps_k * warp_k],
        };
        let mut outside = Vec::new();
        if units != shape.rows {
            outside.push(format!("unit >= {rows}"));
        }
        if self.is_reduced() && warp_k != self.cta_output() {
            outside.push("k_in_warp >= CTA_OUTPUT".to_owned());
        }
        if shape.operands > 1 {
            outside.push("of >= HIDDEN_SIZE".to_owned());
        } else if all_k != shape.k {
            outside.push(format!("k >= {k}"));
        }
        (!outside.is_empty()).then(|| outside.join(" || "))
    }

    /// Whether 16 bytes' worth of weights along K are of one block's units, and all there or none.
    fn has_whole_vectors(&self, slot: &str) -> bool {
        let Writer { layer, schedule, .. } = self;
        let tensor = layer.tensor(slot).expect("the slot is there");
        let vector = 16 / tensor.dtype.bytes() as i64;
        let of_cta = [schedule.cta_hidden, self.cta_output()];
        let mut extents = [layer.hidden_size(), layer.output_size()].into_iter().chain(of_cta);
        extents.all(|extent| extent % vector == 0)
    }

    /// Whether rows of the initial h can be read 16 bytes at a time, as they lie in shared memory.
    fn has_vector_h_initial(&self) -> bool {
        let Writer { layer, schedule, .. } = self;
        let in_order = layer.outputs() == 1 && !self.is_reduced();
        let tensor = layer.tensor("h_initial").filter(|of| of.dtype == layer.dtype());
        schedule.mma()
            && in_order
            && tensor.is_some()
            && self.is_vectorised("h_initial", layer.output_size())
    }

    /// Whether rows can be read 16 bytes at a time along K.
    fn is_vectorised(&self, slot: &str, k: i64) -> bool {
        let tensor = self.layer.tensor(slot).expect("the slot is there");
        let vector = 16 / tensor.dtype.bytes() as i64;
        let strides = [tensor.strides[0], tensor.strides[1]];
        k % vector == 0 && access_bytes(tensor, &strides, &tensor.dims[..2], vector) == 16
    }

    fn comment(&self, placed: &PlacedGemm) -> String {
        let cell = &self.layer.op.cell;
        match placed.shape.stage.and_then(|stage| cell.stages[stage].gemm.as_ref()) {
            Some(gemm) => {
                let [gates, operands] = [&gemm.gates, &gemm.operands].map(|of| of.join(", "));
                let transposed = if gemm.transposed { "transposed " } else { "" };
                format!("{gates} = {transposed}recurrent weights * {operands}")
            }
            None => format!("{} = projection * next_{0}", cell.states[0]),
        }
    }
}

/// Shared memory buffer of an operand that a stage computes, by index.
fn operand(computed: usize) -> String {
    format!("operand{}", computed + 1)
}

/// Name of the offset of the resident weights of a GEMM.
pub(super) fn smem_weights_offset(at: usize) -> String {
    format!("SMEM_WEIGHTS{at}_OFFSET")
}
