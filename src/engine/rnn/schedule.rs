//! Knobs and schedule of a recurrent layer: which warp holds which weights where.

use crate::dtype::DType;
use crate::engine::Knob;
use crate::engine::access::{REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::rnn::layer::{Layer, ProductShape};
use crate::engine::rnn::refusal::{Refusal, THREADS_MAX};
use crate::engine::tunable::settings;
use crate::graph::MatmulMath;
use crate::target::{Arch, Target};

/// How the blocks of a group exchange h between steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// One block owns all hidden units.
    None,
    /// Stores to distributed shared memory (`st.async`).
    Cluster,
    /// Writes to global memory and a counter.
    Counter,
    /// Words of data and sequence number in global memory (the LL protocol of NCCL).
    Data,
}

/// Step between values of the knob `registers`.
pub(super) const REGISTERS_STEP: i64 = 32;

/// What distinguishes the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Regime {
    pub(super) engine: &'static str,
    /// Exchanges, indexed by the knob.
    pub(super) exchanges: &'static [Exchange],
    /// Whether weights that do not fit on chip are streamed at every step.
    pub(super) streams: bool,
}

/// Hardware that executes the GEMMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// Tensor cores, 16-bit operands.
    Half,
    /// Tensor cores, tf32 operands.
    Tf32,
    /// FP32 cores.
    Lanes,
}

settings! {
    pub(super) struct Settings { batch_tile, blocks, columns, exchange, kept, parts, registers }
}

/// Everything derived from legal settings.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) settings: Settings,
    pub(super) exchange: Exchange,
    pub(super) units: Units,
    pub(super) threads: i64,
    /// Hidden units per block, a multiple of 8.
    pub(super) slice: i64,
    /// Hidden units of a group of blocks, or elements of the first state if those are more.
    pub(super) shared_width: i64,
    /// Groups of blocks, one per direction and batch tile.
    pub(super) teams: i64,
    pub(super) products: Vec<Placed>,
    /// Stride between batch rows in shared memory, in elements.
    pub(super) row_stride: i64,
    /// Bytes per element of the GEMM operands.
    pub(super) element_bytes: i64,
    /// Number of bias and parameter vectors, one element per hidden unit of the block.
    pub(super) vectors: i64,
    /// Estimated registers per thread.
    pub(super) registers: i64,
    /// Clocks per MMA of a tensor core ([`mma_clocks`]).
    pub(super) mma_clocks: f64,
    /// FP32 lanes per SM.
    pub(super) lanes: f64,
    pub(super) memory: Memory,
}

/// A GEMM's weights, distributed over the warps.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) shape: ProductShape,
    /// Groups of 8 hidden units per warp.
    pub(super) groups: i64,
    /// K steps per warp.
    pub(super) steps: i64,
    /// K steps with register-resident weights.
    pub(super) held: i64,
    /// K steps with shared-memory-resident weights; the weights of the rest are streamed at every
    /// step of the sequence.
    pub(super) kept: i64,
    /// Bytes of weights per K step and warp.
    pub(super) step_bytes: i64,
}

impl Placed {
    /// K steps with streamed weights.
    pub(super) fn streamed(&self) -> i64 {
        self.steps - self.held - self.kept
    }

    /// Registers per thread that hold weights.
    fn held_registers(&self) -> i64 {
        self.held * self.step_bytes / (32 * 4)
    }
}

/// Shared memory layout: offsets in bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    /// Operands of the GEMMs after the first.
    pub(super) operands: Vec<i64>,
    /// Resident weights of each GEMM.
    pub(super) kept: Vec<i64>,
    pub(super) partial: i64,
    pub(super) vectors: i64,
    pub(super) lengths: i64,
    /// Reductions along the hidden units of a block, and of all blocks of a cluster.
    pub(super) sums: i64,
    pub(super) joined: i64,
    pub(super) barriers: i64,
    pub(super) total: i64,
}

impl Units {
    /// K of one fragment.
    pub(super) fn fragment_depth(self) -> i64 {
        if self == Units::Tf32 { 8 } else { 16 }
    }

