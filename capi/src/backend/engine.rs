//! Engines, their knobs and notes, configurations and heuristics (sections 8.2.2.2 to 8.2.2.4 and
//! 8.2.2.7 to 8.2.2.9).

use std::sync::Arc;

use kiln::engine::{
    self, BehaviorNote as Behavior, EngineConfig, Knob, LayoutInfo, LayoutType as Layout, Mode,
    Notes, NumericalNote as Numerical, Selection,
};

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::product::{Config, Engine, Graph, Product};
use crate::backend::value::Value;
use crate::backend::values::{
    BehaviorNote, DescriptorType as D, HeurMode, KnobType, LayoutType, NumericalNote,
};
use crate::status::{Outcome, bad, refuse};

/// Numbers of notes; those that the documents do not have are left out.
pub fn notes(notes: &Notes) -> (Vec<i64>, Vec<i64>) {
    let numerical = notes.numerical.iter().filter_map(|note| {
        Some(match note {
            Numerical::TensorCore => NumericalNote::TENSOR_CORE,
            Numerical::DownConvertInputs => NumericalNote::DOWN_CONVERT_INPUTS,
            Numerical::ReducedPrecisionReduction => NumericalNote::REDUCED_PRECISION_REDUCTION,
            Numerical::Nondeterministic => NumericalNote::NONDETERMINISTIC,
            _ => return None,
        })
    });
    let behavior = notes.behavior.iter().filter_map(|note| match note {
        Behavior::RuntimeCompilation => Some(BehaviorNote::RUNTIME_COMPILATION),
        _ => None,
    });
    let behavior = behavior.map(|note| i64::from(note.0)).collect();
    (numerical.map(|note| i64::from(note.0)).collect(), behavior)
}

/// The type that a knob has in the documents. Those that have none there take the types that are
/// left over, in order, so that each knob of an engine has one of its own.
fn knob_types(knobs: &[Knob]) -> Vec<KnobType> {
    const NAMES: [(&str, KnobType); 6] = [
        ("split_k", KnobType::SPLIT_K),
        ("tile", KnobType::TILE_SIZE),
        ("tile_m", KnobType::TILE_SIZE),
        ("step_k", KnobType::TILEK),
        ("stages", KnobType::STAGES),
        ("swizzle", KnobType::SWIZZLE),
    ];
    const OTHERS: [KnobType; 20] = [
        KnobType::KERNEL_CFG,
        KnobType::KBLOCK,
        KnobType::EDGE,
        KnobType::MULTIPLY,
        KnobType::CHUNK_K,
        KnobType::SPLIT_H,
        KnobType::REDUCTION_MODE,
        KnobType::CTA_SPLIT_K_MODE,
        KnobType::IDX_MODE,
        KnobType::SLICED,
        KnobType::SPLIT_RS,
        KnobType::SINGLEBUFFER,
        KnobType::LDGA,
        KnobType::LDGB,
        KnobType::LDGC,
        KnobType::SPECFILT,
        KnobType::SPLIT_K_BUF,
        KnobType::SPLIT_K_SLC,
        KnobType::WINO_TILE,
        KnobType::USE_TEX,
    ];
    let mut types: Vec<KnobType> = Vec::new();
    for knob in knobs {
        let named = NAMES.iter().find(|(name, _)| *name == knob.name).map(|(_, of)| *of);
        let free = |of: &KnobType| !types.contains(of);
        let own = named.filter(free).or_else(|| OTHERS.iter().copied().find(free));
        types.push(own.unwrap_or(KnobType::WORKSPACE));
    }
    types
}

/// Least, greatest and stride of a knob's values; positions 0.. where they are no arithmetic row.
fn range(knob: &Knob) -> [i64; 3] {
    let values = &knob.values;
    let steps: Vec<i64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    match (values.first(), values.last(), steps.first()) {
        (Some(least), Some(most), Some(step))
            if *step > 0 && steps.iter().all(|other| other == step) =>
        {
            [*least, *most, *step]
        }
        (Some(only), Some(_), None) => [*only, *only, 1],
        _ => [0, values.len() as i64 - 1, 1],
    }
}

