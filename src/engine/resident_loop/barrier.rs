//! How the blocks of a launch wait for each other.

/// Blocks of a portable cluster.
const CLUSTER_MAX: i64 = 8;

/// Compute capability from which blocks form clusters.
const CLUSTERS_FROM: u16 = 90;

/// How the blocks of a launch wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barrier {
    /// There is one.
    Block,
    Cluster,
    /// A counter in the workspace, which a kernel before sets to 0.
    Counter,
}

impl Barrier {
    /// That of some blocks on devices of a compute capability.
    pub(super) fn of(ctas: i64, capability: u16) -> Barrier {
        match ctas {
            1 => Barrier::Block,
            ctas if ctas <= CLUSTER_MAX && capability >= CLUSTERS_FROM => Barrier::Cluster,
            _ => Barrier::Counter,
        }
    }

    /// Name in templates.
    pub(super) fn name(self) -> &'static str {
        match self {
            Barrier::Block => "block",
            Barrier::Cluster => "cluster",
            Barrier::Counter => "counter",
        }
    }

    /// How often memory is waited for at one: of a block its threads alone, else a message there
    /// and back.
    pub(super) fn round_trips(self) -> f64 {
        match self {
            Barrier::Block => 1.0,
            Barrier::Cluster => 1.5,
            Barrier::Counter => 3.0,
        }
    }
}
