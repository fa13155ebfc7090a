//! Knobs and schedule of a recurrent layer: which warp holds which weights where.

use crate::dtype::DType;
use crate::engine::access::{REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::instruction::AMPERE;
use crate::engine::rnn::layer::{GemmShape, Layer};
use crate::engine::rnn::refusal::{Refusal, THREADS_MAX};
use crate::engine::rnn::variant::{Exchange, REGISTERS_STEP, Variant};
use crate::engine::tunable::settings;
use crate::graph::MatmulMath;
use crate::target::{Arch, Target};

/// MMAs that a tensor core needs in flight: one takes as long as it issues four.
const MMAS_IN_FLIGHT: i64 = 4;

/// Accesses of 16 bytes that a thread has in flight when it receives an operand through memory, in
/// 32 registers.
pub(super) const LOADS_MAX: i64 = 8;

/// Registers of a thread that hold biases and other vectors of its units; more stay in shared
/// memory.
const LANE_VECTORS_MAX: i64 = 16;

/// Steps whose words have memory of their own: half of them are cleared at once.
pub(super) const SLOTS: i64 = 32;

/// The arithmetic that runs the GEMMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MathPath {
    /// Tensor cores, 8-bit integers.
    MmaI8,
    /// Tensor cores, 16-bit operands.
    Mma16,
    /// Tensor cores, tf32 operands.
    MmaTf32,
    /// FMA in the math type.
    Simt,
}

settings! {
    pub(super) struct Settings {
        batch_tile,
        exchange,
        group_ctas,
        smem_percent,
        warps_k,
        warps_n,
        weight_registers,
    }
}

/// Everything derived from legal settings.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) settings: Settings,
    pub(super) exchange: Exchange,
    pub(super) path: MathPath,
    pub(super) threads: i64,
    /// Hidden units of a CTA, a multiple of 8.
    pub(super) cta_hidden: i64,
    /// Hidden units of a group of CTAs, or elements of h where a projection makes those more; of
    /// one CTA where it exchanges partial sums.
    pub(super) exchange_width: i64,
    /// Groups of CTAs, one per direction and batch tile.
    pub(super) cta_groups: i64,
    pub(super) gemms: Vec<PlacedGemm>,
    /// Whether a warp has the cells of half a subtile, and a lane one: where warps along K are
    /// twice as many as subtiles.
    pub(super) half_subtiles: bool,
    /// Whether weights may be streamed: registers are for those then.
    pub(super) streams: bool,
    /// Elements of a batch row of an operand in shared memory.
    pub(super) row_elements: i64,
    /// Bytes per element of the GEMM operands.
    pub(super) element_bytes: i64,
    /// Number of bias and parameter vectors, one element per hidden unit of the CTA.
    pub(super) vectors: i64,
    /// Whether a thread has those of its units in registers.
    pub(super) lane_vectors: bool,
    /// Estimated registers per thread.
    pub(super) registers: i64,
    /// Clocks per MMA of a tensor core ([`mma_clocks`]).
    pub(super) mma_clocks: f64,
    /// FP32 lanes of an SM.
    pub(super) f32_lanes: f64,
    pub(super) memory: Memory,
}

/// A GEMM's weights, distributed over the warps.
#[derive(Debug, Clone)]
pub(super) struct PlacedGemm {
    pub(super) shape: GemmShape,
    /// Groups of 8 hidden units of a warp.
    pub(super) unit_groups: i64,
    /// K steps of a warp.
    pub(super) k_steps: i64,
    /// K steps with register-resident weights.
    pub(super) register_steps: i64,
    /// K steps with shared-memory-resident weights; the weights of the rest are streamed at every
    /// time step.
    pub(super) smem_steps: i64,
    /// Bytes of a warp's weights in one K step.
    pub(super) step_bytes: i64,
}

impl PlacedGemm {
    /// K steps with streamed weights.
    pub(super) fn streamed_steps(&self) -> i64 {
        self.k_steps - self.register_steps - self.smem_steps
    }