/// The value of a knob that a number of the documents is, if it is one.
fn value(knob: &Knob, number: i64) -> Option<i64> {
    let [least, most, stride] = range(knob);
    if !(least..=most).contains(&number) || (number - least) % stride != 0 {
        return None;
    }
    knob.values.get(((number - least) / stride) as usize).copied()
}

/// The number of the documents for a value of a knob.
fn number(knob: &Knob, value: i64) -> i64 {
    let [least, _, stride] = range(knob);
    let at = knob.values.iter().position(|known| *known == value);
    least + at.unwrap_or(0) as i64 * stride
}

fn integers(all: impl IntoIterator<Item = i64>) -> Value {
    Value::Integers(all.into_iter().collect())
}

fn knob_info(knob: &Knob, of: KnobType) -> Arc<Node> {
    let [least, most, stride] = range(knob);
    let values = [
        (N::KNOB_INFO_TYPE, integers([i64::from(of.0)])),
        (N::KNOB_INFO_MAXIMUM_VALUE, integers([most])),
        (N::KNOB_INFO_MINIMUM_VALUE, integers([least])),
        (N::KNOB_INFO_STRIDE, integers([stride])),
    ];
    Node::made(D::KNOB_INFO_DESCRIPTOR, values, Product::Plain)
}

fn layout_info(info: &LayoutInfo) -> Arc<Node> {
    let types = info.types.iter().map(|of| match of {
        Layout::Nhwc => i64::from(LayoutType::PREFERRED_NHWC.0),
        _ => i64::from(LayoutType::PREFERRED_NCHW.0),
    });
    let values = [
        (N::LAYOUT_INFO_TENSOR_UID, integers([info.uid])),
        (N::LAYOUT_INFO_TYPES, integers(types)),
    ];
    Node::made(D::LAYOUT_INFO_DESCRIPTOR, values, Product::Plain)
}

fn graph_of(node: &Node, name: N) -> Outcome<Arc<Graph>> {
    match node.node(name)?.product(&name.shown())? {
        Product::Graph(graph) => Ok(graph),
        _ => bad(format!("{} is no graph", name.shown())),
    }
}

/// The engine of an index of a graph.
pub fn finalize(node: &Node) -> Outcome<Product> {
    let graph = graph_of(node, N::ENGINE_OPERATION_GRAPH)?;
    let index = node.integer(N::ENGINE_GLOBAL_INDEX);
    engine_of(&graph, index).map(|engine| Product::Engine(Arc::new(engine)))
}

fn engine_of(graph: &Arc<Graph>, index: i64) -> Outcome<Engine> {
    let count = graph.engines.len();
    let Some(at) = usize::try_from(index).ok().filter(|at| *at <= count) else {
        return refuse(format!("the engine's index is {index}, the graph has {}", count + 1));
    };
    let bare = |config, knobs, notes, described| Engine {
        graph: graph.clone(),
        config,
        knobs,
        notes,
        described,
    };
    let Some(name) = graph.engines.get(at) else {
        let compiled = Notes { behavior: vec![Behavior::RuntimeCompilation], ..Notes::default() };
        return Ok(bare(None, Vec::new(), compiled, [Vec::new(), Vec::new()]));
    };
    let target = graph.gpu.kiln.device().target();
    let supported = engine::supported(name, graph.graph.canonical(), target)?;
    let config = supported.heuristic();
    let knobs = supported.knobs();
    let mut notes = supported.notes(&config);
    notes.behavior.push(Behavior::RuntimeCompilation);
    let types = knob_types(&knobs);
    let infos = knobs.iter().zip(types).map(|(knob, of)| knob_info(knob, of)).collect();
    let layouts = supported.layouts().iter().map(layout_info).collect();
    Ok(bare(Some(config), knobs, notes, [infos, layouts]))
}

