//! What the template of pointwise loops reads.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::pointwise_loop::Settings;
use crate::engine::pointwise_loop::problem::{Problem, Role};
use crate::engine::signature::{Indent, Width, ctype, kernel_parameter, list};
use crate::expr::Identifiers;

/// Names of the kernel's own variables and functions.
const OWN_WORDS: [&str; 14] = [
    "at", "body", "here", "k", "load", "more", "most", "p", "place", "store", "stored", "trip",
    "max", "min",
];

/// Variables of `pointwise/sm75_pointwise_loop.cu`.
#[derive(Debug, Serialize)]
pub(super) struct Parameters {
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    wide: bool,
    threads: i64,
    ahead: i64,
    elements: i64,
    extents: Vec<i64>,
    /// Coordinates of an element, from its number.
    coordinates: Vec<String>,
    /// The count, as an expression; `None` where a condition alone ends the loop.
    count: Option<String>,
    condition: bool,
    trips_max: i64,
    trips_made: Option<String>,
    results: Vec<Output>,
    states: Vec<State>,
    iterated: Vec<Iterated>,
    captured: Vec<Captured>,
    last: Vec<Last>,
    stacked: Vec<Stacked>,
    layouts: Vec<Layout>,
    lines: Vec<String>,
    body_parameters: String,
    body_arguments: String,
    kernel_parameters: String,
}

/// A result of a trip.
#[derive(Debug, Serialize)]
struct Output {
    name: String,
    ctype: &'static str,
}

/// A state, and the result that is its next value.
#[derive(Debug, Serialize)]
struct State {
    name: String,
    next: String,
    ctype: &'static str,
    value_type: &'static str,
    tensor: String,
    by_value: bool,
}

#[derive(Debug, Serialize)]
struct Iterated {
    name: String,
    ctype: &'static str,
    tensor: String,
    reverse: bool,
}

#[derive(Debug, Serialize)]
struct Captured {
    name: String,
    ctype: &'static str,
    tensor: String,
    by_value: bool,
}

#[derive(Debug, Serialize)]
struct Last {
    state: String,
    ctype: &'static str,
    tensor: String,
    guard: String,
}

#[derive(Debug, Serialize)]
struct Stacked {
    name: String,
    ctype: &'static str,
    value_type: &'static str,
    tensor: String,
    reverse: bool,
    guard: String,
}

/// Where the elements of a tensor are.
#[derive(Debug, Serialize)]
struct Layout {
    name: String,
    text: String,
    /// How many trips it has elements for, and the distance of those of neighbours.
    trips: Option<[i64; 2]>,
    /// Coordinates that it depends on, with the distance of neighbours.
    strides: Vec<(usize, i64)>,
}