    /// The hardware for a layer: tensor cores where they support its type with the requested
    /// precision.
    pub(super) fn of(layer: &Layer<'_>, target: &Target) -> Units {
        match (layer.dtype(), layer.op.math) {
            _ if target.arch.capability < 80 => Units::Lanes,
            (DType::F16 | DType::Bf16, _) => Units::Half,
            (_, MatmulMath::Tf32) => Units::Tf32,
            _ => Units::Lanes,
        }
    }
}

impl Exchange {
    /// Name in templates.
    pub(super) fn name(self) -> &'static str {
        match self {
            Exchange::None => "none",
            Exchange::Cluster => "cluster",
            Exchange::Counter => "counter",
            Exchange::Data => "data",
        }
    }

    /// Whether it uses global memory and so requires co-resident blocks.
    pub(super) fn through_memory(self) -> bool {
        matches!(self, Exchange::Counter | Exchange::Data)
    }
}

impl Regime {
    /// The first of its exchanges, which are all of one kind.
    pub(super) fn exchange(self) -> Exchange {
        self.exchanges[0]
    }

    /// The knobs, sorted by name.
    pub(super) fn knobs(self) -> [Knob; 7] {
        let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
        let blocks: &[i64] = match self.exchange() {
            Exchange::None => &[1],
            Exchange::Cluster => &[2, 4, 8, 16],
            Exchange::Counter | Exchange::Data => &[2, 4, 8, 16, 32, 64, 96, 128],
        };
        let exchanges: Vec<i64> = (0..self.exchanges.len() as i64).collect();
        let kept: &[i64] = if self.streams { &[0, 50, 100] } else { &[100] };
        let registers = [0, 1, 2, 3, 4, 5].map(|steps| steps * REGISTERS_STEP);
        [
            knob("batch_tile", "batch rows of a CTA", &[8, 16, 32]),
            knob("blocks", "CTAs that share the units of a batch tile", blocks),
            knob("columns", "warps along the units", &[1, 2, 4, 8, 16]),
            knob(
                "exchange",
                "how CTAs exchange h: 0 counter or mbarrier, 1 LL words (data and flag)",
                &exchanges,
            ),
            knob(
                "kept",
                "percent of the other weights that are smem-resident; the rest is streamed",
                kept,
            ),
            knob("parts", "warps along K", &[1, 2, 4, 8]),
            knob("registers", "registers of a thread for register-resident weights", &registers),
        ]
    }
}

/// Clocks of an m16n8k16 MMA on one of the four tensor cores of an SM: 4,096 operations at the
/// dense rate with f32 accumulators of NVIDIA's white papers, of which `mma.sync` reaches five
/// eighths from Hopper on (Luo et al. 2024).
fn mma_clocks(arch: Arch) -> f64 {
    match arch.capability {
        ..86 => 8.0,
        90..120 => 6.4,
        // GeForce: 512 operations per SM and clock.
        _ => 32.0,
    }
}

