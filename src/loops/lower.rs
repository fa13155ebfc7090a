//! Lowering: items in an order in which each finds what it reads, operations of one body or branch
//! that need not wait for a loop or a conditional in one graph.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::{Op, Operation, OperationGraph};
use crate::loops::items::{Items, Work, is_contiguous};
use crate::loops::ladder::{Ladder, Refusals};
use crate::loops::layer::{Layer, Loop, TripLimit};
use crate::loops::network::Network;
use crate::loops::program::{
    Along, ConditionalStep, LoopStep, MOVED_FROM, MOVED_TO, Program, Stacked, Step, Turned,
};
use crate::loops::scope::{Frame, Path, inside};
use crate::loops::sequence;
use crate::tensor::{TensorDesc, packed_strides};

impl Network {
    /// Lowers the network: hoists what does not depend on recurrences, lets loops be recurrent
    /// layers or pointwise loops, and finds the steps of what is left. `refused` has steps of the
    /// ladder that are not taken.
    ///
    /// # Errors
    /// `NotSupported` where a graph cannot say what a layer means.
    pub(crate) fn lowered(&self, refused: &Refusals) -> Result<Program> {
        let (network, ladder) = self.hoisted()?.with_operations(refused)?;
        network.steps(ladder, self.on_device)
    }

    fn steps(&self, ladder: Ladder, on_device: bool) -> Result<Program> {
        let items = Items::of(self, on_device)?;
        let mut lowering = Lowering {
            readers: items.readers(),
            items,
            needs: Vec::new(),
            graphs: Vec::new(),
            ladder,
            zero_bytes: 0,
            on_device,
            going: Vec::new(),
        };
        for uid in lowering.ladder.operations.clone().iter().filter_map(|of| of.count) {
            lowering.items.own(uid)?;
        }
        lowering.needs = lowering.needs_of_all();
        let steps = lowering.region(&Path::new())?;
        let Lowering { items, graphs, ladder, mut zero_bytes, going, .. } = lowering;
        let (elements, mut numbers) = (items.elements()?, items.numbers()?);
        let read = ladder.operations.iter().flat_map(|of| of.count.into_iter().chain(of.trips));
        numbers.extend(read.map(|uid| (uid, DType::I32)));
        numbers.extend(going);
        for Along { bytes, .. } in elements.values().filter(|of| of.extent == 0) {
            zero_bytes = zero_bytes.max(*bytes);
        }
        Ok(Program { graphs, steps, places: items.places, elements, zero_bytes, numbers, ladder })
    }
}

pub(super) struct Lowering<'a> {
    pub(super) items: Items<'a>,
    /// The items that read each tensor.
    readers: HashMap<i64, Vec<usize>>,
    /// For each item, those of the same body or branch that come before it.
    needs: Vec<BTreeSet<usize>>,
    graphs: Vec<OperationGraph>,
    ladder: Ladder,
    zero_bytes: u64,
    on_device: bool,
    /// Types of the tensors that say how far loops are which the device goes through.
    pub(super) going: Vec<(i64, DType)>,
}

