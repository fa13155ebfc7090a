//! GEMMs that depend on iterators and on what is the same in all trips alone: those of all trips
//! are computed before the loop, as one, and iterated over.

use std::collections::{BTreeSet, HashMap};

use crate::error::Result;
use crate::expr::ModeClass;
use crate::graph::{Matmul, MatmulMath, Op, Operation};
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;
use crate::loops::rewrite::Rewrite;
use crate::tensor::{DIMS_MAX, TensorDesc, packed_strides};

/// The trips for which something is computed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    trips: i64,
    reverse: bool,
}

impl Network {
    /// The network with such GEMMs before their loops. Its tensors and loops are those of this
    /// one, and others.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub(crate) fn hoisted(&self) -> Result<Network> {
        let mut hoist = Hoist {
            network: self,
            rewrite: Rewrite::of(self),
            whole: HashMap::new(),
            extents: HashMap::new(),
        };
        let loops: Vec<Loop> = self.loops().collect();
        let moved = loops.iter().map(|of| hoist.hoist(*of)).sum::<usize>();
        if moved == 0 {
            return Ok(self.clone());
        }
        hoist.rewrite.network()
    }
}

struct Hoist<'a> {
    network: &'a Network,
    rewrite: Rewrite<'a>,
    /// All elements of a tensor of a loop, along a first axis; of what is the same in all trips
    /// one.
    whole: HashMap<i64, i64>,
    /// Of the tensors that differ from trip to trip of the loop those that are computed so.
    extents: HashMap<i64, Extent>,
}

