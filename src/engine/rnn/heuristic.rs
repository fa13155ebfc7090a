//! The best settings of a recurrent layer, and why.

use crate::engine::access::{REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::refusal::Refusal;
use crate::engine::rnn::schedule::{Exchange, Regime, Schedule, Settings};
use crate::engine::rnn::work::{exchange_bytes, exchange_clocks, step_clocks};
use crate::target::Target;

/// Maximum warps along the hidden units, and minimum warps along K.
const COLUMNS_MAX: i64 = 16;
const WARPS_MIN: i64 = 4;

/// The best settings, and what decided them.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) settings: Settings,
    all_blocks: i64,
    sm_count: i64,
    exchange_bytes: i64,
    kept: i64,
    streamed: i64,
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
        regime: Regime,
    ) -> Result<Decision, Refusal> {
        let mut refusal = Refusal::Units;
        let mut best: Option<Decision> = None;
        let [tiles, blocks, ..] = regime.knobs();
        for tile in tiles.values {
            // Each block owns at least 8 hidden units.
            let units = layer.op.units.max(layer.size());
            let shared = |blocks: &&i64| **blocks == 1 || ceil_div(units, **blocks) >= 8;
            for blocks in blocks.values.iter().take_while(shared) {
                match settings(layer, target, regime, [tile, *blocks]) {
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
        let blocks = schedule.settings.blocks;
        let all_blocks = schedule.teams * blocks;
        let warps = schedule.threads / 32;
        let products = schedule.products.iter();
        let kept = products.clone().map(|of| of.kept * of.step_bytes * warps).sum();
        let streamed = products.map(|of| of.streamed() * of.step_bytes * warps).sum();
        // A GPC has at most 18 SMs and holds one cluster of 16.
        let resident = match schedule.exchange == Exchange::Cluster && blocks == 16 {
            true => sm_count / 18 * 16,
            false => sm_count,
        };
        let waves = match resident {
            0 => f64::INFINITY,
            _ => ceil_div(all_blocks, resident) as f64,
        };
        let clocks = waves * step_clocks(layer, schedule);
        let exchange_bytes = exchange_bytes(layer, schedule);
        let settings = schedule.settings;
        Decision { settings, all_blocks, sm_count, exchange_bytes, kept, streamed, clocks }
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { settings, all_blocks, sm_count, exchange_bytes, kept, streamed, clocks } =
            self;
        let Settings { batch_tile, blocks, columns, exchange, kept: percent, parts, registers } =
            settings;
        vec![
            format!("batch_tile={batch_tile}: {all_blocks} blocks for {sm_count} SMs"),
            format!("blocks={blocks}: a step of about {clocks:.0} clocks, the fewest"),
            format!("columns={columns}: a warp for each group of 8 units, up to {COLUMNS_MAX}"),
            format!("exchange={exchange}: of {exchange_bytes} bytes at a step, the quickest"),
            format!("kept={percent}: of the weights that are not in registers, what fits"),
            format!(
                "parts={parts}: {WARPS_MIN} warps at least hide what each waits for, more hold more"
            ),
            format!(
                "registers={registers}: {kept} bytes of a block's weights stay in shared memory, \
                 {streamed} are read at every step"
            ),
        ]
    }
}

/// The best settings for a batch tile and a number of blocks.
fn settings(
    layer: &Layer<'_>,
    target: &Target,
    regime: Regime,
    [batch_tile, blocks]: [i64; 2],
) -> Result<Schedule, Refusal> {
    let slice = ceil_div(layer.op.units.max(layer.size()), blocks);
    let groups = ceil_div(slice, 8);
    let columns = [1, 2, 4, 8].into_iter().find(|columns| *columns >= groups);
    let columns = columns.unwrap_or(COLUMNS_MAX);
    let of = |columns| of_columns(layer, target, regime, [batch_tile, blocks, columns]);
    // Fewer warps along the hidden units pad less, and fit where more do not.
    let fewer = [columns, columns / 2, columns / 4, columns / 8].into_iter().filter(|n| *n > 0);
    let schedule = fewer.map(of).reduce(|best, fewer| match (best, fewer) {
        (Ok(best), Ok(fewer)) if is_quicker(layer, &fewer, &best) => Ok(fewer),
        (Err(_), Ok(fewer)) => Ok(fewer),
        (best, _) => best,
    });
    let schedule = schedule.expect("there is one")?;
    Ok(with_quickest_exchange(layer, regime, schedule))
}

/// The fastest schedule with this many warps along the hidden units; of equals the one with the
/// fewest warps along K.
fn of_columns(
    layer: &Layer<'_>,
    target: &Target,
    regime: Regime,
    [batch_tile, blocks, columns]: [i64; 3],
) -> Result<Schedule, Refusal> {
    let fewest = (WARPS_MIN / columns).max(1);
    let of = |parts| of_parts(layer, target, regime, [batch_tile, blocks, columns, parts]);
    let mut best = of(fewest)?;
    for parts in [2 * fewest, 4 * fewest] {
        if !streams(&best) {
            break;
        }
        if let Ok(more) = of(parts)
            && is_quicker(layer, &more, &best)
        {
            best = more;
        }
    }
    Ok(best)
}

/// Whether weights are streamed at every step.
fn streams(schedule: &Schedule) -> bool {
    schedule.products.iter().any(|product| product.streamed() > 0)
}

fn is_quicker(layer: &Layer<'_>, schedule: &Schedule, known: &Schedule) -> bool {
    step_clocks(layer, schedule) < step_clocks(layer, known)
}

/// The schedule with the fastest exchange.
fn with_quickest_exchange(layer: &Layer<'_>, regime: Regime, mut schedule: Schedule) -> Schedule {
    let clocks = |at: &usize| exchange_clocks(layer, &schedule, regime.exchanges[*at]);
    let quickest = (0..regime.exchanges.len()).min_by(|a, b| clocks(a).total_cmp(&clocks(b)));
    schedule.set_exchange(regime, quickest.expect("a regime has an exchange") as i64);
    schedule
}

/// The settings for a tile, blocks and warps.
fn of_parts(
    layer: &Layer<'_>,
    target: &Target,
    regime: Regime,
    [batch_tile, blocks, columns, parts]: [i64; 4],
) -> Result<Schedule, Refusal> {
    let with = |regime: Regime, registers: i64| {
        let settings =
            Settings { batch_tile, blocks, columns, exchange: 0, kept: 100, parts, registers };
        Schedule::new(layer, target, regime, settings)
    };
    // Registers needed without weights; the rest can hold weights.
    let none = with(Regime { streams: true, ..regime }, 0)?;
    let available = (REGISTERS_SM / none.threads).min(REGISTERS_THREAD_MAX);
    with(regime, ((available - none.registers) / 32 * 32).clamp(0, 160))
}