    /// Registers of a thread that hold weights.
    fn weight_registers(&self) -> i64 {
        self.register_steps * self.step_bytes / (32 * 4)
    }
}

/// Shared memory layout: offsets in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Operands of the GEMMs after the first.
    pub(super) operands: Vec<i64>,
    /// Resident weights of each GEMM.
    pub(super) weights: Vec<i64>,
    /// Partial accumulators of warps along K, or of other CTAs.
    pub(super) partials: i64,
    pub(super) vectors: i64,
    pub(super) lengths: i64,
    /// Row sums of each warp, and layer-norm statistics of each CTA of a cluster.
    pub(super) row_sums: i64,
    pub(super) cta_stats: i64,
    pub(super) barriers: i64,
    pub(super) total: i64,
}

impl MathPath {
    /// K of an MMA.
    pub(super) fn fragment_k(self) -> i64 {
        match self {
            MathPath::MmaI8 => 32,
            MathPath::MmaTf32 => 8,
            MathPath::Mma16 | MathPath::Simt => 16,
        }
    }

    /// Tensor cores where they support the layer's type with the requested precision.
    pub(super) fn of(layer: &Layer<'_>, target: &Target) -> MathPath {
        match (layer.dtype(), layer.op.math) {
            _ if layer.quantization().is_some() => MathPath::MmaI8,
            (DType::F16, _) => MathPath::Mma16,
            _ if target.arch.capability < AMPERE => MathPath::Simt,
            (DType::Bf16, _) => MathPath::Mma16,
            (_, MatmulMath::Tf32) => MathPath::MmaTf32,
            _ => MathPath::Simt,
        }
    }
}

/// Clocks of an MMA of 16 x 8 and 32 bytes of K on one of the four tensor cores of an SM: 4,096
/// operations of 16 bits at the dense rate with f32 accumulators of NVIDIA's white papers, of which
/// `mma.sync` reaches five eighths from Hopper on (Luo et al. 2024); 8,192 of 8 bits.
fn mma_clocks(arch: Arch, path: MathPath) -> f64 {
    match (arch.capability, path) {
        (..80, _) => 16.0,
        (80..86, _) => 8.0,
        (90..120, _) => 6.4,
        // GeForce: 512 operations of 16 bits per SM and clock, 2,048 of 8.
        (_, MathPath::MmaI8) => 16.0,
        _ => 32.0,
    }
}

