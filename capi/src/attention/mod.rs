//! Multi-head attention.

mod data;
mod descriptor;
mod layers;
mod passes;
mod values;
mod weights;

pub use data::FUNCTIONS as DATA;
pub use descriptor::FUNCTIONS as DESCRIPTOR;
pub use layers::{Layer, Said};
pub use passes::FUNCTIONS as PASSES;
pub use values::*;
pub use weights::FUNCTIONS as WEIGHTS;
