//! Constants of the kernels of a layer.

use crate::engine::access::ceil_div;
use crate::engine::rnn::elements::Constant;
use crate::engine::rnn::parameters::{Writer, smem_weights_offset};
use crate::engine::rnn::schedule::{LOADS_MAX, SLOTS};
use crate::engine::rnn::variant::Exchange;

impl Writer<'_> {
    /// The constants, in the order in which kernels declare them.
    pub(super) fn constants(&self) -> Vec<Constant> {
        let Writer { layer, schedule, .. } = self;
        let (op, settings) = (layer.op, schedule.settings);
        let memory = &schedule.memory;
        let subtiles = schedule.batch_subtiles();
        let mut constants = Vec::new();
        let mut add = |name: &str, value, about| constants.push(Constant::new(name, value, about));
        add("HIDDEN_SIZE", layer.hidden_size(), "");
        add("OUTPUT_SIZE", layer.output_size(), "of h and y");
        add("BATCH", op.batch, "");
        add("BATCH_TILE", settings.batch_tile, "batch rows of a CTA");
        add("BATCH_TILES", self.batch_tiles(), "");
        add("BATCH_SUBTILES", subtiles, "of 8 batch rows");
        add("GROUP_CTAS", settings.group_ctas, "CTAs that share the units of a batch tile");
        add("WARPS_N", settings.warps_n, "along the units");
        add("WARPS_K", settings.warps_k, "along K");
        add("THREADS", schedule.threads, "");
        add("CTA_HIDDEN", schedule.cta_hidden, "units of a CTA");
        add("UNIT_GROUPS", schedule.unit_groups(), "groups of 8 units of a warp");
        add(
            "SUBTILES",
            schedule.unit_groups() * subtiles,
            "8 x 8 subtiles of units and batch rows, of the warps along K",
        );
        let of = match schedule.half_subtiles {
            true => "one, of half a subtile",
            false => "two of each subtile of a warp",
        };
        add("LANE_CELLS", schedule.lane_cells(), of);
        add("CTA_OUTPUT", self.cta_output(), "columns of h of a CTA");
        add("VECTOR", self.vector(), "elements of y per store");
        if !schedule.mma() {
            add(
                "STAGING_BYTES",
                schedule.staging_bytes(),
                "of a warp, to load register-resident weights",
            );
        }
        add("FRAG_K", schedule.path.fragment_k(), "K of an MMA");
        if schedule.mma() {
            add(
                "CHAINS",
                schedule.chains(),
                "accumulators that halves of a K step take turns with",
            );
        }
        add(
            "SUBTILE_ELEMENTS",
            8 * schedule.row_elements,
            "of 8 batch rows of an operand in shared memory",
        );
        add("BUFFER_ELEMENTS", schedule.buffer_elements(), "of an operand in shared memory");
        for (at, byte) in memory.operands.iter().enumerate() {
            add(&format!("SMEM_OPERAND{}_OFFSET", at + 1), *byte, "bytes");
        }
        for (at, byte) in memory.weights.iter().enumerate() {
            add(&smem_weights_offset(at), *byte, "bytes");
        }
        if settings.warps_k > 1 || schedule.exchange == Exchange::ReduceScatter {
            add("SMEM_PARTIALS_OFFSET", memory.partials, "bytes");
        }
        if schedule.vectors > 0 {
            add("VECTORS", schedule.vectors, "of an element for each unit");
            add("SMEM_VECTORS_OFFSET", memory.vectors, "bytes");
        }
        if schedule.exchange != Exchange::None {
            add("OPERANDS", schedule.operands(), "that CTAs exchange");
        }
        match schedule.exchange {
            Exchange::None => {}
            Exchange::Cluster | Exchange::ReduceScatter => {
                add("BARRIERS", schedule.barriers(layer), "of a CTA");
                add("SMEM_BARRIERS_OFFSET", memory.barriers, "bytes");
            }
            Exchange::Counter => {
                add("EXCHANGE_WIDTH", schedule.exchange_width, "elements of the widest row");
            }
            Exchange::Words => {
                add("SLOTS", SLOTS, "steps that have memory of their own");
                add("SLOT_WORDS", schedule.slot_words(layer), "of an operand of a step");
            }
        }
        if schedule.exchange.through_memory() {
            add("CHUNK", schedule.chunk(layer, schedule.exchange), "elements per access");
            add("LOADS_MAX", LOADS_MAX, "of a thread in flight");
        }
        if layer.layer_norms_max() > 0 {
            add("LAYER_NORMS", layer.layer_norms_max(), "of a stage, at most");
            add("SMEM_ROW_SUMS_OFFSET", memory.row_sums, "bytes");
        }
        if layer.layer_norms_max() > 0 && schedule.exchange == Exchange::Cluster {
            add("SMEM_CTA_STATS_OFFSET", memory.cta_stats, "bytes");
        }
        if op.with.lengths {
            add("BATCH_ALL", ceil_div(op.batch, 32) * 32, "");
            add("SMEM_LENGTHS_OFFSET", memory.lengths, "bytes");
        }
        constants.extend(self.elements.constants());
        constants
    }
}