impl Schedule {
    /// # Errors
    /// The limit of the device that the settings exceed.
    pub(super) fn new(
        layer: &Layer<'_>,
        target: &Target,
        variant: Variant,
        settings: Settings,
    ) -> Result<Schedule, Refusal> {
        let Settings {
            batch_tile,
            exchange,
            group_ctas,
            smem_percent,
            warps_k,
            warps_n,
            weight_registers,
        } = settings;
        let exchange = variant.exchanges[exchange as usize];
        let threads = 32 * warps_n * warps_k;
        if threads > THREADS_MAX {
            return Err(Refusal::Threads { count: threads });
        }
        let cta_groups = layer.op.direction.count() * ceil_div(layer.op.batch, batch_tile);
        let sm_count = i64::from(target.sm_count);
        if exchange.through_memory() && cta_groups * group_ctas > sm_count {
            return Err(Refusal::Resident { count: cta_groups * group_ctas, sm_count });
        }
        let cluster_max = i64::from(target.cluster_blocks_max());
        if exchange.in_cluster() && group_ctas > cluster_max {
            return Err(Refusal::Cluster { blocks: group_ctas, max: cluster_max });
        }
        let path = MathPath::of(layer, target);
        let reduces = exchange == Exchange::ReduceScatter;
        if reduces && (!layer.is_reducible() || path == MathPath::Simt) {
            return Err(Refusal::PartialSums);
        }
        let math_bytes = layer.op.math.dtype().bytes() as i64;
        let element_bytes =
            if path == MathPath::Simt { math_bytes } else { layer.dtype().bytes() as i64 };
        let k_step = 2 * path.fragment_k();
        let fragment_registers = match path {
            MathPath::Simt => 2 * math_bytes,
            _ => 4,
        };
        // What a CTA has of so many rows of weights per gate: whole groups of 8 for each warp, and
        // 16 bytes of h.
        let granule = (8 * warps_n).max(16 / element_bytes);
        let cta_rows = |rows: i64| ceil_div(rows, granule * group_ctas) * granule;
        // Partial sums are of all units, and of the block's part of K.
        let (k_warps, shared_ctas) = if reduces { (1, 1) } else { (warps_k, group_ctas) };
        let mut left = weight_registers;
        let place = |shape: &GemmShape| {
            let own = cta_rows(shape.rows);
            // Blocks have their units of all vectors of an operand side by side.
            let (unit_groups, k) = match shape.operands {
                count if reduces => {
                    (ceil_div(group_ctas * own, 8 * warps_n * warps_k), count * own)
                }
                1 => (own / (8 * warps_n), shape.k),
                count => (own / (8 * warps_n), count * group_ctas * cta_rows(layer.hidden_size())),
            };
            let k_steps = ceil_div(k, k_step * k_warps);
            let step_registers = 2 * ceil_div(shape.gates * unit_groups, 2) * fragment_registers;
            let register_steps = (left / step_registers).min(k_steps);
            left -= register_steps * step_registers;
            let step_bytes = step_registers * 32 * 4;
            let smem_steps = (k_steps - register_steps) * smem_percent / 100;
            let shape = shape.clone();
            PlacedGemm { shape, unit_groups, k_steps, register_steps, smem_steps, step_bytes }
        };
        let gemms: Vec<PlacedGemm> = layer.gemms.iter().map(place).collect();
        let operands = gemms.iter().map(|of| of.shape.operands).max().unwrap_or(1);
        let columns = match layer.op.cell.projected {
            true => cta_rows(layer.units()),
            false => cta_rows(layer.hidden_size()) * operands,
        };
        let exchange_width = shared_ctas * columns;
        let padded_k = |placed: &PlacedGemm| placed.k_steps * k_step * k_warps;
        let row_elements = gemms.iter().map(padded_k).max().unwrap_or(0).max(exchange_width);
        let row_elements = ceil_div(row_elements, k_step) * k_step;
        let mut schedule = Schedule {
            mma_clocks: mma_clocks(target.arch, path),
            f32_lanes: if target.arch.capability < 86 { 64.0 } else { 128.0 },
            settings,
            exchange,
            path,
            threads,
            cta_hidden: cta_rows(layer.hidden_size()),
            exchange_width,
            cta_groups,
            gemms,
            half_subtiles: false,
            streams: variant.streams,
            row_elements,
            element_bytes,
            vectors: vectors(layer),
            lane_vectors: false,
            registers: 0,
            memory: Memory::default(),
        };
        schedule.half_subtiles = !reduces
            && !layer.op.cell.projected
            && layer.layer_norms_max() == 0
            && 2 * schedule.unit_groups() * schedule.batch_subtiles() <= warps_k;
        // Chunks of a thread are at constant offsets where the rows of all take the same turns.
        let offset = threads / 8 * schedule.chunk(layer, exchange);
        if exchange == Exchange::Words && offset % (4 * 16 / element_bytes) != 0 {
            return Err(Refusal::Words { threads });
        }
        schedule.registers = schedule.estimated_registers(layer);
        let available = (REGISTERS_SM / threads).min(REGISTERS_THREAD_MAX);
        if schedule.registers > available {
            return Err(Refusal::Registers { needed: schedule.registers, available });
        }
        // Where weights leave room for them; streamed ones need it for loads.
        let lane_vectors = schedule.lane_vectors(layer);
        let most = LANE_VECTORS_MAX.min(available - schedule.registers);
        schedule.lane_vectors = !variant.streams && lane_vectors <= most;
        let available = i64::from(target.shared_block_bytes_max);
        schedule.memory = schedule.lay_out(layer, math_bytes);
        if variant.streams && schedule.memory.total > available {
            schedule.stream(schedule.memory.total - available);
            schedule.memory = schedule.lay_out(layer, math_bytes);
        }
        if schedule.memory.total > available {
            return Err(Refusal::SharedBytes { needed: schedule.memory.total, available });
        }
        Ok(schedule)
    }

