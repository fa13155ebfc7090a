//! What descriptors are finalized to.

use std::sync::{Arc, Mutex};

use kiln::VariantPack;
use kiln::engine::{EngineConfig, Knob, Notes};
use kiln::graph::{Op, OperationGraph};
use kiln::plan::ExecutionPlan;
use kiln::tensor::TensorDesc;

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::value::Value;
use crate::handle::Gpu;

/// What a descriptor has been finalized to.
#[derive(Debug, Clone)]
pub enum Product {
    /// Its attributes say all.
    Plain,
    /// A tensor.
    Tensor(Arc<TensorDesc>),
    /// An operation and its tensors, or why no graph can have it.
    Operation(Arc<Operation>),
    /// A graph.
    Graph(Arc<Graph>),
    /// A way to run a graph.
    Engine(Arc<Engine>),
    /// The same with choices of knobs.
    Config(Arc<Config>),
    /// Ways to run a graph, the best first.
    Heuristics(Vec<Arc<Node>>),
    /// A plan.
    Plan(Arc<Plan>),
    /// Addresses of tensors by uid.
    Pack(Arc<Pack>),
}

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// What it is called in messages.
    pub name: &'static str,
    /// The computation; the reason why there is none for it.
    pub op: Result<Op, String>,
    /// Operands.
    pub inputs: Vec<Arc<TensorDesc>>,
    /// Results.
    pub outputs: Vec<Arc<TensorDesc>>,
}

/// A graph on a device.
pub struct Graph {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// The graph.
    pub graph: OperationGraph,
    /// Engines that take the graph as a whole, by name.
    pub engines: Vec<&'static str>,
}

/// The engine of an index. The last index is that of the parts that Kiln divides a graph into.
pub struct Engine {
    /// The graph.
    pub graph: Arc<Graph>,
    /// The configuration without choices; `None`: parts.
    pub config: Option<EngineConfig>,
    /// Knobs.
    pub knobs: Vec<Knob>,
    /// Notes.
    pub notes: Notes,
    /// Descriptors of knobs and layouts.
    pub described: [Vec<Arc<Node>>; 2],
}

/// An engine with choices of knobs.
pub struct Config {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The configuration; `None`: parts.
    pub config: Option<EngineConfig>,
}

/// A plan.
pub struct Plan {
    /// The device.
    pub gpu: Arc<Gpu>,
    /// The plan.
    pub plan: ExecutionPlan,
    /// Its number, which no other plan has.
    pub number: u64,
}

/// Addresses of tensors by uid, as they were set.
#[derive(Debug)]
pub struct Pack {
    /// Uids and addresses.
    pub tensors: Vec<(i64, u64)>,
    /// The workspace; 0 is NULL.
    pub workspace: u64,
    /// What the plan of a number is given, the last one that was executed.
    pub filled: Mutex<Option<(u64, VariantPack)>>,
}

macro_rules! opaque {
    ($($type:ident)*) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($type))
            }
        }
    )*};
}
opaque!(Graph Engine Config Plan);

impl Product {
    /// Attributes that are known only now.
    pub fn attributes(&self) -> Vec<(N, Value)> {
        let integers = |all: Vec<i64>| Value::Integers(all);
        match self {
            Product::Graph(graph) => {
                let count = graph.engines.len() as i64 + 1;
                vec![(N::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, integers(vec![count]))]
            }
            Product::Engine(engine) => {
                let [knobs, layouts] = engine.described.clone();
                let (numerical, behavior) = crate::backend::engine::notes(&engine.notes);
                vec![
                    (N::ENGINE_KNOB_INFO, Value::Nodes(knobs)),
                    (N::ENGINE_LAYOUT_INFO, Value::Nodes(layouts)),
                    (N::ENGINE_NUMERICAL_NOTE, integers(numerical)),
                    (N::ENGINE_BEHAVIOR_NOTE, integers(behavior)),
                ]
            }
            Product::Heuristics(found) => {
                vec![(N::ENGINEHEUR_RESULTS, Value::Nodes(found.clone()))]
            }
            Product::Plan(plan) => {
                let bytes = crate::kept::workspace_bytes(plan.plan.workspace_bytes());
                let text = plan.plan.to_json();
                // With the NUL that ends the text.
                let text = text.bytes().chain([0]).map(i64::from).collect();
                vec![
                    (N::EXECUTION_PLAN_WORKSPACE_SIZE, integers(vec![bytes as i64])),
                    (N::EXECUTION_PLAN_JSON_REPRESENTATION, integers(text)),
                ]
            }
            _ => Vec::new(),
        }
    }
}
