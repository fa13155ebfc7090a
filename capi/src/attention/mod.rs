//! Multi-head attention.

mod data;
mod descriptor;
mod values;
mod weights;

pub use data::FUNCTIONS as DATA;
pub use descriptor::FUNCTIONS as DESCRIPTOR;
pub use values::*;
pub use weights::FUNCTIONS as WEIGHTS;