impl Hoist<'_> {
    /// Moves what can be moved out of a loop; returns how many GEMMs that are.
    fn hoist(&mut self, of: Loop) -> usize {
        let candidates = self.candidates(of);
        let multiplies = |at: &usize| matches!(self.operation(*at).op, Op::Matmul(_));
        let gemms: Vec<usize> = candidates.keys().copied().filter(multiplies).collect();
        // Behind a GEMM everything is moved that can be; before it what it needs.
        let mut moved: BTreeSet<usize> = gemms.iter().copied().collect();
        let mut order: Vec<usize> = candidates.keys().copied().collect();
        order.sort_unstable();
        for at in &order {
            let inputs = &self.operation(*at).inputs;
            let comes_behind =
                moved.iter().any(|of| inputs.contains(&self.operation(*of).outputs[0]));
            if comes_behind {
                moved.insert(*at);
            }
        }
        let mut needed = moved.clone();
        for at in order.iter().rev() {
            let y = self.operation(*at).outputs[0];
            if needed.iter().any(|of| self.operation(*of).inputs.contains(&y)) {
                needed.insert(*at);
            }
        }
        for at in &needed {
            let operation = self.operation(*at).clone();
            let Extent { trips, reverse } = candidates[at];
            let y = operation.outputs[0];
            let whole = self.all_trips(&operation, trips);
            self.whole.insert(y, whole);
            if moved.contains(at) {
                self.rewrite.replace(*at, Layer::Iterator { of, x: whole, axis: 0, reverse, y });
            }
        }
        self.whole.clear();
        gemms.len()
    }

    fn operation(&self, at: usize) -> &Operation {
        match &self.network.layers()[at] {
            Layer::Operation(operation) => operation,
            _ => unreachable!("candidates are operations"),
        }
    }

    /// Operations on iterators of a loop, with what is the same in all of its trips.
    fn candidates(&mut self, of: Loop) -> HashMap<usize, Extent> {
        let mut extents: HashMap<i64, Extent> = HashMap::new();
        let mut candidates = HashMap::new();
        let network = self.network;
        for (at, layer) in network.layers().iter().enumerate() {
            match layer {
                Layer::Iterator { of: own, x, axis, reverse, y } if *own == of => {
                    let Ok(desc) = network.tensor(*x) else { continue };
                    let trips = desc.dims[*axis];
                    // Elements along the last axis have no rows.
                    if trips > 0 && axis + 1 < desc.dims.len() {
                        extents.insert(*y, Extent { trips, reverse: *reverse });
                    }
                }
                Layer::Operation(operation) if is_liftable(network, operation) => {
                    let own = operation.inputs.iter().filter_map(|uid| extents.get(uid));
                    let own: Vec<Extent> = own.copied().collect();
                    let Some(first) = own.first().copied() else { continue };
                    let is_fixed = |uid: &i64| {
                        let by_value = network.tensor(*uid).is_ok_and(|desc| desc.by_value);
                        extents.contains_key(uid)
                            || (!network.nest(*uid).contains(&of) && !by_value)
                    };
                    let agree = own.iter().all(|extent| *extent == first);
                    if agree && operation.inputs.iter().all(is_fixed) {
                        extents.insert(operation.outputs[0], first);
                        candidates.insert(at, first);
                    }
                }
                _ => {}
            }
        }
        self.extents = extents;
        candidates
    }

    /// An operation for all trips at once; returns its result.
    fn all_trips(&mut self, operation: &Operation, trips: i64) -> i64 {
        let y = self.rewrite.desc(operation.outputs[0]).clone();
        if let (Op::Matmul(op), [a, b]) = (&operation.op, &operation.inputs[..])
            && let Some(rows) = self.rows(*a, *b, trips)
        {
            // One GEMM with the rows of all trips.
            let b = *b;
            let all = [self.rewrite.desc(rows).dims[0], y.dims[1]];
            let c = self.rewrite.tensor(&all, y.dtype);
            self.rewrite.add(Op::Matmul(*op), vec![rows, b], vec![c]);
            return self.rewrite.reshaped(c, &lifted(&y, trips));
        }
        let inputs = operation.inputs.clone();
        let inputs: Vec<i64> = inputs.into_iter().map(|uid| self.elements(uid)).collect();
        let whole = self.rewrite.tensor(&lifted(&y, trips), y.dtype);
        self.rewrite.add(operation.op.clone(), inputs, vec![whole]);
        whole
    }

    /// The rows of all trips as one matrix, if a GEMM's operands are rows of a trip and a matrix
    /// that is the same in all trips.
    fn rows(&mut self, a: i64, b: i64, trips: i64) -> Option<i64> {
        let is_matrix = self.rewrite.desc(a).dims.len() == 2;
        if !is_matrix || self.extents.contains_key(&b) || !self.extents.contains_key(&a) {
            return None;
        }
        let all = self.elements(a);
        let desc = self.rewrite.desc(all).clone();
        let [rows, columns] = [self.rewrite.desc(a).dims[0], self.rewrite.desc(a).dims[1]];
        let is_packed = desc.strides == packed_strides(&desc.dims);
        let is_turned = self.rewrite.layers().iter().any(|layer| {
            let own = |of: &Operation| of.outputs == [all] && matches!(of.op, Op::Transpose(_));
            matches!(layer, Layer::Operation(of) if own(of))
        });
        (is_packed && !is_turned).then(|| self.rewrite.reshaped(all, &[trips * rows, columns]))
    }

    /// All elements of an operand along a first axis.
    fn elements(&mut self, uid: i64) -> i64 {
        if let Some(whole) = self.whole.get(&uid) {
            return *whole;
        }
        let iterated = self.network.layers().iter().find_map(|layer| match layer {
            Layer::Iterator { x, axis, y, .. } if *y == uid => Some((*x, *axis)),
            _ => None,
        });
        // That of another loop is the same in all trips of this one.
        let iterated = iterated.filter(|_| self.extents.contains_key(&uid));
        let whole = match iterated {
            Some((x, axis)) => self.rewrite.led_by(x, axis),
            None => {
                let dims = lifted(self.rewrite.desc(uid), 1);
                self.rewrite.reshaped(uid, &dims)
            }
        };
        self.whole.insert(uid, whole);
        whole
    }
}

/// Whether an operation means the same with an axis more in front of all its tensors.
fn is_liftable(network: &Network, operation: &Operation) -> bool {
    let y = operation.outputs.first().and_then(|uid| network.tensor(*uid).ok());
    if y.is_none_or(|y| y.dims.len() >= DIMS_MAX) {
        return false;
    }
    match &operation.op {
        Op::Pointwise(op) => matches!(op.mode.class(), ModeClass::Unary | ModeClass::Binary),
        Op::Matmul(op) => *op == Matmul::new(op.math) && op.math != MatmulMath::I32,
        _ => false,
    }
}

/// The dimensions of all trips' elements.
fn lifted(of: &TensorDesc, trips: i64) -> Vec<i64> {
    std::iter::once(trips).chain(of.dims.iter().copied()).collect()
}
