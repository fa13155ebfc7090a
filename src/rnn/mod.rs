//! Recurrent networks: cells, and layers that lower to operation graphs.

mod cells;

pub use cells::{CellClip, CellKind, CellOptions, ClipPoint};
