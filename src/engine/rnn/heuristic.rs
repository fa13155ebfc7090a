//! The best settings of a recurrent layer, and why.

use crate::engine::access::{REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::refusal::Refusal;
use crate::engine::rnn::schedule::{Schedule, Settings};
use crate::engine::rnn::variant::{REGISTERS_STEP, Variant};
use crate::engine::rnn::work::{exchange_bytes, exchange_clocks, step_clocks};
use crate::target::Target;

/// Maximum warps along the hidden units, and minimum warps of a block.
const WARPS_N_MAX: i64 = 16;
const WARPS_MIN: i64 = 4;

/// Maximum registers of a thread that hold weights.
const WEIGHT_REGISTERS_MAX: i64 = 160;

/// The same without tensor cores, where weights fit on chip with so many: 96 would shorten steps by
/// up to 3 %, and take a quarter longer to compile, as each FMA with them is an instruction.
const WEIGHT_REGISTERS_SIMT: i64 = 64;

/// The best settings, and what decided them.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) settings: Settings,
    blocks: i64,
    sm_count: i64,
    exchange_bytes: i64,
    /// Bytes of a block's weights in shared memory, and of those that are streamed.
    smem_bytes: i64,
    streamed_bytes: i64,
    /// Predicted clocks per step.
    pub(super) clocks: f64,
}

impl Decision {
    /// The legal settings with the shortest predicted step.
    ///
    /// # Errors
    /// The refusal of the last candidate where none is legal.
    pub(super) fn of(
        layer: &Layer<'_>,
        target: &Target,
        variant: Variant,
    ) -> Result<Decision, Refusal> {
        let mut refusal = Refusal::HiddenUnits;
        let mut best: Option<Decision> = None;
        let [tiles, _, group_ctas, ..] = variant.knobs();
        for tile in tiles.values {
            // Each block owns at least 8 hidden units.
            let shared = |ctas: &&i64| **ctas == 1 || ceil_div(layer.units(), **ctas) >= 8;
            for ctas in group_ctas.values.iter().take_while(shared) {
                match settings(layer, target, variant, [tile, *ctas]) {
                    Ok(schedule) => {
                        let decision = Decision::with(layer, &schedule, target);
                        if best.as_ref().is_none_or(|best| decision.clocks < best.clocks) {
                            best = Some(decision);
                        }
                    }
                    Err(error) => refusal = error,
                }
            }
            if tile >= layer.op.batch {
                break;
            }
        }
        best.ok_or(refusal)
    }

    fn with(layer: &Layer<'_>, schedule: &Schedule, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let group_ctas = schedule.settings.group_ctas;
        let blocks = schedule.cta_groups * group_ctas;
        let warps = schedule.threads / 32;
        let gemms = schedule.gemms.iter();
        let smem_bytes = gemms.clone().map(|of| of.smem_steps * of.step_bytes * warps).sum();
        let streamed_bytes = gemms.map(|of| of.streamed_steps() * of.step_bytes * warps).sum();
        // Each of up to eight GPCs of 16 or 18 SMs holds one cluster of 16: an H200 runs eight, a
        // step of which takes 1.35 times one of four. Of 16 clusters of 8 whose blocks fill an SM
        // steps took 2.1 times what they should.
        let gpcs = (sm_count / 16).min(8);
        let fills = 2 * schedule.threads * schedule.registers > REGISTERS_SM;
        let resident = match (schedule.exchange.in_cluster(), group_ctas) {
            (true, 16) => gpcs * 16,
            (true, 8) if fills => gpcs * 16 - 8,
            _ => sm_count,
        };
        let waves = match resident {
            0 => f64::INFINITY,
            _ => ceil_div(blocks, resident) as f64,
        };
        let clocks = waves * step_clocks(layer, schedule);
        let exchange_bytes = exchange_bytes(layer, schedule, schedule.exchange);
        let settings = schedule.settings;
        Decision { settings, blocks, sm_count, exchange_bytes, smem_bytes, streamed_bytes, clocks }
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { blocks, sm_count, exchange_bytes, smem_bytes, .. } = self;
        let Decision { streamed_bytes, clocks, .. } = self;
        let Settings {
            batch_tile,
            exchange,
            group_ctas,
            smem_percent,
            warps_k,
            warps_n,
            weight_registers,
        } = self.settings;
        vec![
            format!("batch_tile={batch_tile}: {blocks} blocks for {sm_count} SMs"),
            format!("exchange={exchange}: the fastest for {exchange_bytes} bytes per exchange"),
            format!("group_ctas={group_ctas}: the fastest step, about {clocks:.0} clocks"),
            format!("smem_percent={smem_percent}: as many weights on chip as fit"),
            format!(
                "warps_k={warps_k}: at least {WARPS_MIN} warps to hide latency, more for more \
                 registers, or for all words of an exchange in flight"
            ),
            format!("warps_n={warps_n}: a warp per 8 hidden units, up to {WARPS_N_MAX}"),
            format!(
                "weight_registers={weight_registers}: of a block's other weights {smem_bytes} \
                 bytes stay in shared memory, {streamed_bytes} are streamed at every step"
            ),
        ]
    }
}

