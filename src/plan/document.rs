//! JSON form of a plan: the problem, its parts, and the configuration of each.
//!
//! Loading a plan uses no heuristic: it yields the same kernels, from the caches if possible. A
//! document is valid for one version of Kiln and one GPU.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{
    Copied, Division, EngineConfig, Part, is_product, operands_of, primitives, with_copies,
};
use crate::error::{Error, Result};
use crate::graph::{Operation, OperationGraph};
use crate::plan::problem::Problem;
use crate::target::Target;

/// Increases whenever an older reader would misread a newer document.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanJson {
    kiln_plan: u32,
    version: String,
    target: Target,
    parts: Vec<PartJson>,
    /// Whether the parts are subgraphs of the problem written in primitives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    primitives: bool,
    /// Products of the problem, by a tensor that each writes, and operands of which they read
    /// copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    copies: Vec<(String, String)>,
    /// Products of the problem that read padded copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    padded_copies: Vec<String>,
    problem: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartJson {
    config: String,
    /// For each operation of the part one tensor that it writes: a name, or `#uid`.
    writes: Vec<String>,
    /// A tensor written by an operation of the problem: the part is a subgraph of that operation
    /// written in primitives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meaning_of: Option<String>,
}

/// Writes a plan's document; `problem` is the document of `graph`.
pub(super) fn document(
    graph: &OperationGraph,
    parts: &[Part],
    target: &Target,
    problem: Value,
) -> String {
    let division = Division::of(graph, parts).expect("the parts are of the graph");
    let part = |part: &Part| {
        let (source, meaning) = division.source(graph, part);
        let writes = part.graph.operations().iter().map(|of| named(source, of)).collect();
        let operation = meaning.map(|at| &graph.operations()[at]);
        let meaning_of = operation.map(|of| named(graph, of));
        PartJson { config: part.config.to_string(), writes, meaning_of }
    };
    let copied: &[Copied] = match &division {
        Division::Copies(copied, _) => copied,
        _ => &[],
    };
    let document = PlanJson {
        kiln_plan: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: target.clone(),
        parts: parts.iter().map(part).collect(),
        primitives: matches!(division, Division::Primitives(_)),
        copies: copied.iter().filter_map(|of| copy_named(graph, *of)).collect(),
        padded_copies: copied.iter().filter_map(|of| padded_named(graph, *of)).collect(),
        problem,
    };
    serde_json::to_string_pretty(&document).expect("plain data is JSON")
}

/// Reads a plan's document: its graph and parts.
///
/// # Errors
/// As [`Kiln::plan_from_json`](crate::Kiln::plan_from_json).
pub(super) fn parts_in(text: &str, device: &Target) -> Result<(OperationGraph, Vec<Part>)> {
    let malformed = |error: serde_json::Error| Error::bad_param(format!("malformed plan: {error}"));
    let document: Value = serde_json::from_str(text).map_err(malformed)?;
    // Checked first: another schema has other fields.
    match document["kiln_plan"].as_u64() {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            let text = format!("the plan has schema {schema}, this version reads {SCHEMA}");
            return Err(Error::not_supported(text));
        }
        None => return Err(Error::bad_param("malformed plan: it has no key `kiln_plan`")),
    }
    let PlanJson {
        version, target, parts, primitives: deeper, copies, padded_copies, problem, ..
    } = serde_json::from_value(document).map_err(malformed)?;
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        let text = format!("the plan is of version {version}, this is {own}: plan it again");
        return Err(Error::not_supported(text));
    }
    if target != *device {
        let text = format!("the plan is for {target}, this device is {device}: plan it again");
        return Err(Error::not_supported(text));
    }
    let problem = Problem::from_json(&problem.to_string())?;
    let graph = problem.only_graph()?;
    let copied = copies.iter().map(|(product, operand)| {
        let missing = || bad(format!("no tensor of the problem is called `{operand}`"));
        let operand = graph.referred(operand).ok_or_else(missing)?;
        let product = writer(graph, product)?;
        let known = &graph.operations()[product];
        match is_product(known) && operands_of(known).any(|uid| *uid == operand) {
            true => Ok(Copied::Operand { product, operand }),
            false => Err(bad(format!("`{}` has no copy for a product", graph.reference(operand)))),
        }
    });
    let padded = padded_copies.iter().map(|product| {
        let product = writer(graph, product)?;
        Ok(Copied::Padded { product })
    });
    let copied: Vec<Copied> = copied.chain(padded).collect::<Result<_>>()?;
    if !copied.is_empty() && (deeper || parts.iter().any(|part| part.meaning_of.is_some())) {
        return Err(bad("copies are of operations that are not written in primitives".to_owned()));
    }
    let parts = match deeper {
        true => parts_of(&primitives(graph)?, &parts)?,
        false if copied.is_empty() => parts_of(graph, &parts)?,
        false => parts_of(&with_copies(graph, &copied)?, &parts)?,
    };
    Ok((graph.clone(), parts))
}

/// The names of a product and of an operand that it reads a copy of.
fn copy_named(graph: &OperationGraph, of: Copied) -> Option<(String, String)> {
    let Copied::Operand { product, operand } = of else { return None };
    Some((named(graph, &graph.operations()[product]), graph.reference(operand)))
}

