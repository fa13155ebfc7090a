//! Programs in front of an operation and behind it, as statements.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::items::fusion::Fusion;
use crate::engine::items::layout::{Context, Layout, Load};
use crate::engine::program::Source;
use crate::engine::signature::{Indent, Width, ctype, list};

/// A program as statements.
pub(in crate::engine) struct Chain {
    pub(in crate::engine) parameters: Vec<String>,
    pub(in crate::engine) arguments: Vec<String>,
    pub(in crate::engine) lines: Vec<String>,
    pub(in crate::engine) types: Vec<&'static str>,
}

/// An operand.
#[derive(Debug, Serialize)]
pub(in crate::engine) struct Operand {
    name: &'static str,
    r#type: &'static str,
    /// Parameters of the functions that give offsets.
    element: String,
    tensors: Vec<Layout>,
    loaded: Vec<Load>,
    /// Whether it is computed from what is loaded.
    computed: bool,
    chain_parameters: String,
    chain_arguments: String,
    lines: Vec<String>,
    result_type: &'static str,
    /// The element of what is loaded or computed.
    value: String,
}

impl Context<'_> {
    /// A program as statements; what is read is an element of what was loaded.
    pub(in crate::engine) fn chain(
        &self,
        fusion: &Fusion,
        functions: &mut BTreeSet<&'static str>,
    ) -> Chain {
        let graph = self.graph;
        let mut identifiers = self.identifiers.clone();
        let program = &fusion.program;
        let is_own = |at: usize| at == fusion.tensor && at == self.epilogue.tensor;
        let mut name = |source: &Source| match source {
            Source::Tensor(at) if is_own(*at) => identifiers.fresh(self.operation),
            Source::Tensor(at) | Source::Position(at) => self.names[*at].clone(),
            Source::Coordinate(_) => identifiers.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(&mut name).collect();
        let output = |at: &usize| match self.names[*at].is_empty() || !graph.is_written(*at) {
            true => identifiers.fresh("result"),
            false => self.names[*at].clone(),
        };
        let outputs: Vec<String> = program.outputs.iter().map(output).collect();
        let text = program.program.emit(&inputs, &outputs, &mut identifiers);
        let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
        for input in (0..inputs.len()).filter(|input| program.reads(*input)) {
            let register = text.input_types[input];
            parameters.push(format!("const {register} {}", inputs[input]));
            arguments.push(match program.sources[input] {
                Source::Tensor(at) if is_own(at) => self.computed(at, register),
                Source::Tensor(at) if graph.tensors[at].by_value => {
                    format!("{register}({})", self.names[at])
                }
                Source::Tensor(at) => {
                    let item = if self.item_stride(fusion, at) == 0 { "0" } else { "j" };
                    format!("{}_in.get({item})", self.names[at])
                }
                Source::Position(at) => self.position(fusion, at),
                Source::Coordinate(axis) => {
                    format!("{register}({})", self.coordinate(fusion, &axis))
                }
            });
        }
        let results = outputs.iter().zip(&text.outputs);
        parameters.extend(results.map(|(name, output)| format!("{}& {name}", output.ctype)));
        functions.extend(text.functions);
        let types = text.outputs.iter().map(|output| output.ctype).collect();
        Chain { parameters, arguments, lines: text.lines, types }
    }

    /// The operation's result as the epilogue reads it: rounded to its type.
    fn computed(&self, at: usize, register: &str) -> String {
        let dtype = self.graph.tensors[at].dtype;
        let value = self.value;
        match dtype == self.math {
            true => value.to_owned(),
            false => format!("{register}(widen(Narrow<{}>::from({value})))", ctype(dtype)),
        }
    }

    /// Whether all items of a thread share an operand.
    pub(in crate::engine) fn is_shared(&self, fusion: &Fusion) -> bool {
        let mut stored = fusion.inputs().filter(|at| !self.graph.tensors[*at].by_value);
        stored.all(|at| self.item_stride(fusion, at) == 0) && !self.counts_items(fusion)
    }

    /// An operand that is read in the operation's precision. Tensors of its dimensions `beside` it
    /// lie as it does.
    pub(in crate::engine) fn operand(
        &self,
        fusion: &Fusion,
        beside: &[usize],
        functions: &mut BTreeSet<&'static str>,
    ) -> Operand {
        let graph = self.graph;
        let element = self.math.register();
        let stored: Vec<usize> =
            fusion.inputs().filter(|at| !graph.tensors[*at].by_value).collect();
        let positions: Vec<usize> = fusion.program.positions().collect();
        let placed = stored.iter().chain(&positions).chain(beside);
        let chain = self.chain(fusion, functions);
        let dtype = graph.tensors[fusion.tensor].dtype;
        let value = match fusion.is_plain() {
            true => format!("{element}({})", chain.arguments[0]),
            // The value that a virtual operand has is of its type.
            false => format!("{element}(widen(Narrow<{}>::from(value)))", ctype(dtype)),
        };
        let mut arguments = chain.arguments;
        arguments.push("value".to_owned());
        Operand {
            name: fusion.name,
            r#type: fusion.scope.expect("an operand has layouts of its own"),
            element: fusion.element.clone(),
            tensors: placed.map(|at| self.layout(fusion, *at)).collect(),
            loaded: stored.iter().map(|at| self.load(fusion, *at)).collect(),
            computed: !fusion.is_plain(),
            chain_parameters: list(&chain.parameters, Indent(8), Width(56)),
            chain_arguments: list(&arguments, Indent(18), Width(75)),
            lines: chain.lines,
            result_type: chain.types[0],
            value,
        }
    }
}