impl Schedule {
    /// # Errors
    /// The limit of the device that the settings exceed.
    pub(super) fn new(
        layer: &Layer<'_>,
        target: &Target,
        regime: Regime,
        settings: Settings,
    ) -> Result<Schedule, Refusal> {
        let Settings { batch_tile, blocks, columns, exchange, kept, parts, registers } = settings;
        let exchange = regime.exchanges[exchange as usize];
        let threads = 32 * columns * parts;
        if threads > THREADS_MAX {
            return Err(Refusal::Threads { count: threads });
        }
        let teams = layer.op.direction.count() * ceil_div(layer.op.batch, batch_tile);
        let sm_count = i64::from(target.sm_count);
        if exchange.through_memory() && teams * blocks > sm_count {
            return Err(Refusal::Resident { count: teams * blocks, sm_count });
        }
        let cluster_max = i64::from(target.cluster_blocks_max());
        if exchange == Exchange::Cluster && blocks > cluster_max {
            return Err(Refusal::Cluster { blocks, max: cluster_max });
        }
        let units = Units::of(layer, target);
        let math_bytes = layer.op.math.dtype().bytes() as i64;
        let element_bytes =
            if units == Units::Lanes { math_bytes } else { layer.dtype().bytes() as i64 };
        let step_depth = 2 * units.fragment_depth();
        let fragment_registers = match units {
            Units::Lanes => 2 * math_bytes,
            _ => 4,
        };
        let slice_of = |units: i64| ceil_div(units, 8 * columns * blocks) * 8 * columns;
        let mut left = registers;
        let place = |shape: &ProductShape| {
            let groups = slice_of(shape.units) / (8 * columns);
            let steps = ceil_div(shape.depth, step_depth * parts);
            let step_registers = 2 * ceil_div(shape.gates * groups, 2) * fragment_registers;
            let held = (left / step_registers).min(steps);
            left -= held * step_registers;
            let step_bytes = step_registers * 32 * 4;
            let kept = (steps - held) * kept / 100;
            Placed { shape: shape.clone(), groups, steps, held, kept, step_bytes }
        };
        let products: Vec<Placed> = layer.products.iter().map(place).collect();
        let shared_width = blocks * slice_of(layer.op.units).max(slice_of(layer.size()));
        let padded = |placed: &Placed| placed.steps * step_depth * parts;
        let depth = products.iter().map(padded).max().unwrap_or(0).max(shared_width);
        let row_stride = ceil_div(depth, step_depth) * step_depth + 16 / element_bytes;
        let mut schedule = Schedule {
            mma_clocks: mma_clocks(target.arch),
            lanes: if target.arch.capability < 86 { 64.0 } else { 128.0 },
            settings,
            exchange,
            units,
            threads,
            slice: slice_of(layer.op.units),
            shared_width,
            teams,
            products,
            row_stride,
            element_bytes,
            vectors: vectors(layer),
            registers: 0,
            memory: Memory::default(),
        };
        schedule.registers = schedule.estimated_registers(layer);
        let available = (REGISTERS_SM / threads).min(REGISTERS_THREAD_MAX);
        if schedule.registers > available {
            return Err(Refusal::Registers { needed: schedule.registers, available });
        }
        let available = i64::from(target.shared_block_bytes_max);
        schedule.memory = schedule.lay_out(layer, math_bytes);
        if regime.streams && schedule.memory.total > available {
            schedule.stream(schedule.memory.total - available);
            schedule.memory = schedule.lay_out(layer, math_bytes);
        }
        if schedule.memory.total > available {
            return Err(Refusal::SharedBytes { needed: schedule.memory.total, available });
        }
        Ok(schedule)
    }

    /// Selects another exchange of the regime; nothing else depends on it.
    pub(super) fn set_exchange(&mut self, regime: Regime, at: i64) {
        self.settings.exchange = at;
        self.exchange = regime.exchanges[at as usize];
    }

    /// Whether settings with smaller values give the same schedule: fewer registers hold as many
    /// weights, or there is nothing to stream.
    pub(super) fn is_repeated(&self, regime: Regime) -> bool {
        let Settings { registers, kept, .. } = self.settings;
        let held: i64 = self.products.iter().map(Placed::held_registers).sum();
        let shares = regime.streams && kept > 0;
        registers > 0 && held <= registers - REGISTERS_STEP
            || shares && self.products.iter().all(|of| of.held == of.steps)
    }

    /// Streams this many bytes of the weights in shared memory, the last ones first.
    fn stream(&mut self, bytes: i64) {
        let warps = self.threads / 32;
        let mut left = bytes;
        for placed in self.products.iter_mut().rev() {
            let step = warps * placed.step_bytes;
            let given = ceil_div(left.max(0), step).min(placed.kept);
            placed.kept -= given;
            left -= given * step;
        }
    }

    /// Number of exchanged operands: the first state, double-buffered, and those that stages
    /// compute.
    pub(super) fn operands(&self) -> i64 {
        2 + self.made_operands(self.products.len()) as i64
    }

    /// How many of the first `products` GEMMs read a result of a stage.
    pub(super) fn made_operands(&self, products: usize) -> usize {
        self.products[..products].iter().filter(|of| !of.shape.is_of_state()).count()
    }

    /// Barriers per block of a cluster: one per operand, and two for layer-norm statistics.
    pub(super) fn barriers(&self, layer: &Layer<'_>) -> i64 {
        self.operands() + if layer.moments() > 0 { 2 } else { 0 }
    }

    /// Number of 8-row groups of the batch tile.
    pub(super) fn batch_squares(&self) -> i64 {
        self.settings.batch_tile / 8
    }