/// An engine with choices of knobs.
pub fn config(node: &Node) -> Outcome<Product> {
    let Product::Engine(engine) = node.node(N::ENGINECFG_ENGINE)?.product("the engine")? else {
        return bad("the engine is none");
    };
    let types = knob_types(&engine.knobs);
    let mut config = engine.config.clone();
    for choice in node.nodes(N::ENGINECFG_KNOB_CHOICES) {
        let of = KnobType(choice.integer(N::KNOB_CHOICE_KNOB_TYPE) as i32);
        let given = choice.integer(N::KNOB_CHOICE_KNOB_VALUE);
        let name = KnobType::TABLE.shown(of.0);
        let Some(at) = types.iter().position(|known| *known == of) else {
            return refuse(format!("the engine has no knob {name}"));
        };
        let knob = &engine.knobs[at];
        let Some(value) = value(knob, given) else {
            let [least, most, stride] = range(knob);
            return refuse(format!(
                "{name} ({}) is {given}, expected {least} to {most} in steps of {stride}",
                knob.name
            ));
        };
        config = config.map(|config| config.with(knob.name, value));
    }
    Ok(Product::Config(Arc::new(Config { engine, config })))
}

/// Configurations for a graph, the best first.
pub fn heuristics(node: &Node) -> Outcome<Product> {
    let name = N::ENGINEHEUR_OPERATION_GRAPH;
    let (graph, described) = (graph_of(node, name)?, node.node(name)?);
    let mode = match HeurMode(node.integer(N::ENGINEHEUR_MODE) as i32) {
        HeurMode::B => Mode::B,
        HeurMode::FALLBACK => Mode::Fallback,
        _ => Mode::A,
    };
    let kiln = &graph.gpu.kiln;
    let selection = Selection { mode, ..kiln.selection().clone() };
    let found = engine::choices(graph.graph.canonical(), kiln.device().target(), &selection);
    let mut results = Vec::new();
    for choice in found.unwrap_or_default() {
        let at = graph.engines.iter().position(|name| *name == choice.config.engine);
        results.extend(at.map(|at| chosen(&graph, &described, at, Some(choice.config))));
    }
    // What the library's own plan is, where that has several kernels: the cost model found that
    // they take less time than one, but for the fallback's.
    if kiln.parts(&graph.graph).is_ok_and(|parts| parts.len() > 1 || results.is_empty()) {
        let at = if mode == Mode::Fallback { results.len() } else { 0 };
        results.insert(at, chosen(&graph, &described, graph.engines.len(), None));
    }
    Ok(Product::Heuristics(results.into_iter().collect::<Outcome<_>>()?))
}

/// A finalized descriptor of a configuration.
fn chosen(
    graph: &Arc<Graph>,
    described: &Arc<Node>,
    at: usize,
    config: Option<EngineConfig>,
) -> Outcome<Arc<Node>> {
    let engine = Arc::new(engine_of(graph, at as i64)?);
    let types = knob_types(&engine.knobs);
    let mut choices = Vec::new();
    for (knob, of) in engine.knobs.iter().zip(types) {
        let Some(value) = config.as_ref().and_then(|config| config.knob(knob.name).ok()) else {
            continue;
        };
        let values = [
            (N::KNOB_CHOICE_KNOB_TYPE, integers([i64::from(of.0)])),
            (N::KNOB_CHOICE_KNOB_VALUE, integers([number(knob, value)])),
        ];
        choices.push(Node::made(D::KNOB_CHOICE_DESCRIPTOR, values, Product::Plain));
    }
    let product = Product::Engine(engine.clone());
    let own = [
        (N::ENGINE_OPERATION_GRAPH, Value::Nodes(vec![described.clone()])),
        (N::ENGINE_GLOBAL_INDEX, integers([at as i64])),
    ];
    let attributes = own.into_iter().chain(product.attributes());
    let node = Node::made(D::ENGINE_DESCRIPTOR, attributes, product);
    let values = [
        (N::ENGINECFG_ENGINE, Value::Nodes(vec![node])),
        (N::ENGINECFG_KNOB_CHOICES, Value::Nodes(choices)),
    ];
    let product = Product::Config(Arc::new(Config { engine, config }));
    Ok(Node::made(D::ENGINECFG_DESCRIPTOR, values, product))
}
