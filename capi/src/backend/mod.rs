//! The backend: graphs of operations.

mod engine;
mod execute;
mod finalize;
mod functions;
mod graph;
mod moves;
mod names;
mod node;
mod norms;
mod operators;
mod product;
mod products;
mod schema;
mod tensor;
mod value;
mod values;

pub use execute::Executed;
pub use functions::FUNCTIONS;
pub use names::AttributeName;
pub use node::Backend;
pub use schema::{Attribute, Need, attributes};
pub use value::FRACTION_DECLARATION;
pub use values::*;