/// The best settings for a batch tile and a number of blocks of a group.
fn settings(
    layer: &Layer<'_>,
    target: &Target,
    variant: Variant,
    [batch_tile, group_ctas]: [i64; 2],
) -> Result<Schedule, Refusal> {
    let cta_hidden = ceil_div(layer.units(), group_ctas);
    let unit_groups = ceil_div(cta_hidden, 8);
    let warps_n = [1, 2, 4, 8].into_iter().find(|warps_n| *warps_n >= unit_groups);
    let warps_n = warps_n.unwrap_or(WARPS_N_MAX);
    let of = |warps_n| of_warps_n(layer, target, variant, [batch_tile, group_ctas, warps_n]);
    // Fewer warps along the hidden units pad less, and fit where more do not.
    let fewer = [warps_n, warps_n / 2, warps_n / 4, warps_n / 8].into_iter().filter(|n| *n > 0);
    let schedule = fewer.map(of).reduce(|best, fewer| faster(layer, best, fewer));
    schedule.expect("there is one")
}

/// The fastest schedule with this many warps along the hidden units; of equals the one with the
/// fewest warps along K. More of those have more registers for weights: they may fit where few do
/// not.
fn of_warps_n(
    layer: &Layer<'_>,
    target: &Target,
    variant: Variant,
    [batch_tile, group_ctas, warps_n]: [i64; 3],
) -> Result<Schedule, Refusal> {
    let fewest = (WARPS_MIN / warps_n).max(1);
    let of = |warps_k| of_warps(layer, target, variant, [batch_tile, group_ctas, warps_k, warps_n]);
    let mut best = of(fewest);
    for warps_k in [2 * fewest, 4 * fewest] {
        if let Ok(best) = &best
            && !reads_weights(best)
            && !waits_again(layer, best)
        {
            break;
        }
        best = faster(layer, best, of(warps_k));
    }
    best
}

/// Whether weights are read from shared memory or streamed at every step.
fn reads_weights(schedule: &Schedule) -> bool {
    schedule.gemms.iter().any(|gemm| gemm.register_steps < gemm.k_steps)
}

/// Whether threads have more to receive through memory than loads in flight.
fn waits_again(layer: &Layer<'_>, schedule: &Schedule) -> bool {
    let exchange = schedule.exchange;
    exchange.through_memory() && schedule.passes(layer, exchange) > 1
}

fn is_faster(layer: &Layer<'_>, schedule: &Schedule, known: &Schedule) -> bool {
    step_clocks(layer, schedule) < step_clocks(layer, known)
}

/// The schedule with the fastest exchange through memory.
fn with_fastest_exchange(layer: &Layer<'_>, variant: Variant, mut schedule: Schedule) -> Schedule {
    let clocks = |at: &usize| exchange_clocks(layer, &schedule, variant.exchanges[*at]);
    let fastest = (0..variant.exchanges.len()).min_by(|a, b| clocks(a).total_cmp(&clocks(b)));
    schedule.set_exchange(variant, fastest.expect("a variant has an exchange") as i64);
    schedule
}

/// The faster of two schedules, the first of equals.
fn faster(
    layer: &Layer<'_>,
    first: Result<Schedule, Refusal>,
    second: Result<Schedule, Refusal>,
) -> Result<Schedule, Refusal> {
    match (first, second) {
        (Ok(first), Ok(second)) if is_faster(layer, &second, &first) => Ok(second),
        (Err(_), Ok(second)) => Ok(second),
        (first, _) => first,
    }
}

/// The schedule for a tile, blocks and warps, with as many weights in registers as fit and the
/// fastest exchange.
fn of_warps(
    layer: &Layer<'_>,
    target: &Target,
    variant: Variant,
    [batch_tile, group_ctas, warps_k, warps_n]: [i64; 4],
) -> Result<Schedule, Refusal> {
    let with = |variant: Variant, exchange: i64, weight_registers: i64| {
        let smem_percent = 100;
        let settings = Settings {
            batch_tile,
            exchange,
            group_ctas,
            smem_percent,
            warps_k,
            warps_n,
            weight_registers,
        };
        Schedule::new(layer, target, variant, settings)
    };
    let of = |exchange: i64| {
        // Registers needed without weights; the rest can hold weights, which take whole K steps:
        // a larger value of the knob may fit, too.
        let none = with(Variant { streams: true, ..variant }, exchange, 0)?;
        let available = (REGISTERS_SM / none.threads).min(REGISTERS_THREAD_MAX);
        let left = (available - none.registers) / REGISTERS_STEP * REGISTERS_STEP;
        let up_to = |most: i64| {
            let left = left.clamp(0, most);
            let more = (left + REGISTERS_STEP).min(most);
            match with(variant, exchange, more) {
                Ok(schedule) if !schedule.is_repeated(variant) => Ok(schedule),
                _ => with(variant, exchange, left),
            }
        };
        match none.mma() {
            true => up_to(WEIGHT_REGISTERS_MAX),
            false => up_to(WEIGHT_REGISTERS_SIMT).or_else(|_| up_to(WEIGHT_REGISTERS_MAX)),
        }
    };
    if variant.exchange().in_cluster() {
        return faster(layer, of(0), of(1));
    }
    Ok(with_fastest_exchange(layer, variant, of(0)?))
}
