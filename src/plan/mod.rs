//! From a graph to something that runs: the only module that sees every stage.
//!
//! [`Kiln::open`] fixes device, caches and templates. [`Kiln::plan`] takes a graph through engine,
//! codegen, cache and compiler to an [`ExecutionPlan`]; [`ExecutionPlan::execute`] only launches.
//!
//! A program need not wait for the compiler: [`Config::record`] writes a [`Manifest`] of what it
//! asks for, [`Kiln::warm`] and [`Kiln::build_pack`] compile that ahead, and [`Config::background`]
//! serves what is new with a more general kernel until its own is compiled.
//!
//! | folder | holds |
//! |---|---|
//! | `context` | configuration, the kernel store, engine selection, counters |
//! | `problem` | problem documents and host values |
//! | `dump` | dumps, captures, replay, overrides |
//! | `deploy` | manifests, recording, warm-up, packs |
//! | `tuning` | measured settings and splits |
//! | `layers` | the classic layer interfaces |
//!
//! Plans themselves, how they are built, executed and upgraded, are beside them.

mod background;
mod best;
mod build;
mod choice;
mod context;
mod deploy;
mod document;
mod dump;
mod execute;
mod layers;
mod overlap;
mod problem;
mod recipe;
mod save;
mod tuning;
mod upgrade;
mod variant_pack;
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
pub use layers::attention_forward::{AttentionForward, MultiHeadAttention};
pub use layers::rnn::PersistentRnn;
pub use layers::rnn_forward::{ForwardMode, RnnForward, TempSpace};
pub use layers::rnn_pack::RnnPack;
pub use problem::Problem;
pub use problem::tensors::{read_values, write_values};
pub use problem::trial::Trial;
#[cfg(feature = "sim")]
pub use problem::trial::estimate;
pub use recipe::PlannedKernel;
pub use tuning::settings::{TuneProgress, Tuned};
pub use tuning::split::TunedSplit;
pub use tuning::winners::{Tried, TriedSplit};
pub use upgrade::Tier;
pub use variant_pack::{DeviceMemory, VariantPack};

pub use crate::frontend::{Values, random_values};
