//! From a graph to something that runs: the only module that sees every stage.
//!
//! [`Kiln::open`] fixes device, caches and templates. [`Kiln::plan`] takes a graph through engine,
//! codegen, cache and compiler to an [`ExecutionPlan`]; [`ExecutionPlan::execute`] only launches.

mod build;
mod config;
mod execute;
mod report;
mod variant_pack;

pub use build::Kiln;
pub use config::Config;
pub use execute::ExecutionPlan;
pub use report::{BuildReport, Origin};
pub use variant_pack::VariantPack;