    /// Groups of 8 hidden units per warp.
    pub(super) fn groups(&self) -> i64 {
        self.slice / 8 / self.settings.columns
    }

    /// 8x8 subtiles of hidden units and batch rows whose cells each warp computes.
    pub(super) fn cells(&self, groups: i64) -> i64 {
        ceil_div(groups * self.batch_squares(), self.settings.parts)
    }

    /// Elements of one operand in shared memory.
    pub(super) fn buffer_elements(&self) -> i64 {
        self.settings.batch_tile * self.row_stride
    }

    /// Bytes per warp in which register-resident weights are staged.
    pub(super) fn staged_bytes(&self) -> i64 {
        let held = self.products.iter().filter(|of| of.held > 0);
        held.map(|of| of.step_bytes).max().unwrap_or(0)
    }

    fn estimated_registers(&self, layer: &Layer<'_>) -> i64 {
        let words = layer.op.math.dtype().bytes() as i64 / 4;
        let step = |placed: &Placed| ceil_div(placed.shape.gates * placed.groups, 2);
        let fragment = if self.units == Units::Lanes { 8 * words } else { 4 };
        let held: i64 = self.products.iter().map(|of| of.held * 2 * step(of) * fragment).sum();
        // A lane has 4 of 16 x 8 accumulators, and the words of an operand; without tensor cores
        // a quarter of the K of 16 accumulators first, and the weights of half a K step.
        let squares = self.batch_squares();
        let product = |of: &Placed| match self.units {
            Units::Lanes => (step(of) * squares * 18 + step(of) * 8 + 8) * words,
            // Weights in shared memory are loaded some K steps at once.
            _ => {
                step(of) * squares * 4
                    + squares * 4
                    + i64::from(of.held < of.steps) * (8 * step(of)).max(32)
            }
        };
        let product = self.products.iter().map(product).max().unwrap_or(0);
        let cell = &layer.op.cell;
        let given = cell.gates.len() + cell.row_inputs.len() + cell.unit_inputs.len() + 1;
        let values = 2 * (given + cell.states.len()) as i64 * words;
        let addresses = if self.units == Units::Lanes { 96 } else { 56 };
        // Layer-norm statistics need all accumulators at once.
        let moments = match layer.moments() {
            0 => 0,
            count => {
                let sums = self.cells(self.groups()) * 2 * cell.recurrent_gates() as i64;
                (4 * count * squares + sums) * words
            }
        };
        held + product + self.cells(self.groups()) * values + moments + addresses
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
        let made = self.made_operands(self.products.len());
        let operands = (0..made).map(|_| take(buffer)).collect();
        let warps = self.threads / 32;
        // Weights on their way to registers reuse the memory of operands.
        let operands_end = take(0);
        take((warps * self.staged_bytes() - operands_end).max(0));
        let kept = self.products.iter().map(|of| take(warps * of.kept * of.step_bytes)).collect();
        let tiles = |of: &Placed| ceil_div(of.shape.gates * of.groups, 2);
        let tiles = self.products.iter().map(tiles).max().unwrap_or(0);
        let partial = match self.settings.parts {
            1 => 0,
            _ => take(warps * tiles * self.batch_squares() * 128 * math_bytes),
        };
        let vectors = take(self.vectors * self.slice * math_bytes);
        let lengths = match layer.op.with.lengths {
            true => take(ceil_div(layer.op.batch, 32) * 32 * 4),
            false => 0,
        };
        let cluster = self.exchange == Exchange::Cluster;
        let moments = layer.moments() * self.settings.batch_tile * math_bytes;
        let sums = take(2 * warps * moments);
        let joined = take(if cluster { 4 * self.settings.blocks * moments } else { 0 });
        let barriers = take(if cluster { 8 * self.barriers(layer) } else { 0 });
        Memory { operands, kept, partial, vectors, lengths, sums, joined, barriers, total: at }
    }
}

/// Number of vectors of a layer with one value per hidden unit.
fn vectors(layer: &Layer<'_>) -> i64 {
    let (op, cell) = (layer.op, &layer.op.cell);
    let x = if op.with.x_bias { cell.gates.len() } else { 0 };
    let r = if op.with.r_bias { cell.recurrent_gates() } else { 0 };
    (x + r + cell.parameters.len()) as i64
}
