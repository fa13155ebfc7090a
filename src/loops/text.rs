//! Text of a network: sequences as `<X0, X1, ..>`, the layers of a loop indented below it.

use std::fmt;

use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::network::Network;

impl fmt::Display for Network {
    /// Prints inputs, layers and outputs, one per line. `h.0` is the first element of `h`, `x[0]`
    /// the first one along an axis.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tensor in self.inputs() {
            writeln!(f, "input  {tensor}")?;
        }
        Text { network: self }.layers(f, &[])
    }
}

struct Text<'a> {
    network: &'a Network,
}

impl Text<'_> {
    /// The layers whose values differ in the trips of these loops and no others.
    fn layers(&self, f: &mut fmt::Formatter<'_>, nest: &[Loop]) -> fmt::Result {
        let mut begun: Vec<Loop> = Vec::new();
        for layer in self.network.layers() {
            match layer {
                Layer::LoopOutput { of, .. } if self.network.around(*of) == nest => {
                    if !begun.contains(of) {
                        begun.push(*of);
                        self.header(f, *of, nest)?;
                        self.layers(f, &[nest, &[*of]].concat())?;
                    }
                    self.line(f, layer, nest)?;
                }
                Layer::LoopOutput { .. } | Layer::TripLimit { .. } => {}
                _ => {
                    let outputs = layer.outputs();
                    let own = outputs.first().map_or(&[][..], |uid| self.network.nest(*uid));
                    if own == nest {
                        self.line(f, layer, nest)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The loop and what limits its trips.
    fn header(&self, f: &mut fmt::Formatter<'_>, of: Loop, nest: &[Loop]) -> fmt::Result {
        let limit = |kind: TripLimit| {
            let uid = self.network.limit(of, kind)?;
            Some(format!(", {} {}", kind.name(), self.network.reference(uid)))
        };
        let limits = [TripLimit::Count, TripLimit::While].into_iter().filter_map(limit);
        let (name, limits) = (&self.network.descriptor(of).name, limits.collect::<String>());
        writeln!(f, "{:7}{}loop {name}{limits}", "", indent(nest))
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, layer: &Layer, nest: &[Loop]) -> fmt::Result {
        let name = |uid: &i64| self.network.reference(*uid);
        let result = |uid: &i64| match self.network.tensor(*uid) {
            Ok(tensor) => format!("{}: {}{:?}", name(uid), tensor.dtype, tensor.dims),
            Err(_) => name(uid),
        };
        let outputs = layer.outputs();
        let stored = |uid: &i64| self.network.tensor(*uid).is_ok_and(|tensor| !tensor.is_virtual);
        let kept = if outputs.iter().any(stored) { "output " } else { "" };
        let results: Vec<String> = outputs.iter().map(result).collect();
        write!(f, "{kept:7}{}{} = ", indent(nest), results.join(", "))?;
        match layer {
            Layer::Operation(operation) => {
                let operands: Vec<String> = operation.inputs.iter().map(name).collect();
                let (open, close) = ("<".repeat(nest.len()), ">".repeat(nest.len()));
                write!(f, "{open}{}({}){close}", operation.op, operands.join(", "))?;
            }
            Layer::Iterator { x, axis, reverse, .. } => {
                let (x, [first, second]) = (name(x), if *reverse { [-1, -2] } else { [0, 1] });
                write!(f, "<{x}[{first}], {x}[{second}], ..> along axis {axis}")?;
            }
            Layer::Recurrence { initial, next, .. } => {
                let (initial, next) = (name(initial), name(next));
                write!(f, "<{initial}, {next}.0, {next}.1, ..>")?;
            }
            Layer::LoopOutput { output, x, .. } => {
                let x = name(x);
                match output {
                    LoopOutput::LastValue => write!(f, "{x}.n")?,
                    LoopOutput::Concatenate { axis, .. } => {
                        write!(f, "[{x}.0, .., {x}.(n-1)] along axis {axis}")?;
                    }
                    LoopOutput::Reverse { axis, .. } => {
                        write!(f, "[{x}.(n-1), .., {x}.0] along axis {axis}")?;
                    }
                }
            }
            Layer::Conditional { condition, results } => {
                let of = |uids: Vec<i64>| uids.iter().map(name).collect::<Vec<_>>().join(", ");
                let then = of(results.iter().map(|of| of.then).collect());
                let otherwise = of(results.iter().map(|of| of.otherwise).collect());
                write!(f, "{} ? {then} : {otherwise}", name(condition))?;
            }
            Layer::TripLimit { .. } => {}
        }
        writeln!(f)
    }
}

fn indent(nest: &[Loop]) -> String {
    "  ".repeat(nest.len())
}