    /// Whether settings with smaller values give the same schedule: fewer registers hold as many
    /// weights, or there is nothing to stream.
    pub(super) fn is_repeated(&self, variant: Variant) -> bool {
        let Settings { weight_registers, smem_percent, .. } = self.settings;
        let used: i64 = self.gemms.iter().map(PlacedGemm::weight_registers).sum();
        let shares = variant.streams && smem_percent > 0;
        weight_registers > 0 && used <= weight_registers - REGISTERS_STEP
            || shares && self.gemms.iter().all(|of| of.register_steps == of.k_steps)
    }

    /// Streams this many bytes of the shared-memory-resident weights, the last ones first.
    fn stream(&mut self, bytes: i64) {
        let warps = self.threads / 32;
        let mut left = bytes;
        for placed in self.gemms.iter_mut().rev() {
            let step = warps * placed.step_bytes;
            let streamed = ceil_div(left.max(0), step).min(placed.smem_steps);
            placed.smem_steps -= streamed;
            left -= streamed * step;
        }
    }

    /// Number of exchanged operands: h, and those that stages compute.
    pub(super) fn operands(&self) -> i64 {
        (self.state_operands() + self.computed_operands(self.gemms.len())) as i64
    }

    /// How many of the exchanged operands are h: words have slots, others two buffers.
    pub(super) fn state_operands(&self) -> usize {
        if self.exchange == Exchange::Words { 1 } else { 2 }
    }

    /// Bytes of an element of h in words: 8 bits are exchanged as 16.
    pub(super) fn word_element_bytes(layer: &Layer<'_>) -> i64 {
        (layer.dtype().bytes() as i64).max(2)
    }

    /// Elements of h in an access of an exchange through memory, of 16 bytes at most there and in
    /// shared memory.
    pub(super) fn chunk(&self, layer: &Layer<'_>, exchange: Exchange) -> i64 {
        let bytes = match exchange {
            Exchange::Words => Schedule::word_element_bytes(layer),
            _ => layer.dtype().bytes() as i64,
        };
        16 / bytes.max(self.element_bytes)
    }

    /// Words of 8 bytes of an operand of a step.
    pub(super) fn slot_words(&self, layer: &Layer<'_>) -> i64 {
        let elements = self.settings.batch_tile * self.exchange_width;
        elements * Schedule::word_element_bytes(layer) / 8
    }

    /// How many of the first GEMMs read a result of a stage.
    pub(super) fn computed_operands(&self, gemms: usize) -> usize {
        self.gemms[..gemms].iter().filter(|of| !of.shape.is_of_state()).count()
    }

    /// Barriers of a CTA of a cluster: one per operand, and two for layer-norm statistics.
    pub(super) fn barriers(&self, layer: &Layer<'_>) -> i64 {
        self.operands() + if layer.layer_norms_max() > 0 { 2 } else { 0 }
    }

    /// Groups of 8 rows of the batch tile.
    pub(super) fn batch_subtiles(&self) -> i64 {
        self.settings.batch_tile / 8
    }

    /// Groups of 8 hidden units of a warp.
    pub(super) fn unit_groups(&self) -> i64 {
        self.cta_hidden / 8 / self.settings.warps_n
    }

    /// Cells of a lane: two of each subtile of its warp.
    pub(super) fn lane_cells(&self) -> i64 {
        let subtiles = self.warp_subtiles(self.unit_groups());
        if self.half_subtiles { subtiles } else { 2 * subtiles }
    }

