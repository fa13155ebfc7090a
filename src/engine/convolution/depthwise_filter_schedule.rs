//! Schedules of the depthwise engine for gradients of filters.

use crate::engine::access::{GRID_MAX, ceil_div, volume};
use crate::engine::convolution::problem::Problem;
use crate::engine::convolution::walk::Walk;
use crate::engine::tunable::settings;

/// Registers of a thread besides those of its sums and elements.
const REGISTERS_OWN: i64 = 20;

/// The most registers that a setting is expected to take, below which nothing spills.
const REGISTERS_MAX: i64 = 204;

/// Threads of a warp.
const WARP: i64 = 32;

/// Bytes of a line, which threads next to each other read as a whole.
const LINE_BYTES: i64 = 128;

/// Threads of a CTA of the kernel that combines partials.
pub(super) const COMBINE_THREADS: i64 = 256;

/// The most of them that share the partials of a sum.
const PARTS_MAX: i64 = 32;

/// Shared memory of a CTA without asking for more.
const SHARED_BYTES_MAX: i64 = 48 << 10;

settings! { pub(super) struct Settings { items, rows, split, strip, threads } }

/// Settings with what follows from them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) settings: Settings,
    /// Threads next to each other that have neighbouring groups.
    pub(super) lanes: i64,
    /// Items of a thread along all channels of the filter.
    pub(super) chunks: i64,
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
}

impl Schedule {
    /// CTAs that share the groups.
    pub(super) fn blocks(&self) -> i64 {
        ceil_div(self.chunks, self.lanes)
    }

    /// Threads that share the partials of a sum.
    pub(super) fn parts(&self) -> i64 {
        self.settings.split.min(PARTS_MAX)
    }

    /// Threads that share the strips of a tap, of all CTAs.
    pub(super) fn ranks(&self) -> i64 {
        self.settings.split * (self.settings.threads / self.lanes)
    }
}

/// What schedules depend on.
#[derive(Debug, Clone)]
pub(super) struct Extents {
    pub(super) walk: Walk,
    pub(super) images: i64,
    pub(super) groups: i64,
    /// Channels of the response in a group.
    pub(super) multiplier: i64,
    /// Bytes of a sum, and of an element of the image.
    pub(super) sum_bytes: i64,
    pub(super) image_bytes: i64,
    /// Whether neighbours in memory are of neighbouring groups.
    pub(super) channels_last: bool,
}

impl Extents {
    pub(super) fn of(problem: &Problem<'_>, walk: Walk) -> Extents {
        let Problem { graph, op, shape, operands, .. } = problem;
        let image = &operands[walk.source];
        // Of an image that is computed, what is read says where channels lie.
        let lies_last = |at: usize| {
            let strides = image.strides(*graph, at).expect("checked before");
            strides.group == 1 && strides.spatial.iter().any(|stride| *stride > 1)
        };
        Extents {
            walk,
            images: shape.n,
            groups: shape.groups,
            multiplier: shape.k,
            sum_bytes: op.math.dtype().bytes() as i64,
            image_bytes: graph.tensors[image.tensor].dtype.bytes() as i64,
            channels_last: image.inputs().any(lies_last),
        }
    }

    pub(super) fn registers(&self, Settings { items, strip, .. }: Settings) -> i64 {
        // Sums, rows of the response, and what is read of a row of the image.
        let elements = volume(&self.walk.taps) + self.walk.ages() * strip + self.walk.span(strip);
        REGISTERS_OWN + self.sum_bytes / 4 * items * elements
    }

    pub(super) fn strips(&self, Settings { rows, strip, .. }: Settings) -> i64 {
        let [height, width] = self.walk.result;
        volume(&[self.images, ceil_div(height, rows), ceil_div(width, strip)])
    }

    pub(super) fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let Settings { items, split, threads, .. } = settings;
        let registers = self.registers(settings);
        if registers > REGISTERS_MAX {
            return Err(format!("needs {registers} registers, a thread has {REGISTERS_MAX}"));
        }
        let chunks = volume(&[self.multiplier, ceil_div(self.groups, items)]);
        let line = if self.channels_last { LINE_BYTES / (items * self.image_bytes) } else { 1 };
        let lane_bytes = volume(&self.walk.taps) * items * self.sum_bytes;
        let bytes = |lanes: i64| (threads / WARP).saturating_mul(lane_bytes).saturating_mul(lanes);
        let most = line.clamp(1, WARP);
        let fits =
            |lanes: &i64| *lanes == 1 || *lanes < 2 * chunks && bytes(*lanes) <= SHARED_BYTES_MAX;
        let lanes = [32, 16, 8, 4, 2, 1].into_iter().filter(|lanes| *lanes <= most).find(fits);
        let lanes = lanes.expect("one is always allowed");
        let schedule = Schedule { settings, lanes, chunks, registers, shared_bytes: bytes(lanes) };
        if schedule.shared_bytes > SHARED_BYTES_MAX {
            let needed = schedule.shared_bytes;
            return Err(format!("needs {needed} bytes of shared memory of {SHARED_BYTES_MAX}"));
        }
        match schedule.blocks().saturating_mul(split) {
            0..=GRID_MAX => Ok(schedule),
            blocks => Err(format!("needs {blocks} blocks, a grid has {GRID_MAX}")),
        }
    }
}
