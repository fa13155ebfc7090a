//! The body of a loop as a recurrent cell: rows of a batch, columns in blocks of hidden units, of
//! which each is a value of the cell.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::expr::{Mode, ModeClass, Pointwise};
use crate::graph::{Matmul, MatmulMath, Op, Operation};
use crate::loops::body::{Recurrence, Refused, desc, operations, recurrences};
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;

use crate::tensor::TensorDesc;

/// A block of columns of a tensor of the body: a value of the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// A block of an iterator's element.
    Gate { iterator: usize, block: usize },
    /// An iterator's element with one value for each row.
    Row { iterator: usize },
    /// The value of a recurrence.
    State(usize),
    /// A block of a GEMM's result.
    Product { gemm: usize, block: usize },
    /// A block of a tensor with one row that is the same in all trips.
    Parameter { tensor: usize, block: usize },
    /// The result of a line.
    Line(usize),
}

/// A pointwise operation on blocks.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) op: Pointwise,
    pub(super) operands: Vec<Lane>,
    pub(super) dtype: DType,
}

/// A GEMM with a matrix that is the same in all trips.
#[derive(Debug, Clone)]
pub(super) struct Gemm {
    pub(super) operand: Lane,
    /// `[hidden_size, blocks * hidden_size]`.
    pub(super) weights: i64,
    pub(super) blocks: usize,
    pub(super) math: MatmulMath,
}

/// The body of a loop.
#[derive(Debug)]
pub(super) struct Body<'a> {
    network: &'a Network,
    of: Loop,
    pub(super) batch: i64,
    pub(super) hidden_size: i64,
    /// The operand of the first GEMM is the first one.
    pub(super) states: Vec<Recurrence>,
    /// Iterators with blocks of hidden units, then those with a value for each row; by their
    /// elements.
    pub(super) iterators: Vec<i64>,
    pub(super) lines: Vec<Line>,
    pub(super) gemms: Vec<Gemm>,
    /// Tensors with one row that are the same in all trips, with their blocks.
    pub(super) parameters: Vec<(i64, usize)>,
    /// What is added to the blocks of the first iterator, and to those of the first GEMM.
    pub(super) x_bias: Option<i64>,
    pub(super) r_bias: Option<i64>,
    lanes: HashMap<i64, Vec<Lane>>,
    readers: HashMap<i64, usize>,
}

impl<'a> Body<'a> {
    /// Reads the body of a loop.
    pub(super) fn of(network: &'a Network, of: Loop) -> Refused<Body<'a>> {
        let mut states = recurrences(network, of);
        let operations = operations(network, of)?;
        if operations.iter().all(|operation| !matches!(operation.op, Op::Matmul(_))) {
            return Err("its body multiplies no matrices".to_owned());
        }
        if let Some(at) = first_state(&states, &operations) {
            states[..=at].rotate_right(1);
        }
        let Some(first) = states.first() else { return Err("it has no recurrence".to_owned()) };
        let desc = desc(network, first.y)?;
        let (batch, hidden_size) = extents(desc);
        let mut readers: HashMap<i64, usize> = HashMap::new();
        for uid in network.layers().iter().flat_map(Layer::inputs) {
            *readers.entry(uid).or_default() += 1;
        }
        let mut body = Body {
            network,
            of,
            batch,
            hidden_size,
            states,
            iterators: Vec::new(),
            lines: Vec::new(),
            gemms: Vec::new(),
            parameters: Vec::new(),
            x_bias: None,
            r_bias: None,
            lanes: HashMap::new(),
            readers,
        };
        body.states()?;
        body.iterators()?;
        for operation in operations {
            let y = operation.outputs[0];
            let lanes = body.operation(operation)?;
            body.lanes.insert(y, lanes);
        }
        Ok(body)
    }

    /// The blocks of a tensor of the body.
    pub(super) fn lanes_of(&mut self, uid: i64) -> Refused<Vec<Lane>> {
        if let Some(lanes) = self.lanes.get(&uid) {
            return Ok(lanes.clone());
        }
        // What is the same in all trips.
        let desc = self.desc(uid)?;
        let (rows, columns) = extents(desc);
        let name = self.network.reference(uid);
        if rows != 1 {
            return Err(format!("`{name}` is the same in all trips and has {rows} rows"));
        }
        if !desc.dtype.is_float() {
            return Err(format!("`{name}` is {}", desc.dtype));
        }
        let blocks = match columns == 1 {
            true => 1,
            false => self.blocks(columns).ok_or_else(|| self.uneven(uid, columns))?,
        };
        let tensor = self.parameters.len();
        self.parameters.push((uid, blocks));
        let lanes: Vec<Lane> = (0..blocks).map(|block| Lane::Parameter { tensor, block }).collect();
        self.lanes.insert(uid, lanes.clone());
        Ok(lanes)
    }

    /// The blocks of an iterator's elements.
    pub(super) fn lanes_of_iterator(&self, at: usize) -> Vec<Lane> {
        self.lanes.get(&self.iterators[at]).cloned().unwrap_or_default()
    }

    /// The type of a state.
    pub(super) fn state_type(&self, at: usize) -> DType {
        self.desc(self.states[at].y).map_or(DType::F32, |desc| desc.dtype)
    }

    fn desc(&self, uid: i64) -> Refused<&'a TensorDesc> {
        desc(self.network, uid)
    }

