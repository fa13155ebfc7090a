//! From a graph to something that runs: the only module that sees every stage.
//!
//! [`Kiln::open`] fixes device, caches and templates. [`Kiln::plan`] takes a graph through engine,
//! codegen, cache and compiler to an [`ExecutionPlan`]; [`ExecutionPlan::execute`] only launches.
//!
//! A program need not wait for the compiler: [`Config::record`] writes a [`Manifest`] of what it
//! asks for, [`Kiln::warm`] and [`Kiln::build_pack`] compile that ahead, and [`Config::background`]
//! serves what is new with a more general kernel until its own is compiled.

mod attention_forward;
mod background;
mod best;
mod build;
mod capture;
mod choice;
mod config;
mod document;
mod dump;
mod dump_format;
mod execute;
mod manifest;
mod metrics;
mod overlap;
mod overrides;
mod overriding;
mod persistent;
mod plausible;
mod problem;
mod recipe;
mod record;
mod reopen;
mod replay;
mod report;
mod resolved;
mod rnn_forward;
mod rnn_pack;
mod save;
mod shipment;
mod span;
mod step_down;
mod tensors;
mod tiers;
mod trial;
mod tune;
mod tuned_split;
mod upgrade;
mod values;
mod variables;
mod variant_pack;
mod warm;
mod winners;
mod workspace;

pub use attention_forward::{AttentionForward, MultiHeadAttention};
pub use build::Kiln;
pub use config::{Background, Config};
pub use execute::ExecutionPlan;
pub use manifest::{Instance, Manifest, ManifestProblem};
pub use metrics::{BackgroundMetrics, Metrics};
pub use overrides::OverrideUse;
pub use persistent::PersistentRnn;
pub use plausible::random_values;
pub use problem::Problem;
pub use recipe::PlannedKernel;
pub use reopen::{Dump, Edit};
pub use replay::Relaunch;
pub use report::{BuildReport, Origin};
pub use rnn_forward::{ForwardMode, RnnForward, TempSpace};
pub use rnn_pack::RnnPack;
pub use shipment::{CatalogLine, CodeDigests, Coverage, Verified, catalog, merge_packs};
pub use tensors::{read_values, write_values};
pub use trial::Trial;
#[cfg(feature = "sim")]
pub use trial::estimate;
pub use tune::{TuneProgress, Tuned};
pub use tuned_split::TunedSplit;
pub use upgrade::Tier;
pub use values::Values;
pub use variables::{VARIABLES, Variable};
pub use variant_pack::VariantPack;
pub use warm::{WarmProgress, WarmSummary, Warmed};
pub use winners::{Tried, TriedSplit};
