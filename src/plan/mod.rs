//! Planning and executing graphs: the only module that uses every stage.
//!
//! [`Kiln::open`] opens device, caches and templates. [`Kiln::plan`] turns a graph into an
//! [`ExecutionPlan`]: it partitions the graph, chooses engines and configurations, renders and
//! compiles kernels or finds them in a cache, and loads them. [`ExecutionPlan::execute`] only
//! launches.
//!
//! Kernels can be compiled before they are needed: [`Config::record`] writes a [`Manifest`] of the
//! problems that a program plans, which [`Kiln::warm`] and [`Kiln::build_pack`] compile. With
//! [`Config::background`], generic kernels run until specialised ones have been compiled.
//!
//! | folder | contents |
//! |---|---|
//! | `context` | configuration, the kernel store, engine selection, counters |
//! | `problem` | problems of every front-end, host values |
//! | `dump` | dumps, captured tensors, replay, overrides |
//! | `deploy` | manifests, recording, warm-up, packs |
//! | `tuning` | measuring configurations and partitions, records |
//!
//! The files beside them build, save, execute and upgrade plans.

mod background;
mod best;
mod build;
mod choice;
mod context;
mod deploy;
mod document;
mod dump;
mod execute;
mod overlap;
mod problem;
mod recipe;
mod recurrences;
mod reuse;
mod save;
mod stages;
mod term;
mod tuning;
mod upgrade;
mod variant_pack;
mod within;
mod workspace;

pub use build::Kiln;
pub use context::config::{Background, Config};
pub use context::metrics::{BackgroundMetrics, Metrics};
pub use context::report::{BuildReport, Origin};
pub use context::variables::{VARIABLES, Variable};
pub use deploy::kernel_pack::{CatalogLine, CodeDigests, Coverage, Verified, catalog, merge_packs};
pub use deploy::manifest::{Instance, Manifest, ManifestProblem};
pub use deploy::warm::{WarmProgress, WarmSummary, Warmed};
pub use dump::overrides::OverrideUse;
pub use dump::read::{Dump, Edit};
pub use dump::replay::Relaunch;
pub use execute::ExecutionPlan;
pub(crate) use execute::Queued;
pub use problem::Problem;
pub use problem::tensors::{read_values, write_values};
pub use problem::trial::Trial;
#[cfg(feature = "sim")]
pub use problem::trial::estimate;
pub use recipe::PlannedKernel;
pub(crate) use recurrences::Recurrences;
pub(crate) use reuse::Candidates;
pub use tuning::settings::{Trials, TuneProgress, Tuned};
pub use tuning::split::TunedSplit;
pub use tuning::winners::{Tried, TriedSplit};
pub use upgrade::Tier;
pub use variant_pack::{DeviceMemory, Memory, VariantPack};
pub(crate) use variant_pack::{Kept, Slot};
pub(crate) use workspace::ALIGNMENT;
pub(crate) use workspace::Contents;

pub use crate::documents::Planned;
pub use crate::frontend::{Values, random_values};
