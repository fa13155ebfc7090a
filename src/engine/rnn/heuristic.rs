//! The settings of a recurrent layer that are expected to run best.

use crate::engine::access::ceil_div;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Schedule, Settings};
use crate::error::{Error, Result};
use crate::target::Target;

/// Settings, and what decided them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decision {
    pub(super) settings: Settings,
    blocks: i64,
    sm_count: i64,
    /// Weights that are not in registers, in bytes.
    kept: i64,
}

impl Decision {
    /// # Errors
    /// `NotSupported` where no setting keeps all weights on chip, with what the smallest lacks.
    pub(super) fn of(layer: &Layer<'_>, target: &Target) -> Result<Decision> {
        let sm_count = i64::from(target.sm_count);
        let groups = ceil_div(layer.op.units.max(layer.size()), 8);
        // As few rows per block as spread the batch over the device.
        let tiles = |tile: &i64| layer.op.direction.count() * ceil_div(layer.op.batch, *tile);
        let widest = [8, 16, 32].into_iter().find(|tile| tiles(tile) <= sm_count).unwrap_or(32);
        // A warp for each group of units, up to 16; few groups share the depth of their products.
        let columns = [1, 2, 4, 8].into_iter().find(|columns| *columns >= groups).unwrap_or(16);
        let parts = (4 / columns).max(1);
        let mut refusal = Error::not_supported("no setting is legal");
        for tile in [32, 16, 8].into_iter().filter(|tile| *tile <= widest) {
            for columns in [columns, columns / 2].into_iter().filter(|columns| *columns > 0) {
                for registers in [160, 128, 96, 64, 32, 0] {
                    let settings = Settings { batch_tile: tile, columns, parts, registers };
                    match Schedule::new(layer, target, settings) {
                        Ok(schedule) => return Ok(Decision::with(layer, &schedule, sm_count)),
                        Err(error) => refusal = error,
                    }
                }
            }
        }
        Err(refusal)
    }

    fn with(layer: &Layer<'_>, schedule: &Schedule, sm_count: i64) -> Decision {
        let settings = schedule.settings;
        let tiles = ceil_div(layer.op.batch, settings.batch_tile);
        let blocks = layer.op.direction.count() * tiles;
        let kept = schedule.products.iter().map(|of| of.kept_bytes).sum::<i64>();
        Decision { settings, blocks, sm_count, kept: kept * schedule.threads / 32 }
    }

    /// A line for each knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { settings, blocks, sm_count, kept } = self;
        let Settings { batch_tile, columns, parts, registers } = settings;
        vec![
            format!("batch_tile={batch_tile}: {blocks} blocks for {sm_count} multiprocessors"),
            format!("columns={columns}: a warp for each group of 8 units, up to 16"),
            format!("parts={parts}: four warps at least hide what each other waits for"),
            format!("registers={registers}: {kept} bytes of weights stay in shared memory"),
        ]
    }
}
