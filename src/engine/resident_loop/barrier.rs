//! How the blocks of a launch wait for each other.

/// Blocks of a portable cluster.
const CLUSTER_MAX: i64 = 8;

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
    /// That of some blocks, which are a cluster or not.
    pub(super) fn of(ctas: i64, is_cluster: bool) -> Result<Barrier, String> {
        match (ctas, is_cluster) {
            (1, false) => Ok(Barrier::Block),
            (1, true) => Err("a block alone is no cluster".to_owned()),
            (ctas, true) if ctas > CLUSTER_MAX => {
                Err(format!("a cluster has at most {CLUSTER_MAX} blocks"))
            }
            (_, true) => Ok(Barrier::Cluster),
            (_, false) => Ok(Barrier::Counter),
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