/// The name of a product that reads padded copies.
fn padded_named(graph: &OperationGraph, of: Copied) -> Option<String> {
    let Copied::Padded { product } = of else { return None };
    Some(named(graph, &graph.operations()[product]))
}

/// The graphs that parts are subgraphs of.
struct Sources<'a> {
    /// The problem's graph, then the primitives of each operation in `decomposed`.
    graphs: Vec<&'a OperationGraph>,
    /// Positions of operations in the problem's graph.
    decomposed: &'a [usize],
}

/// An operation of one of the graphs of [`Sources`].
struct Source<'a> {
    graph: usize,
    at: usize,
    operation: &'a Operation,
}

impl<'a> Sources<'a> {
    fn operations(&self) -> Vec<Source<'a>> {
        let is_own = |graph: usize, at: &usize| graph > 0 || !self.decomposed.contains(at);
        let all = self.graphs.iter().enumerate().flat_map(|(number, graph)| {
            let operations = graph.operations().iter().enumerate();
            operations.map(move |(at, operation)| Source { graph: number, at, operation })
        });
        all.filter(|of| is_own(of.graph, &of.at)).collect()
    }
}

fn bad(text: String) -> Error {
    Error::bad_param(format!("malformed plan: {text}"))
}

/// What an operation of a graph is called: as what it writes, or by its position where it writes
/// nothing, as a wait for a signal does that passes nothing on.
fn named(graph: &OperationGraph, operation: &Operation) -> String {
    match operation.outputs.first() {
        Some(uid) => graph.reference(*uid),
        None => {
            let at = graph.operations().iter().position(|own| own == operation);
            position(at.expect("the operation is of the graph"))
        }
    }
}

fn position(at: usize) -> String {
    format!("operations[{at}]")
}

/// The position of the operation that is called so.
fn writer(graph: &OperationGraph, name: &str) -> Result<usize> {
    let operations = graph.operations();
    let writes = |uid| operations.iter().position(|of| of.outputs.contains(&uid));
    let writes_nothing = |at: &usize| operations[*at].outputs.is_empty() && position(*at) == name;
    let silent = || (0..operations.len()).find(writes_nothing);
    let missing = || bad(format!("no operation of the problem writes `{name}`"));
    graph.referred(name).and_then(writes).or_else(silent).ok_or_else(missing)
}

/// Reads the parts of a graph and checks that they cover each operation once, in an executable
/// order.
fn parts_of(graph: &OperationGraph, listed: &[PartJson]) -> Result<Vec<Part>> {
    let decomposed = listed.iter().filter_map(|part| part.meaning_of.as_deref());
    let decomposed: Vec<usize> =
        decomposed.map(|name| writer(graph, name)).collect::<Result<_>>()?;
    let division = Division::apart(graph, decomposed)?;
    let Division::Apart(decomposed, meanings) = &division else { unreachable!("it was made so") };
    let graphs = std::iter::once(graph).chain(meanings).collect();
    let sources = Sources { graphs, decomposed };
    let operations = sources.operations();
    // The graph of each part by its position in `sources`, and the part of each operation.
    let mut source_of = Vec::new();
    let mut owner: Vec<Option<usize>> = vec![None; operations.len()];
    for (number, PartJson { writes, meaning_of, .. }) in listed.iter().enumerate() {
        let meaning = meaning_of.as_deref().map(|name| writer(graph, name)).transpose()?;
        let place = |at: usize| decomposed.iter().position(|known| *known == at);
        let source = meaning.and_then(place).map_or(0, |at| at + 1);
        source_of.push(source);
        for name in writes {
            let at = writer(sources.graphs[source], name)?;
            let missing = || bad(format!("`{name}` is internal to an operation in primitives"));
            let place = operations.iter().position(|of| (of.graph, of.at) == (source, at));
            if owner[place.ok_or_else(missing)?].replace(number).is_some() {
                return Err(bad(format!("the operation that writes `{name}` is listed twice")));
            }
        }
    }
    for (Source { graph: source, operation, .. }, own) in operations.iter().zip(&owner) {
        let name = |uid: i64| sources.graphs[*source].reference(uid);
        let Some(own) = own else {
            let name = named(sources.graphs[*source], operation);
            return Err(bad(format!("no part runs the operation that writes `{name}`")));
        };
        for (Source { operation: other, .. }, theirs) in operations.iter().zip(&owner) {
            let needed = other.outputs.iter().find(|uid| operation.inputs.contains(uid));
            if let Some(uid) = needed.filter(|_| theirs > &Some(*own)) {
                let uid = name(*uid);
                return Err(bad(format!("a part reads `{uid}` before a later one writes it")));
            }
        }
    }
    let part = |(number, PartJson { config, .. }): (usize, &PartJson)| {
        let own = operations.iter().zip(&owner).filter(|(_, owner)| **owner == Some(number));
        let own: Vec<usize> = own.map(|(of, _)| of.at).collect();
        let config: EngineConfig = config.parse()?;
        let source = sources.graphs[source_of[number]];
        let whole = listed.len() == 1 && source_of[number] == 0;
        let graph = if whole { source.clone() } else { source.subgraph(&own)? };
        Ok(Part { graph, config })
    };
    listed.iter().enumerate().map(part).collect()
}