impl Parameters {
    pub(super) fn of(problem: &Problem<'_>, settings: Settings) -> Parameters {
        let Problem { graph, op, dims, .. } = problem;
        let program = op.program.simplified();
        let mut identifiers = Identifiers::reserving(&OWN_WORDS);
        let mut names = vec![String::new(); graph.tensors.len()];
        for at in problem.tensors.passed() {
            names[at] = identifiers.fresh(&graph.tensors[at].name);
        }
        let tensors = problem.roles();
        let inputs = &tensors[..program.inputs().len()];
        let values: Vec<String> =
            program.inputs().iter().map(|input| identifiers.fresh(&input.name)).collect();
        let results: Vec<String> = program
            .outputs()
            .iter()
            .map(|value| identifiers.fresh(&format!("{}_out", program.name(*value))))
            .collect();
        let emitted = program.emit(&values, &results, &mut identifiers);
        let guard = |at: usize, leading: usize| {
            let own = &graph.tensors[at].dims[leading..];
            let shared = own.iter().zip(dims).enumerate().filter(|(_, (own, all))| own != all);
            let first: Vec<String> = shared.map(|(axis, _)| format!("p.i{axis} == 0")).collect();
            first.join(" && ")
        };
        let (mut states, mut iterated, mut captured) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last, mut stacked, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
        for (input, (role, at)) in inputs.iter().enumerate() {
            let (desc, name, tensor) =
                (&graph.tensors[*at], values[input].clone(), names[*at].clone());
            let (ctype, by_value) = (ctype(desc.dtype), desc.by_value);
            let register = emitted.input_types[input];
            arguments.push(match role {
                Role::Iterated(_) => format!("{name}_in[k].get(0)"),
                Role::Captured if by_value => format!("{register}({tensor})"),
                Role::Captured => format!("{name}_in.get(0)"),
                _ => format!("{name}.get(0)"),
            });
            match role {
                Role::Initial(state) => {
                    let (next, value_type) =
                        (results[*state].clone(), emitted.outputs[*state].ctype);
                    states.push(State { name, next, ctype, value_type, tensor, by_value });
                }
                Role::Iterated(iterator) => {
                    let reverse = op.frame.iterated[*iterator];
                    iterated.push(Iterated { name, ctype, tensor, reverse });
                }
                _ => captured.push(Captured { name, ctype, tensor, by_value }),
            }
        }
        for (role, at) in &tensors[inputs.len()..] {
            let (desc, tensor) = (&graph.tensors[*at], names[*at].clone());
            match role {
                Role::Last(state) => {
                    let (state, ctype) = (values[*state].clone(), ctype(desc.dtype));
                    last.push(Last { state, ctype, tensor, guard: guard(*at, 0) });
                }
                Role::Stacked(value) => stacked.push(Stacked {
                    name: results[op.frame.states + value].clone(),
                    ctype: ctype(desc.dtype),
                    value_type: emitted.outputs[op.frame.states + value].ctype,
                    tensor,
                    reverse: op.frame.stacked[*value],
                    guard: guard(*at, 1),
                }),
                _ => unreachable!("operands come first"),
            }
        }
        let mut layouts: Vec<Layout> = Vec::new();
        for (role, at) in &tensors {
            let desc = &graph.tensors[*at];
            let leading = role.leading();
            if desc.by_value || layouts.iter().any(|of| of.name == names[*at]) {
                continue;
            }
            let axes = desc.dims[leading..].iter().zip(&desc.strides[leading..]).enumerate();
            let strides = axes.filter(|(_, (extent, _))| **extent != 1);
            layouts.push(Layout {
                name: names[*at].clone(),
                text: desc.to_string(),
                trips: (leading == 1).then(|| [desc.dims[0], desc.strides[0]]),
                strides: strides.map(|(axis, (_, stride))| (axis, *stride)).collect(),
            });
        }
        let parameters = values.iter().zip(&emitted.input_types);
        let mut body: Vec<String> =
            parameters.map(|(name, register)| format!("const {register} {name}")).collect();
        for (name, output) in results.iter().zip(&emitted.outputs) {
            body.push(format!("{}& {name}", output.ctype));
            arguments.push(name.clone());
        }
        let parameter = |at: usize| kernel_parameter(*graph, at, &names[at]);
        let kernel_parameters: Vec<String> =
            problem.tensors.passed().into_iter().map(parameter).collect();
        let count = problem.tensors.count().map(|at| match graph.tensors[at].by_value {
            true => names[at].clone(),
            false => format!("{}[0]", names[at]),
        });
        Parameters {
            listing: [op.to_string()]
                .into_iter()
                .chain(program.to_string().lines().map(str::to_owned))
                .collect(),
            functions: emitted.functions,
            wide: problem.is_wide(),
            threads: settings.threads,
            ahead: settings.ahead,
            elements: problem.elements,
            extents: dims.clone(),
            coordinates: coordinates(dims),
            count,
            condition: op.frame.condition,
            trips_max: op.frame.trips_max,
            trips_made: problem.tensors.trips_made().map(|at| names[at].clone()),
            results: results
                .iter()
                .zip(&emitted.outputs)
                .map(|(name, of)| Output { name: name.clone(), ctype: of.ctype })
                .collect(),
            states,
            iterated,
            captured,
            last,
            stacked,
            layouts,
            lines: emitted.lines,
            body_parameters: list(&body, Indent(4), Width(60)),
            body_arguments: list(&arguments, Indent(16), Width(70)),
            kernel_parameters: list(&kernel_parameters, Indent(4), Width(0)),
        }
    }
}

/// The coordinates of the element `at` along each dimension.
fn coordinates(dims: &[i64]) -> Vec<String> {
    let inner = |axis: usize| {
        let extents: Vec<String> = (axis + 1..dims.len()).map(|at| format!("EXTENT{at}")).collect();
        match &extents[..] {
            [] => String::new(),
            [only] => format!(" / {only}"),
            all => format!(" / ({})", all.join(" * ")),
        }
    };
    let outer = |axis: usize| if axis == 0 { String::new() } else { format!(" % EXTENT{axis}") };
    (0..dims.len()).map(|axis| format!("at{}{}", inner(axis), outer(axis))).collect()
}
