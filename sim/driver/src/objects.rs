//! What handles stand for: contexts, modules, events, pools, linkers, objects of the caller.

use std::collections::HashMap;
use std::time::Instant;

use kiln_sim::Module;

use crate::jit::Options;
use crate::pointer::Call;

/// What a context was made with, and what was set since.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub flags: u32,
    /// Limits that were set, by number.
    pub limits: HashMap<u32, u64>,
    pub cache_config: u32,
    pub shared_config: u32,
}

/// A module or library, which are the same here.
#[derive(Clone)]
pub struct Loaded {
    pub module: Module,
    pub max_registers: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub struct Event {
    pub flags: u32,
    pub recorded: Option<Instant>,
    /// The capture that it was last recorded in.
    pub captured: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Attributes that were set, by number.
    pub attributes: HashMap<u32, u64>,
    pub used_high: u64,
}

/// What is linked so far.
pub struct Link {
    pub options: Options,
    pub texts: Vec<String>,
    /// The result, which belongs to the linker.
    pub linked: Option<Box<[u8]>>,
}

/// An object, with the function that ends it.
pub struct UserObject {
    pub end: Call,
    pub references: u64,
}
