//! GEMMs that depend on iterators and on what is the same in all trips alone: those of all trips
//! are computed before the loop, as one, and iterated over.

use std::collections::{BTreeSet, HashMap};

use crate::error::Result;
use crate::expr::ModeClass;
use crate::graph::{Matmul, MatmulMath, Op, Operation, Reshape, Transpose};
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;
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
            tensors: self.tensors().to_vec(),
            layers: self.layers().to_vec(),
            whole: HashMap::new(),
            extents: HashMap::new(),
            fresh: self.tensors().last().map_or(0, |tensor| tensor.uid.max(0)) + 1,
        };
        let loops: Vec<Loop> = self.loops().collect();
        let moved = loops.iter().map(|of| hoist.hoist(*of)).sum::<usize>();
        if moved == 0 {
            return Ok(self.clone());
        }
        let loops = loops.iter().map(|of| self.descriptor(*of).clone()).collect();
        Network::new(hoist.tensors, hoist.layers, loops)
    }
}

struct Hoist<'a> {
    network: &'a Network,
    tensors: Vec<TensorDesc>,
    layers: Vec<Layer>,
    /// All elements of a tensor of a loop, along a first axis; of what is the same in all trips
    /// one.
    whole: HashMap<i64, i64>,
    /// Of the tensors that differ from trip to trip of the loop those that are computed so.
    extents: HashMap<i64, Extent>,
    fresh: i64,
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
                self.layers[*at] = Layer::Iterator { of, x: whole, axis: 0, reverse, y };
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
        let y = self.desc(operation.outputs[0]).clone();
        if let (Op::Matmul(op), [a, b]) = (&operation.op, &operation.inputs[..])
            && let Some(rows) = self.rows(*a, *b, trips)
        {
            // One GEMM with the rows of all trips.
            let b = *b;
            let all = [self.desc(rows).dims[0], y.dims[1]];
            let c = self.make(&all, &y);
            let op = Op::Matmul(*op);
            self.add(op, vec![rows, b], c);
            return self.reshaped(c, &lifted(&y, trips));
        }
        let inputs = operation.inputs.clone();
        let inputs: Vec<i64> = inputs.into_iter().map(|uid| self.elements(uid)).collect();
        let whole = self.make(&lifted(&y, trips), &y);
        self.add(operation.op.clone(), inputs, whole);
        whole
    }

    /// The rows of all trips as one matrix, if a GEMM's operands are rows of a trip and a matrix
    /// that is the same in all trips.
    fn rows(&mut self, a: i64, b: i64, trips: i64) -> Option<i64> {
        let is_matrix = self.desc(a).dims.len() == 2;
        if !is_matrix || self.extents.contains_key(&b) || !self.extents.contains_key(&a) {
            return None;
        }
        let all = self.elements(a);
        let desc = self.desc(all).clone();
        let [rows, columns] = [self.desc(a).dims[0], self.desc(a).dims[1]];
        let is_packed = desc.strides == packed_strides(&desc.dims);
        let is_turned = self.layers.iter().any(|layer| {
            let own = |of: &Operation| of.outputs == [all] && matches!(of.op, Op::Transpose(_));
            matches!(layer, Layer::Operation(of) if own(of))
        });
        (is_packed && !is_turned).then(|| self.reshaped(all, &[trips * rows, columns]))
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
            Some((x, 0)) => x,
            Some((x, axis)) => {
                let desc = self.desc(x).clone();
                let rest = (0..desc.dims.len()).filter(|other| *other != axis);
                let permutation: Vec<usize> = std::iter::once(axis).chain(rest).collect();
                let dims: Vec<i64> = permutation.iter().map(|at| desc.dims[*at]).collect();
                let turned = self.make(&dims, &desc);
                self.add(Op::Transpose(Transpose { permutation }), vec![x], turned);
                turned
            }
            None => {
                let dims = lifted(self.desc(uid), 1);
                self.reshaped(uid, &dims)
            }
        };
        self.whole.insert(uid, whole);
        whole
    }

    fn reshaped(&mut self, uid: i64, dims: &[i64]) -> i64 {
        let like = self.desc(uid).clone();
        let reshaped = self.make(dims, &like);
        self.add(Op::Reshape(Reshape), vec![uid], reshaped);
        reshaped
    }

    fn desc(&self, uid: i64) -> &TensorDesc {
        let found = self.tensors.iter().find(|tensor| tensor.uid == uid);
        found.expect("operations name tensors of the network")
    }

    fn make(&mut self, dims: &[i64], like: &TensorDesc) -> i64 {
        let packed = TensorDesc::packed(self.fresh, "", dims, like.dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..packed });
        self.fresh += 1;
        self.fresh - 1
    }

    fn add(&mut self, op: Op, inputs: Vec<i64>, output: i64) {
        self.layers.push(Layer::Operation(Operation { op, inputs, outputs: vec![output] }));
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