impl Lowering<'_> {
    fn needs_of_all(&self) -> Vec<BTreeSet<usize>> {
        let mut needs = vec![BTreeSet::new(); self.items.items.len()];
        for (at, item) in self.items.items.iter().enumerate() {
            for uid in &item.reads {
                let Some(writer) = self.items.writers.get(&self.items.whole(*uid)).copied() else {
                    continue;
                };
                let around = &self.items.items[writer].path;
                // Of what is in the body of the item's own loop, that takes care.
                if item.path.starts_with(around) {
                    let waits = match item.path.get(around.len()) {
                        None => at,
                        Some(frame) => self.item_of(*frame),
                    };
                    needs[waits].insert(writer);
                }
            }
        }
        needs
    }

    /// The loop or conditional that a frame is of.
    fn item_of(&self, frame: Frame) -> usize {
        let is_own = |work: &Work| match (work, frame) {
            (Work::Loop(of), Frame::Body(own)) => *of == own,
            (Work::Conditional(at), Frame::Branch(own, _)) => *at == own,
            _ => false,
        };
        let at = self.items.items.iter().position(|item| is_own(&item.work));
        at.expect("every frame is of an item")
    }

    /// The steps of a branch, or of what is outside of all.
    fn region(&mut self, path: &Path) -> Result<Vec<Step>> {
        let all = self.items_in(path);
        let kept = all.iter().copied().collect();
        self.emit(&all, &kept)
    }

    fn items_in(&self, path: &Path) -> Vec<usize> {
        let items = self.items.items.iter().enumerate();
        items.filter(|(_, item)| item.path == *path).map(|(at, _)| at).collect()
    }

    /// The items of a body that compute a tensor.
    fn closure(&self, uid: i64, path: &Path) -> BTreeSet<usize> {
        let writer = self.items.writers.get(&uid).copied();
        let own = writer.filter(|at| self.items.items[*at].path == *path);
        let mut open: Vec<usize> = own.into_iter().collect();
        let mut closure = BTreeSet::new();
        while let Some(at) = open.pop() {
            if closure.insert(at) {
                open.extend(&self.needs[at]);
            }
        }
        closure
    }

    /// The steps of some items of a body or branch; the others have been executed, or will be.
    fn emit(&mut self, all: &[usize], kept: &BTreeSet<usize>) -> Result<Vec<Step>> {
        let mut waiting: Vec<usize> = all.iter().copied().filter(|at| kept.contains(at)).collect();
        let mut steps = Vec::new();
        while !waiting.is_empty() {
            let mut group: Vec<usize> = Vec::new();
            // Items are in the order of layers, copies behind them: until nothing is added.
            loop {
                let ready = |at: &usize| {
                    let is_operation = matches!(self.items.items[*at].work, Work::Operation(_));
                    let met = |need: &usize| group.contains(need) || !waiting.contains(need);
                    is_operation && !group.contains(at) && self.needs[*at].iter().all(met)
                };
                match waiting.iter().copied().find(ready) {
                    Some(at) => group.push(at),
                    None => break,
                }
            }
            waiting.retain(|at| !group.contains(at));
            for part in self.connected(&group) {
                steps.push(self.graph(&part)?);
                let written: Vec<i64> =
                    part.iter().flat_map(|at| &self.items.items[*at].writes).copied().collect();
                let own = self.ladder.operations.iter().filter(|of| written.contains(&of.y));
                steps.extend(own.map(|of| Step::Looped(*of)));
            }
            let is_ready = |at: &usize| self.needs[*at].iter().all(|need| !waiting.contains(need));
            let ready: Vec<usize> = waiting.iter().copied().filter(is_ready).collect();
            waiting.retain(|at| !ready.contains(at));
            for at in ready {
                let path = self.items.items[at].path.clone();
                match self.items.items[at].work {
                    Work::Loop(of) if self.on_device => steps.extend(self.turns(of, &path)?),
                    Work::Loop(of) => steps.push(self.trips(of, &path)?),
                    Work::Conditional(layer) => steps.push(self.branches(layer, &path)?),
                    Work::Operation(_) => unreachable!("ready operations were in the group"),
                }
            }
        }
        Ok(steps)
    }

    /// Parts of a group that share no tensor: a graph is connected.
    fn connected(&self, group: &[usize]) -> Vec<Vec<usize>> {
        let mut parts: Vec<(HashSet<i64>, Vec<usize>)> = Vec::new();
        for at in group {
            let item = &self.items.items[*at];
            let mut uids: HashSet<i64> = item.reads.iter().chain(&item.writes).copied().collect();
            let mut own = vec![*at];
            parts.retain_mut(|(others, members)| {
                let apart = others.is_disjoint(&uids);
                if !apart {
                    uids.extend(others.drain());
                    own.append(members);
                }
                apart
            });
            own.sort_unstable();
            parts.push((uids, own));
        }
        parts.sort_by_key(|(_, members)| members[0]);
        parts.into_iter().map(|(_, members)| members).collect()
    }

    /// A graph of some operations.
    fn graph(&mut self, part: &[usize]) -> Result<Step> {
        let mut operations = Vec::new();
        for at in part {
            let Work::Operation(operation) = &self.items.items[*at].work else {
                unreachable!("groups are of operations")
            };
            operations.push((**operation).clone());
        }
        for uid in operations.iter().flat_map(|of| &of.outputs) {
            let readers = self.readers.get(uid).map_or(&[][..], Vec::as_slice);
            if readers.is_empty() || readers.iter().any(|at| !part.contains(at)) {
                self.items.own(*uid)?;
            }
        }
        self.launched(operations)
    }

    /// A graph of operations whose tensors are virtual or have places.
    pub(super) fn launched(&mut self, mut operations: Vec<Operation>) -> Result<Step> {
        let mut tensors: HashMap<i64, TensorDesc> = HashMap::new();
        for uid in operations.iter().flat_map(|of| of.inputs.iter().chain(&of.outputs)) {
            tensors.insert(*uid, self.items.desc(*uid)?);
        }
        packed(&mut tensors, &mut operations);
        name(&mut tensors);
        self.graphs.push(OperationGraph::new(tensors.into_values().collect(), operations)?);
        Ok(Step::Run(self.graphs.len() - 1))
    }

    /// The steps of a trip: what its condition needs, and the rest.
    pub(super) fn body(&mut self, of: Loop, path: &Path) -> Result<(Vec<Step>, Vec<Step>)> {
        let body = inside(path, Frame::Body(of));
        let condition = self.items.conditions.get(&of).copied();
        let all = self.items_in(&body);
        let tested = condition.map_or(BTreeSet::new(), |uid| self.closure(uid, &body));
        let test = self.emit(&all, &tested)?;
        let rest = all.iter().copied().filter(|at| !tested.contains(at)).collect();
        Ok((test, self.emit(&all, &rest)?))
    }

    fn trips(&mut self, of: Loop, path: &Path) -> Result<Step> {
        let network = self.items.network;
        let condition = self.items.conditions.get(&of).copied();
        let (test, rest) = self.body(of, path)?;
        let mut stacked = Vec::new();
        for layer in network.boundaries(of) {
            let Layer::LoopOutput { output, y, .. } = layer else { continue };
            let Some((axis, length)) = output.concatenated() else { continue };
            let desc = self.items.desc(*y)?;
            let to = sequence::view(&desc, axis, MOVED_TO, "to");
            let zero = TensorDesc::packed(MOVED_FROM, "from", &to.dims, to.dtype);
            self.zero_bytes = self.zero_bytes.max(zero.span_bytes()?);
            let clear = self.moving(zero, to.clone())?;
            let turned = match self.items.turned.get(y).copied() {
                None => None,
                Some(stage) => {
                    let desc = self.items.desc(stage)?;
                    let from = sequence::view(&desc, axis, MOVED_FROM, "from");
                    let graph = self.moving(from, to.clone())?;
                    Some(Turned { stage, step: sequence::step(&desc, axis), graph })
                }
            };
            let (step, bytes) = (sequence::step(&desc, axis), to.span_bytes()?);
            stacked.push(Stacked { y: *y, step, length, bytes, clear, turned });
        }
        let extents = network.boundaries(of).filter_map(|layer| match layer {
            Layer::Iterator { x, axis, .. } => Some(network.tensor(*x).ok()?.dims[*axis]),
            _ => None,
        });
        let least_extent = extents.min().unwrap_or(i64::MAX);
        Ok(Step::Loop(LoopStep {
            of,
            count: network.limit(of, TripLimit::Count),
            condition,
            ahead: self.items.ahead(of),
            test,
            body: rest,
            least_extent,
            stacked,
        }))
    }

    /// A graph that moves a tensor; none where a copy of its bytes does.
    fn moving(&mut self, from: TensorDesc, to: TensorDesc) -> Result<Option<usize>> {
        if from.strides == to.strides && to.strides == packed_strides(&to.dims) {
            return Ok(None);
        }
        let identity = Pointwise::new(Mode::Identity);
        let operation = Operation::pointwise(identity, &[from.uid], to.uid);
        self.graphs.push(OperationGraph::new(vec![from, to], vec![operation])?);
        Ok(Some(self.graphs.len() - 1))
    }

    fn branches(&mut self, layer: usize, path: &Path) -> Result<Step> {
        let Layer::Conditional { condition, results } = &self.items.network.layers()[layer] else {
            unreachable!("it is the position of a conditional")
        };
        let (condition, y) = (*condition, results[0].y);
        let mut branch = |is_true| self.region(&inside(path, Frame::Branch(layer, is_true)));
        let (then, otherwise) = (branch(true)?, branch(false)?);
        Ok(Step::Conditional(ConditionalStep { y, condition, then, otherwise }))
    }
}