    /// 8x8 subtiles of hidden units and batch rows whose cells each warp computes.
    pub(super) fn warp_subtiles(&self, unit_groups: i64) -> i64 {
        ceil_div(unit_groups * self.batch_subtiles(), self.settings.warps_k)
    }

    /// Elements of one operand in shared memory.
    pub(super) fn buffer_elements(&self) -> i64 {
        self.settings.batch_tile * self.row_elements
    }

    /// Bytes of the partial sums of a block for the units of another.
    pub(super) fn partials_bytes(&self, math_bytes: i64) -> i64 {
        self.cta_hidden * self.settings.batch_tile * math_bytes
    }

    /// Bytes of the partial sums of warps along K, of one GEMM.
    pub(super) fn warp_partials_bytes(&self, math_bytes: i64) -> i64 {
        let tiles = self.gemms.iter().map(Schedule::tiles).max().unwrap_or(0);
        match self.settings.warps_k {
            1 => 0,
            _ => self.threads / 32 * tiles * self.batch_subtiles() * 128 * math_bytes,
        }
    }

    /// Selects another exchange through memory; nothing else depends on it.
    pub(super) fn set_exchange(&mut self, variant: Variant, at: i64) {
        self.settings.exchange = at;
        self.exchange = variant.exchanges[at as usize];
    }

    /// Whether tensor cores run the GEMMs.
    pub(super) fn mma(&self) -> bool {
        self.path != MathPath::Simt
    }

    /// Bytes of a warp in which register-resident weights are staged, without tensor cores.
    pub(super) fn staging_bytes(&self) -> i64 {
        if self.mma() {
            return 0;
        }
        let resident = self.gemms.iter().filter(|of| of.register_steps > 0);
        resident.map(|of| of.step_bytes).max().unwrap_or(0)
    }

    /// Loads by which a thread receives an operand through memory.
    fn loads(&self, layer: &Layer<'_>, exchange: Exchange) -> i64 {
        let row_chunks = self.exchange_width / self.chunk(layer, exchange);
        self.batch_subtiles() * ceil_div(row_chunks, self.threads / 8)
    }

    /// How many times a thread waits for such loads, of which [`LOADS_MAX`] are in flight at once.
    pub(super) fn passes(&self, layer: &Layer<'_>, exchange: Exchange) -> i64 {
        ceil_div(self.loads(layer, exchange), LOADS_MAX)
    }

    /// Registers of a thread for the vectors of its units.
    fn lane_vectors(&self, layer: &Layer<'_>) -> i64 {
        let words = layer.op.math.dtype().bytes() as i64 / 4;
        self.warp_subtiles(self.unit_groups()) * self.vectors * words
    }

    /// Tiles of 16 weight rows of a warp.
    fn tiles(of: &PlacedGemm) -> i64 {
        ceil_div(of.shape.gates * of.unit_groups, 2)
    }

    /// Accumulators that the halves of K steps take turns with: an MMA waits for the one before on
    /// its accumulator, and a narrow tile has too few to hide that.
    pub(super) fn chains(&self) -> i64 {
        let narrowest = self.gemms.iter().map(Schedule::tiles).min().unwrap_or(MMAS_IN_FLIGHT);
        if narrowest * self.batch_subtiles() < MMAS_IN_FLIGHT { 2 } else { 1 }
    }