    fn blocks(&self, columns: i64) -> Option<usize> {
        let whole = columns > 0 && columns % self.hidden_size == 0;
        whole.then(|| (columns / self.hidden_size) as usize)
    }

    fn uneven(&self, uid: i64, columns: i64) -> String {
        let (name, hidden_size) = (self.network.reference(uid), self.hidden_size);
        format!("`{name}` has {columns} columns, the recurrences {hidden_size}")
    }

    fn states(&mut self) -> Refused<()> {
        for (at, state) in self.states.iter().enumerate() {
            let desc = self.desc(state.y)?;
            let (name, (rows, columns)) = (self.network.reference(state.initial), extents(desc));
            if !desc.dtype.is_float() || desc.dtype.is_f8() {
                return Err(format!("the recurrence from `{name}` is {}", desc.dtype));
            }
            if (rows, columns) != (self.batch, self.hidden_size) || desc.is_empty() {
                let dims = &desc.dims;
                return Err(format!("its recurrences differ in shape: `{name}` is {dims:?}"));
            }
            self.lanes.insert(state.y, vec![Lane::State(at)]);
        }
        Ok(())
    }

    /// Finds iterators that are read; the widest is the first one.
    fn iterators(&mut self) -> Refused<()> {
        let network = self.network;
        let mut found: Vec<(i64, i64)> = Vec::new();
        for layer in network.boundaries(self.of) {
            let Layer::Iterator { x, reverse, y, .. } = layer else { continue };
            let (name, desc) = (network.reference(*x), self.desc(*y)?);
            let (rows, columns) = extents(desc);
            if *reverse {
                return Err(format!("the iterator over `{name}` goes from the end"));
            }
            if !desc.dtype.is_float() || desc.dtype.is_f8() {
                return Err(format!("the iterator over `{name}` is of {}", desc.dtype));
            }
            if rows != self.batch {
                let batch = self.batch;
                return Err(format!("an element of `{name}` has {rows} rows, a state {batch}"));
            }
            if columns != 1 && self.blocks(columns).is_none() {
                return Err(self.uneven(*y, columns));
            }
            found.push((*y, columns));
        }
        found.sort_by_key(|(y, columns)| (-columns, *y));
        for (iterator, (y, columns)) in found.iter().enumerate() {
            let lanes = match self.blocks(*columns) {
                Some(blocks) => (0..blocks).map(|block| Lane::Gate { iterator, block }).collect(),
                None => vec![Lane::Row { iterator }],
            };
            self.iterators.push(*y);
            self.lanes.insert(*y, lanes);
        }
        match self.lanes.values().flatten().any(|lane| matches!(lane, Lane::Gate { .. })) {
            true => Ok(()),
            false => Err("no iterator has a value for each element of a recurrence".to_owned()),
        }
    }

    fn operation(&mut self, operation: &Operation) -> Refused<Vec<Lane>> {
        let y = self.desc(operation.outputs[0])?;
        let (rows, columns) = extents(y);
        if rows != self.batch {
            let name = operation.op.name();
            return Err(format!("a result of {name} has {rows} rows, a state {}", self.batch));
        }
        match &operation.op {
            Op::Pointwise(op) => self.pointwise(*op, operation, y),
            Op::Matmul(op) => self.gemm(*op, operation, columns),
            Op::Reshape(_) if columns == extents(self.desc(operation.inputs[0])?).1 => {
                self.lanes_of(operation.inputs[0])
            }
            Op::Slice(op) => {
                let lanes = self.lanes_of(operation.inputs[0])?;
                let last = y.dims.len() - 1;
                let from = self.desc(operation.inputs[0])?;
                let first = op.begin[last];
                let whole = (0..last).all(|axis| y.dims[axis] == from.dims[axis])
                    && op.stride[last] == 1
                    && first % self.hidden_size == 0;
                match self.blocks(columns).filter(|_| whole) {
                    Some(blocks) => {
                        let first = (first / self.hidden_size) as usize;
                        Ok(lanes[first..first + blocks].to_vec())
                    }
                    None => Err("a slice does not cut between blocks of hidden units".to_owned()),
                }
            }
            Op::Concatenate(op) if op.axis == y.dims.len() as i64 - 1 => {
                let mut lanes = Vec::new();
                for uid in &operation.inputs {
                    let own = self.lanes_of(*uid)?;
                    if self.blocks(extents(self.desc(*uid)?).1) != Some(own.len()) {
                        return Err(self.uneven(*uid, extents(self.desc(*uid)?).1));
                    }
                    lanes.extend(own);
                }
                Ok(lanes)
            }
            op => Err(format!("its body has {}", op.name())),
        }
    }

