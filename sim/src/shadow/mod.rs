//! Shadow state of the checks: writers and readers of each word, synchronisation, and pending
//! asynchronous operations.

mod accesses;
mod actor;
mod area;
mod asynchronous;
mod block;
mod chunks;
mod clocks;
mod cluster;
mod copies;
mod global;
mod lanes;
mod open;
mod plane;
mod poison;
mod proxy;
mod reads;
mod rows;
mod shared;
mod sync;
mod tensor;
mod warpgroups;

pub(crate) use accesses::SharedAccess;
pub(crate) use actor::{Actor, Clock, Conflict};
pub(crate) use area::{LOCAL, PRODUCT, SHARED, peer, peer_rank};
pub(crate) use block::{Arrival, BlockShadow};
pub(crate) use chunks::Chunks;
pub(crate) use clocks::{Clocks, Event, PENDING};
pub(crate) use cluster::{ClusterShadow, Init, key};
pub(crate) use copies::{GlobalRange, Group, Issue, OpenStore, Source};
pub(crate) use global::{Global, GlobalShadow};
pub(crate) use lanes::{Lanes, one, pieces, whole};
pub(crate) use poison::{GUARD, NEVER, Poison};
pub(crate) use proxy::{AcquiredMap, LaneFences};
pub(crate) use reads::{Ending, joined, joined_chunks};
pub(crate) use sync::{Missing, Strong, Sync, Touch};
pub(crate) use warpgroups::{Issued, ProductRegister};