/// Lets operations that want rows find them: elements of tensors along an inner axis are read by a
/// pointwise operation first.
fn packed(tensors: &mut HashMap<i64, TensorDesc>, operations: &mut Vec<Operation>) {
    let mut fresh = tensors.keys().max().map_or(0, |uid| *uid) + 1;
    let mut copies: HashMap<i64, i64> = HashMap::new();
    let mut added = Vec::new();
    for operation in operations.iter_mut() {
        if operation.is_elementwise() || operation.op.moves() {
            continue;
        }
        for uid in &mut operation.inputs {
            let desc = &tensors[uid];
            let rows = matches!(operation.op, Op::Matmul(_)) && has_columns(desc);
            if desc.is_virtual || desc.is_empty() || is_contiguous(desc) || rows {
                continue;
            }
            let (from, desc) = (*uid, desc.clone());
            *uid = *copies.entry(from).or_insert_with(|| {
                let copy = TensorDesc::packed(fresh, "", &desc.dims, desc.dtype);
                tensors.insert(fresh, TensorDesc { is_virtual: true, ..copy });
                let identity = Pointwise::new(Mode::Identity);
                added.push(Operation::pointwise(identity, &[from], fresh));
                fresh += 1;
                fresh - 1
            });
        }
    }
    operations.extend(added);
}

/// Whether neighbours along the last dimension but one are neighbours in memory.
fn has_columns(desc: &TensorDesc) -> bool {
    let rank = desc.strides.len();
    rank >= 2 && desc.strides[rank - 2] == 1
}

/// Names tensors in memory that have none.
fn name(tensors: &mut HashMap<i64, TensorDesc>) {
    let mut taken: HashSet<String> = tensors.values().map(|of| of.name.clone()).collect();
    let unnamed = |of: &&mut TensorDesc| !of.is_virtual && of.name.is_empty();
    for tensor in tensors.values_mut().filter(unnamed) {
        let mut name = format!("t{}", tensor.uid);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        tensor.name = name;
    }
}