    fn pointwise(
        &mut self,
        op: Pointwise,
        operation: &Operation,
        y: &TensorDesc,
    ) -> Refused<Vec<Lane>> {
        if op.mode.class() == ModeClass::Index {
            return Err(format!("its body has {}", op.mode));
        }
        let mut all = Vec::new();
        for uid in &operation.inputs {
            all.push(self.lanes_of(*uid)?);
        }
        let columns = extents(y).1;
        let blocks = self.blocks(columns).ok_or_else(|| self.uneven(y.uid, columns))?;
        let is_plain = op.alpha1.get() == 1.0 && op.alpha2.get() == 1.0;
        // Intermediate values are f32 or f64 in any case.
        let is_kept = |uid: &i64| self.desc(*uid).is_ok_and(|x| x.dtype == y.dtype);
        if op.mode == Mode::Identity && is_plain && operation.inputs.iter().all(is_kept) {
            return Ok(all.swap_remove(0));
        }
        if op.mode == Mode::Add
            && is_plain
            && let Some(lanes) = self.biased(operation, y, &all)
        {
            return Ok(lanes);
        }
        let mut lanes = Vec::new();
        for block in 0..blocks {
            let operand = |lanes: &Vec<Lane>| lanes.get(block).or(lanes.first()).copied();
            let operands: Vec<Lane> = all.iter().filter_map(operand).collect();
            self.lines.push(Line { op, operands, dtype: y.dtype });
            lanes.push(Lane::Line(self.lines.len() - 1));
        }
        Ok(lanes)
    }

    /// Lets a bias be one of the layer's: of a sum that only it is added to, of all blocks of the
    /// first iterator or of the only GEMM.
    fn biased(
        &mut self,
        operation: &Operation,
        y: &TensorDesc,
        all: &[Vec<Lane>],
    ) -> Option<Vec<Lane>> {
        let [a, b] = [operation.inputs[0], operation.inputs[1]];
        let is_bias = |lanes: &[Lane]| matches!(lanes[0], Lane::Parameter { block: 0, .. });
        let (sum, lanes, bias) = match (is_bias(&all[0]), is_bias(&all[1])) {
            (false, true) => (a, &all[0], b),
            (true, false) => (b, &all[1], a),
            _ => return None,
        };
        let parts = [&all[0], &all[1]].iter().map(|lanes| lanes.len()).max();
        let bias_blocks = self.parameters.last().filter(|(uid, _)| *uid == bias)?.1;
        let last = self.parameters.len() - 1;
        let reads = |lane: &Lane| matches!(lane, Lane::Parameter { tensor, .. } if *tensor == last);
        if self.lines.iter().flat_map(|line| &line.operands).any(reads) {
            return None;
        }
        let is_wide = matches!(y.dtype, DType::F32 | DType::F64);
        let is_input = |lane: &Lane| matches!(lane, Lane::Gate { iterator: 0, .. });
        let is_product = |lane: &Lane| matches!(lane, Lane::Product { gemm: 0, .. });
        if parts != Some(bias_blocks) || lanes.len() != bias_blocks || !is_wide {
            return None;
        }
        // A parameter that was read for this operation alone is none.
        let inputs = self.all_of(lanes, &is_input).filter(|_| self.x_bias.is_none());
        let products = self.all_of(lanes, &is_product).filter(|_| self.r_bias.is_none());
        match (inputs, products) {
            (Some(true), _) if self.is_only_in(sum, &is_input) => self.x_bias = Some(bias),
            (None, Some(true)) if self.is_only_in(sum, &is_product) => self.r_bias = Some(bias),
            _ => return None,
        }
        self.parameters.pop();
        self.lanes.remove(&bias);
        Some(lanes.clone())
    }

