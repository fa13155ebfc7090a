//! Recurrent networks.

mod activations;
mod backward;
mod calls;
mod data;
mod descriptor;
mod forward;
mod legacy;
mod legacy_backward;
mod legacy_data;
mod legacy_forward;
mod networks;
mod quantization;
mod values;
mod weights;

pub use activations::FUNCTIONS as ACTIVATIONS;
pub use backward::FUNCTIONS as BACKWARD;
pub use calls::Checked;
pub use data::FUNCTIONS as DATA;
pub use descriptor::FUNCTIONS as DESCRIPTOR;
pub use forward::FUNCTIONS as FORWARD;
pub use legacy::FUNCTIONS as LEGACY;
pub use legacy_backward::FUNCTIONS as LEGACY_BACKWARD;
pub use legacy_data::FUNCTIONS as LEGACY_DATA;
pub use legacy_forward::FUNCTIONS as LEGACY_FORWARD;
pub use networks::Network;
pub use quantization::FUNCTIONS as QUANTIZATION;
pub use values::*;
pub use weights::FUNCTIONS as WEIGHTS;