    fn estimated_registers(&self, layer: &Layer<'_>) -> i64 {
        let words = layer.op.math.dtype().bytes() as i64 / 4;
        let tiles = Schedule::tiles;
        let fragment = if self.path == MathPath::Simt { 8 * words } else { 4 };
        let weights = self.gemms.iter().map(|of| of.register_steps * 2 * tiles(of) * fragment);
        let weights: i64 = weights.sum();
        // A lane has 4 of 16 x 8 accumulators, and the words of an operand; without tensor cores
        // a quarter of the K of 16 accumulators first, and the weights of half a K step.
        let subtiles = self.batch_subtiles();
        let gemm = |of: &PlacedGemm| match self.path {
            MathPath::Simt => (tiles(of) * subtiles * 18 + tiles(of) * 8 + 8) * words,
            // Weights in shared memory are loaded some K steps at once.
            _ => {
                self.chains() * tiles(of) * subtiles * 4
                    + subtiles * 4
                    + i64::from(of.register_steps < of.k_steps) * (8 * tiles(of)).max(32)
            }
        };
        let gemm = self.gemms.iter().map(gemm).max().unwrap_or(0);
        // They are free again when operands arrive.
        let received = match self.exchange.through_memory() {
            true => 4 * self.loads(layer, self.exchange).min(LOADS_MAX),
            false => 0,
        };
        let cell = &layer.op.cell;
        let inputs = cell.gates.len() + cell.row_inputs.len() + cell.unit_inputs.len() + 1;
        let values = (inputs + cell.states.len()) as i64 * words;
        let addresses = if self.path == MathPath::Simt { 96 } else { 56 };
        let cells = self.warp_subtiles(self.unit_groups());
        // Layer-norm statistics need all accumulators at once.
        let layer_norms = match layer.layer_norms_max() {
            0 => 0,
            count => (4 * count * subtiles + cells * 2 * cell.recurrent_gates() as i64) * words,
        };
        weights + gemm.max(received) + self.lane_cells() * values + layer_norms + addresses
    }

    fn lay_out(&self, layer: &Layer<'_>, math_bytes: i64) -> Memory {
        let mut at = 0;
        let mut take = |bytes: i64| {
            let first = at;
            at += ceil_div(bytes, 128) * 128;
            first
        };
        let buffer = self.buffer_elements() * self.element_bytes;
        take(2 * buffer);
        let computed = self.computed_operands(self.gemms.len());
        let operands = (0..computed).map(|_| take(buffer)).collect();
        let warps = self.threads / 32;
        // Weights on their way to registers reuse the memory of operands.
        let operands_end = take(0);
        take((warps * self.staging_bytes() - operands_end).max(0));
        let resident = self.gemms.iter().map(|of| warps * of.smem_steps * of.step_bytes);
        let weights = resident.map(&mut take).collect();
        let partials = match self.exchange {
            // Those of two steps, for the units of this block and from every block.
            Exchange::ReduceScatter => {
                take(2 * self.settings.group_ctas * self.partials_bytes(math_bytes))
            }
            _ => take(self.warp_partials_bytes(math_bytes)),
        };
        let vectors = take(self.vectors * self.cta_hidden * math_bytes);
        let lengths = match layer.op.with.lengths {
            true => take(ceil_div(layer.op.batch, 32) * 32 * 4),
            false => 0,
        };
        let cluster = self.exchange.in_cluster();
        let row_bytes = layer.layer_norms_max() * self.settings.batch_tile * math_bytes;
        let row_sums = take(2 * warps * row_bytes);
        let cta_stats = take(if cluster { 4 * self.settings.group_ctas * row_bytes } else { 0 });
        let barriers = take(if cluster { 8 * self.barriers(layer) } else { 0 });
        Memory {
            operands,
            weights,
            partials,
            vectors,
            lengths,
            row_sums,
            cta_stats,
            barriers,
            total: at,
        }
    }
}

/// Number of vectors of a layer with one value per hidden unit: biases, parameters, and what
/// quantised weights need.
fn vectors(layer: &Layer<'_>) -> i64 {
    let (op, cell) = (layer.op, &layer.op.cell);
    let x = if op.with.x_bias { cell.gates.len() } else { 0 };
    let r = if op.with.r_bias { cell.recurrent_gates() } else { 0 };
    let compensations = if layer.is_compensated() { cell.recurrent_gates() } else { 0 };
    let scales = if layer.quantization().is_some() { cell.recurrent_gates() } else { 0 };
    (x + r + cell.parameters.len() + scales + compensations) as i64
}
