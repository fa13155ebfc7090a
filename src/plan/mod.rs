//! From a graph to something that runs: the only module that sees every stage.
//!
//! [`Kiln::open`] fixes device, caches and templates. [`Kiln::plan`] takes a graph through engine,
//! codegen, cache and compiler to an [`ExecutionPlan`]; [`ExecutionPlan::execute`] only launches.

mod build;
mod capture;
mod config;
mod dump;
mod execute;
mod manifest;
mod overrides;
mod reopen;
mod replay;
mod report;
mod shipment;
mod tensors;
mod tiers;
mod trial;
mod variant_pack;
mod warm;

pub use build::Kiln;
pub use config::Config;
pub use execute::ExecutionPlan;
pub use manifest::{Instance, Manifest, ManifestProblem};
pub use overrides::OverrideUse;
pub use reopen::{Dump, Edit};
pub use replay::Relaunch;
pub use report::{BuildReport, Origin};
pub use shipment::{CatalogLine, Coverage, Verified, catalog, merge_packs};
pub use tensors::{read_values, write_values};
pub use trial::{Trial, Values, random_values};
pub use variant_pack::VariantPack;
pub use warm::{WarmProgress, WarmSummary, Warmed};