    /// Whether what reads an operand of a sum reads nothing but the sum: a bias of the operand is
    /// part of it wherever it is read.
    fn is_only_in(&self, sum: i64, is_part: &dyn Fn(&Lane) -> bool) -> bool {
        let has = |uid: &i64| {
            let lanes = self.lanes.get(uid).and_then(|lanes| lanes.first());
            lanes.is_some_and(|lane| self.part(lane, is_part).is_some())
        };
        let mut uid = sum;
        loop {
            if self.readers.get(&uid) != Some(&1) {
                return false;
            }
            match self.network.writer(uid) {
                Some(Layer::Operation(of)) if !matches!(of.op, Op::Matmul(_)) => {
                    match of.inputs.iter().find(|uid| has(uid)) {
                        Some(operand) => uid = *operand,
                        None => return false,
                    }
                }
                _ => return true,
            }
        }
    }

    /// Whether blocks, or the sums that they are, have all blocks of an operand in order; `None`
    /// where one has no such operand.
    fn all_of(&self, lanes: &[Lane], is_part: &dyn Fn(&Lane) -> bool) -> Option<bool> {
        let whole = lanes.len() == self.parts(lanes, is_part)?;
        let own = |(block, lane): (usize, &Lane)| {
            let part = self.part(lane, is_part)?;
            let (Lane::Gate { block: at, .. } | Lane::Product { block: at, .. }) = part else {
                return None;
            };
            Some(at == block)
        };
        let ordered: Option<Vec<bool>> = lanes.iter().enumerate().map(own).collect();
        Some(whole && ordered?.into_iter().all(|ordered| ordered))
    }

    /// How many blocks the operand has.
    fn parts(&self, lanes: &[Lane], is_part: &dyn Fn(&Lane) -> bool) -> Option<usize> {
        match self.part(lanes.first()?, is_part)? {
            Lane::Gate { iterator, .. } => self.lanes.get(&self.iterators[iterator]).map(Vec::len),
            Lane::Product { gemm, .. } => Some(self.gemms[gemm].blocks),
            _ => None,
        }
    }

    /// The operand of a sum, or the value itself, that is a part.
    fn part(&self, lane: &Lane, is_part: &dyn Fn(&Lane) -> bool) -> Option<Lane> {
        let of = match lane {
            Lane::Line(at) => {
                let Line { op, operands, .. } = &self.lines[*at];
                let plain = op.alpha1.get() == 1.0 && op.alpha2.get() == 1.0;
                (op.mode == Mode::Add && plain).then_some(&operands[..])?
            }
            other => std::slice::from_ref(other),
        };
        of.iter().copied().find(is_part)
    }

    fn gemm(&mut self, op: Matmul, operation: &Operation, columns: i64) -> Refused<Vec<Lane>> {
        let [a, weights] = [operation.inputs[0], operation.inputs[1]];
        if op != Matmul::new(op.math) || op.math == MatmulMath::I32 {
            return Err("a GEMM of its body has other settings than a precision".to_owned());
        }
        let name = self.network.reference(weights);
        if self.network.nest(weights).contains(&self.of) {
            return Err(format!("a GEMM of its body is with `{name}`, which differs by trip"));
        }
        let lanes = self.lanes_of(a)?;
        let [operand] = lanes[..] else {
            return Err(format!("the operand of a GEMM with `{name}` is wider than a state"));
        };
        let (desc, own) = (self.desc(weights)?, self.desc(a)?);
        if extents(desc).0 != self.hidden_size {
            return Err(format!("`{name}` is {:?}, which is no matrix of states", desc.dims));
        }
        let dtype = self.desc(self.states[0].y)?.dtype;
        if desc.dtype != dtype || own.dtype != dtype {
            let (dtypes, state) = ([own.dtype, desc.dtype], dtype);
            return Err(format!("a GEMM of its body is of {dtypes:?}, the recurrence {state}"));
        }
        let blocks = self.blocks(columns).ok_or_else(|| self.uneven(weights, columns))?;
        let gemm = self.gemms.len();
        self.gemms.push(Gemm { operand, weights, blocks, math: op.math });
        Ok((0..blocks).map(|block| Lane::Product { gemm, block }).collect())
    }
}

/// Rows and columns of a tensor: its last dimension, and all others.
pub(super) fn extents(desc: &TensorDesc) -> (i64, i64) {
    let (columns, rows) = desc.dims.split_last().expect("tensors have dimensions");
    (rows.iter().product(), *columns)
}

/// The state that a GEMM multiplies.
fn first_state(states: &[Recurrence], operations: &[&Operation]) -> Option<usize> {
    let is_operand = |state: &Recurrence| {
        operations.iter().any(|of| matches!(of.op, Op::Matmul(_)) && of.inputs[0] == state.y)
    };
    states.iter().position(is_operand)
}
