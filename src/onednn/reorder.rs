//! Steps that move tensors from one format or type to another.

use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::OperationGraph;
use crate::onednn::constants::Constant;
use crate::onednn::integers::Integers;
use crate::onednn::step::{Home, Step};
use crate::tensor::TensorDesc;

/// A tensor and where it lies.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) tensor: TensorDesc,
    pub(super) home: Home,
}

/// A copy of a tensor, as [`sum`] of one.
pub(super) fn copy(from: Placed, to: Placed, integers: Option<&Integers>) -> Result<Step> {
    sum(vec![from], to, integers)
}

/// The sum of tensors of one type, rounded to the type of another tensor; of numbers or of what
/// integers stand for.
///
/// What is added up are numbers times the scale, which integers are but for a shift in each.
pub(super) fn sum(of: Vec<Placed>, to: Placed, integers: Option<&Integers>) -> Result<Step> {
    let rank = to.tensor.dims.len();
    let [from_numbers, to_numbers] = [&of[0], &to].map(|own| own.tensor.dtype.is_float());
    let shifts = if from_numbers { 0 } else { of.len() as i64 } - i64::from(!to_numbers);
    let mut graph = OperationGraph::builder();
    let mut homes = Vec::new();
    let mut place = |name: &str, Placed { tensor, home }: Placed| {
        let uid = graph.fresh_uid();
        homes.push((uid, home));
        graph.tensor(TensorDesc { uid, name: name.to_owned(), ..tensor })
    };
    let mut operands = of.into_iter();
    let mut x = place("from", operands.next().expect("there is one"));
    let others: Vec<i64> = operands.map(|own| place("and", own)).collect();
    let to = place("to", to);
    let mut constant = |name: &str, own: &Constant| {
        place(name, Placed { tensor: own.tensor(0, name, rank), home: own.home })
    };
    let scale = integers.filter(|_| from_numbers != to_numbers);
    let scale = scale.map(|own| constant("scale", &own.scale));
    let shift = integers.filter(|_| shifts != 0).and_then(|own| own.shift.as_ref());
    let shift = shift.map(|own| constant("shift", own));
    // Operations on what comes before them, and another operand.
    let mut chain: Vec<(Pointwise, i64)> = Vec::new();
    if from_numbers {
        chain.extend(scale.map(|scale| (Pointwise::new(Mode::Mul), scale)));
    }
    chain.extend(others.into_iter().map(|other| (Pointwise::new(Mode::Add), other)));
    let less = Pointwise::new(Mode::Sub).alphas(1.0, shifts as f64);
    chain.extend(shift.map(|shift| (less, shift)));
    if to_numbers {
        chain.extend(scale.map(|scale| (Pointwise::new(Mode::Div), scale)));
    }
    let Some((last, operand)) = chain.pop() else {
        graph.pointwise_into(Pointwise::new(Mode::Identity), &[x], to);
        return Ok(Step { graph: graph.build()?, homes });
    };
    for (op, operand) in chain {
        x = graph.pointwise(op, &[x, operand])?;
    }
    graph.pointwise_into(last, &[x, operand], to);
    Ok(Step { graph: graph.build()?, homes })
}
