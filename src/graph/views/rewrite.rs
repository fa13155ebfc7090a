//! The values of a graph without the operations that move elements: each is computed where it is
//! wanted, as it is seen there.
//!
//! What is seen of an input is a tensor in its memory. What is seen of a pointwise operation's
//! result is computed from what is seen of its operands; likewise slices of products and of
//! reductions, as long as nothing is computed twice. All other results are seen as they are.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::expr::{Mode, Pointwise};
use crate::graph::find::find;
use crate::graph::operation::{Op, Operation};
use crate::graph::views::view::{Layout, View, then};
use crate::graph::{Concatenate, Matmul};
use crate::tensor::TensorDesc;

/// The memory of a tensor that is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::graph) struct Place {
    /// The tensor whose memory it is.
    pub(in crate::graph) uid: i64,
    /// Of the first element, from the beginning of that memory.
    pub(in crate::graph) offset: i64,
}

/// A graph being written without views; a copy of it is an attempt.
#[derive(Debug, Clone)]
pub(super) struct Rewrite<'a> {
    tensors: &'a [TensorDesc],
    operations: &'a [Operation],
    /// The operation that writes each tensor.
    writers: &'a HashMap<i64, usize>,
    /// Tensors that are not the graph's own, and where those in memory lie.
    pub(super) made: Vec<TensorDesc>,
    pub(super) places: BTreeMap<i64, Place>,
    pub(super) emitted: Vec<Operation>,
    /// What is known of tensors as they are seen.
    known: HashMap<(i64, Vec<View>), i64>,
    /// Elements that are computed of products and reductions.
    computed: HashMap<i64, i64>,
    fresh: i64,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(
        tensors: &'a [TensorDesc],
        operations: &'a [Operation],
        writers: &'a HashMap<i64, usize>,
    ) -> Rewrite<'a> {
        // From the least number on: there are fewer tensors than numbers.
        let fresh = i64::MIN;
        Rewrite {
            tensors,
            operations,
            writers,
            made: Vec::new(),
            places: BTreeMap::new(),
            emitted: Vec::new(),
            known: HashMap::new(),
            computed: HashMap::new(),
            fresh,
        }
    }

    pub(super) fn tensor(&self, uid: i64) -> &TensorDesc {
        let made = || self.made.iter().find(|tensor| tensor.uid == uid);
        find(self.tensors, uid).or_else(made).expect("operations name known tensors")
    }

    pub(super) fn writer(&self, uid: i64) -> Option<&'a Operation> {
        self.writers.get(&uid).map(|at| &self.operations[*at])
    }

    /// The tensor that holds what is seen of a tensor through some views.
    ///
    /// # Errors
    /// `NotSupported` where that cannot be said without moving elements.
    pub(super) fn value(&mut self, uid: i64, chain: &[View]) -> Result<i64> {
        self.value_named(uid, chain, None)
    }

    /// The same; what is seen of an input has this name.
    fn value_named(&mut self, uid: i64, chain: &[View], name: Option<&str>) -> Result<i64> {
        let key = (uid, chain.to_vec());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let value = match self.writer(uid) {
            None if chain.is_empty() => uid,
            None => self.place(uid, chain, name)?,
            Some(operation) => self.computed(uid, operation, chain)?,
        };
        self.known.insert(key, value);
        Ok(value)
    }

    fn computed(&mut self, uid: i64, operation: &Operation, chain: &[View]) -> Result<i64> {
        match (&operation.op, chain) {
            (Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_), _) => {
                let (x, chain) = self.behind(operation, chain);
                let name = self.tensor(uid).name.clone();
                self.value_named(x, &chain, Some(&name))
            }
            (Op::Concatenate(op), _) => self.piece(*op, operation, chain),
            (_, []) => {
                self.emit(operation)?;
                self.account(uid, operation, chain)?;
                Ok(uid)
            }
            (Op::Pointwise(op), _) => self.pointwise(op, operation, chain),
            (Op::Matmul(op), _) => self.product(op, operation, chain),
            (Op::Reduction(_), _) => self.reduction(operation, chain),
            (op, _) => refuse(format!("{op} writes its result as it is")),
        }
    }

    /// What an operation that moves elements sees, and through which views.
    pub(super) fn behind(&self, operation: &Operation, chain: &[View]) -> (i64, Vec<View>) {
        let (x, y) = (operation.inputs[0], operation.outputs[0]);
        let [from, to] = [x, y].map(|uid| self.tensor(uid).dims.clone());
        let view = match &operation.op {
            Op::Slice(slice) => {
                View::Slice { begin: slice.begin.clone(), stride: slice.stride.clone(), dims: to }
            }
            Op::Transpose(op) => View::Transpose(op.permutation.clone()),
            _ => View::Reshape { from: from.clone(), to },
        };
        let first = then(&[], view, &from);
        (x, chain.iter().fold(first, |all, view| then(&all, view.clone(), &from)))
    }

    /// An operation as it is, with the values of its operands.
    fn emit(&mut self, operation: &Operation) -> Result<()> {
        let inputs = operation.inputs.iter().map(|uid| self.value(*uid, &[]));
        let inputs = inputs.collect::<Result<_>>()?;
        let Operation { op, outputs, .. } = operation;
        self.known.extend(outputs.iter().map(|uid| ((*uid, Vec::new()), *uid)));
        self.emitted.push(Operation { op: op.clone(), inputs, outputs: outputs.clone() });
        Ok(())
    }

    /// A tensor in the memory of another, where what is seen of that through some views lies.
    ///
    /// # Errors
    /// `NotSupported` where no strides say it.
    pub(super) fn place(&mut self, uid: i64, chain: &[View], name: Option<&str>) -> Result<i64> {
        let base = self.tensor(uid);
        let name = name.filter(|name| !name.is_empty()).unwrap_or(&base.name).to_owned();
        let Some(Layout { dims, strides, offset }) = Layout::of(base).through(chain) else {
            let (own, strides) = (&base.name, &base.strides);
            return refuse(format!(
                "no strides say what is seen of `{own}` of strides {strides:?}"
            ));
        };
        let TensorDesc { dtype, by_value, alignment, .. } = *base;
        let bytes = offset.saturating_mul(dtype.bytes() as i64);
        let aligned = 1usize << bytes.trailing_zeros().min(62);
        let alignment = if offset == 0 { alignment } else { alignment.min(aligned) };
        let made = self.fresh_uid();
        let of = TensorDesc::packed(made, name, &dims, dtype);
        self.made.push(TensorDesc { strides, by_value, alignment, ..of });
        self.places.insert(made, Place { uid, offset });
        Ok(made)
    }

    fn fresh_uid(&mut self) -> i64 {
        let taken = |uid: i64| find(self.tensors, uid).is_some();
        while taken(self.fresh) {
            self.fresh += 1;
        }
        self.fresh += 1;
        self.fresh - 1
    }

    /// An intermediate like a tensor, of other dimensions.
    fn intermediate(&mut self, like: i64, dims: &[i64]) -> i64 {
        let TensorDesc { name, dtype, .. } = self.tensor(like).clone();
        let uid = self.fresh_uid();
        let of = TensorDesc::packed(uid, name, dims, dtype);
        self.made.push(TensorDesc { is_virtual: true, ..of });
        uid
    }

    /// Writes a value to a tensor.
    pub(super) fn store(&mut self, value: i64, into: i64) {
        let dtype = self.tensor(value).dtype;
        let op = Pointwise::new(Mode::Identity).resolved(&[dtype]);
        self.emitted.push(Operation::pointwise(op, &[value], into));
    }

    fn pointwise(&mut self, op: &Pointwise, operation: &Operation, chain: &[View]) -> Result<i64> {
        if op.mode == Mode::GenIndex {
            return refuse(format!("{op} counts along the dimensions that it has"));
        }
        let y = operation.outputs[0];
        let mut inputs = Vec::new();
        for uid in &operation.inputs {
            let seen = self.operand_chain(y, *uid, chain)?;
            inputs.push(self.value(*uid, &seen)?);
        }
        Ok(self.emit_seen(operation, inputs, chain))
    }

    /// An operation whose result is seen through views, as its operands are.
    fn emit_seen(&mut self, operation: &Operation, inputs: Vec<i64>, chain: &[View]) -> i64 {
        let y = operation.outputs[0];
        let result = self.intermediate(y, &self.seen_dims(y, chain));
        let op = operation.op.clone();
        self.emitted.push(Operation { op, inputs, outputs: vec![result] });
        result
    }

    fn seen_dims(&self, uid: i64, chain: &[View]) -> Vec<i64> {
        chain.iter().fold(self.tensor(uid).dims.clone(), |dims, view| view.dims(&dims))
    }

    /// The views of an operand that is broadcast to a tensor seen through these.
    fn operand_chain(&self, whole: i64, operand: i64, chain: &[View]) -> Result<Vec<View>> {
        let [mut whole, own] = [whole, operand].map(|uid| self.tensor(uid).dims.clone());
        let (mut seen, mut dims) = (Vec::new(), own.clone());
        for view in chain {
            let Some(of_operand) = view.of_operand(&whole, &dims) else {
                return refuse(format!("an operand of {own:?} is broadcast across a reshape"));
            };
            (whole, dims) = (view.dims(&whole), of_operand.dims(&dims));
            seen = then(&seen, of_operand, &own);
        }
        Ok(seen)
    }

    /// Notes that so many elements of a result are computed.
    ///
    /// # Errors
    /// `NotSupported` where some are computed twice, and that is more than to read them.
    fn account(&mut self, uid: i64, operation: &Operation, chain: &[View]) -> Result<()> {
        if !matches!(operation.op, Op::Matmul(_) | Op::Reduction(_)) {
            return Ok(());
        }
        let whole: i64 = self.tensor(uid).dims.iter().product();
        let dims = self.seen_dims(uid, chain);
        let computed = self.computed.entry(uid).or_default();
        *computed += dims.iter().product::<i64>();
        let sliced = !chain.is_empty() && !find(self.tensors, uid).is_some_and(|of| of.is_virtual);
        match *computed > whole || sliced {
            true => refuse(format!("{} would be computed twice", operation.op)),
            false => Ok(()),
        }
    }

    /// Slices of a product are products of slices.
    fn product(&mut self, op: &Matmul, operation: &Operation, chain: &[View]) -> Result<i64> {
        let y = operation.outputs[0];
        if *op != (Matmul { math: op.math, ..Matmul::default() }) {
            return refuse(format!("{op} with overrides writes its result as it is"));
        }
        self.account(y, operation, chain)?;
        let mut inputs = Vec::new();
        for (operand, uid) in operation.inputs.iter().enumerate() {
            let mut seen = Vec::new();
            for view in chain {
                let View::Slice { begin, stride, dims } = view else {
                    return refuse(format!("{op} writes its result as it is"));
                };
                let own = self.tensor(*uid).dims.clone();
                let rank = own.len();
                let now = seen.iter().fold(own.clone(), |dims, view: &View| view.dims(&dims));
                if dims.contains(&0) {
                    return refuse(format!("nothing is left of {op}"));
                }
                // K, and what is broadcast, is read whole.
                let whole = |axis: usize| axis + 1 == rank - operand || now[axis] == 1;
                let pick = |of: &[i64], all: &dyn Fn(usize) -> i64| {
                    (0..rank).map(|axis| if whole(axis) { all(axis) } else { of[axis] }).collect()
                };
                let view = View::Slice {
                    begin: pick(begin, &|_| 0),
                    stride: pick(stride, &|_| 1),
                    dims: pick(dims, &|axis| now[axis]),
                };
                seen = then(&seen, view, &own);
            }
            inputs.push(self.value(*uid, &seen)?);
        }
        Ok(self.emit_seen(operation, inputs, chain))
    }

    /// Slices of a reduction are reductions of slices.
    fn reduction(&mut self, operation: &Operation, chain: &[View]) -> Result<i64> {
        let (x, y) = (operation.inputs[0], operation.outputs[0]);
        self.account(y, operation, chain)?;
        let own = self.tensor(x).dims.clone();
        let reduced: Vec<bool> =
            own.iter().zip(&self.tensor(y).dims).map(|(x, y)| x != y).collect();
        let mut seen = Vec::new();
        for view in chain {
            let View::Slice { begin, stride, dims } = view else {
                return refuse(format!("{} writes its result as it is", operation.op));
            };
            if dims.contains(&0) {
                return refuse(format!("nothing is left of {}", operation.op));
            }
            let pick = |of: &[i64], all: &dyn Fn(usize) -> i64| {
                (0..own.len()).map(|at| if reduced[at] { all(at) } else { of[at] }).collect()
            };
            let view = View::Slice {
                begin: pick(begin, &|_| 0),
                stride: pick(stride, &|_| 1),
                dims: pick(dims, &|axis| own[axis]),
            };
            seen = then(&seen, view, &own);
        }
        let input = self.value(x, &seen)?;
        Ok(self.emit_seen(operation, vec![input], chain))
    }

    /// What is seen of a concatenation, where it is within one operand.
    fn piece(&mut self, op: Concatenate, operation: &Operation, chain: &[View]) -> Result<i64> {
        let apart = || refuse(format!("{op} is read where it is written"));
        let Some((View::Slice { begin, stride, dims }, rest)) = chain.split_first() else {
            return apart();
        };
        let axis = op.axis as usize;
        let (first, count) = (begin[axis], dims[axis]);
        let mut start = 0;
        for operand in &operation.inputs {
            let own = self.tensor(*operand).dims.clone();
            let end = start + own[axis];
            let last = first + (count - 1).max(0) * stride[axis];
            if first >= start && last < end && count > 0 {
                let mut begin = begin.clone();
                begin[axis] -= start;
                let view = View::Slice { begin, stride: stride.clone(), dims: dims.clone() };
                let chain = then(&[], view, &own);
                let chain = rest.iter().fold(chain, |all, view| then(&all, view.clone(), &own));
                return self.value(*operand, &chain);
            }
            start = end;
        }
        apart()
    }
}

pub(super) fn refuse<T>(rule: String) -> Result<T> {
    Err(Error::not_supported(rule))
}
