//! Persistent engines of recurrent layers: how their blocks exchange h, and their knobs.

use crate::engine::Knob;

/// How the blocks of a group exchange h between steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// One block owns all hidden units.
    None,
    /// Stores to distributed shared memory (`st.async`).
    Cluster,
    /// The same of partial sums: each block multiplies what it has computed with its columns of the
    /// weights and sends every other the sums for its units (a reduce-scatter).
    ReduceScatter,
    /// Writes to global memory and a counter.
    Counter,
    /// Words in global memory that tell whether they have been written.
    Words,
}

/// What distinguishes the persistent engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) engine: &'static str,
    /// Exchanges, indexed by the knob.
    pub(super) exchanges: &'static [Exchange],
    /// Whether weights that do not fit on chip are streamed at every step.
    pub(super) streams: bool,
}

/// Step between values of the knob `weight_registers`.
pub(super) const REGISTERS_STEP: i64 = 32;

impl Exchange {
    /// Name in templates.
    pub(super) fn name(self) -> &'static str {
        match self {
            Exchange::None => "none",
            Exchange::Cluster | Exchange::ReduceScatter => "cluster",
            Exchange::Counter => "counter",
            Exchange::Words => "words",
        }
    }

    /// Whether it uses distributed shared memory.
    pub(super) fn in_cluster(self) -> bool {
        matches!(self, Exchange::Cluster | Exchange::ReduceScatter)
    }

    /// Whether it uses global memory and so requires co-resident blocks.
    pub(super) fn through_memory(self) -> bool {
        matches!(self, Exchange::Counter | Exchange::Words)
    }
}

impl Variant {
    /// The first of its exchanges, which are all of one kind.
    pub(super) fn exchange(self) -> Exchange {
        self.exchanges[0]
    }

    /// The knobs, sorted by name.
    pub(super) fn knobs(self) -> [Knob; 7] {
        let knob = |name, about, values: &[i64]| Knob { name, about, values: values.to_vec() };
        let group_ctas: &[i64] = match self.exchange() {
            Exchange::None => &[1],
            Exchange::Cluster | Exchange::ReduceScatter => &[2, 4, 8, 16],
            Exchange::Counter | Exchange::Words => &[2, 4, 8, 16, 32, 64, 96, 128],
        };
        let exchanges: Vec<i64> = (0..self.exchanges.len() as i64).collect();
        let smem_percent: &[i64] = if self.streams { &[0, 50, 100] } else { &[100] };
        let weight_registers = [0, 1, 2, 3, 4, 5].map(|steps| steps * REGISTERS_STEP);
        [
            knob("batch_tile", "batch rows of a CTA", &[8, 16, 32]),
            knob(
                "exchange",
                "how CTAs exchange h: 0 counter or mbarrier, 1 words that are their own flags or, \
                 in a cluster, partial sums; those change the order of sums",
                &exchanges,
            ),
            knob("group_ctas", "CTAs that share a batch tile", group_ctas),
            knob(
                "smem_percent",
                "of the other weights, smem-resident; the rest is streamed",
                smem_percent,
            ),
            knob(
                "warps_k",
                "warps along K; changes the order of sums, as does a warp's tile of under 4 MMAs",
                &[1, 2, 4, 8],
            ),
            knob("warps_n", "warps along the hidden units", &[1, 2, 4, 8, 16]),
            knob("weight_registers", "registers of a thread that hold weights", &weight_registers),
        ]
    }
}
