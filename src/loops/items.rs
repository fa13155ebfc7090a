//! What is executed in each body and branch, and where results go: to the place where they are
//! wanted if they are computed there, else by a copy.

use std::collections::{HashMap, HashSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::Operation;
use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::network::Network;
use crate::loops::place::{Moment, Place, Places, ring_element};
use crate::loops::program::Along;
use crate::loops::scope::{Frame, Path, Scopes, inside, scopes};
use crate::loops::sequence;
use crate::tensor::TensorDesc;

/// Trips that are made before conditions are read: an exchange with the host takes about as long
/// as a few small kernels.
const AHEAD_MAX: i64 = 8;

/// Memory for recurrences of a loop whose trips are made ahead.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Something that is executed in a body or a branch.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) work: Work,
    pub(super) path: Path,
    /// Tensors that must be there before.
    pub(super) reads: Vec<i64>,
    pub(super) writes: Vec<i64>,
}

#[derive(Debug)]
pub(super) enum Work {
    Operation(Box<Operation>),
    Loop(Loop),
    /// A conditional layer, by its position.
    Conditional(usize),
}

/// All items of a network, with the places of what they write.
pub(super) struct Items<'a> {
    pub(super) network: &'a Network,
    pub(super) scopes: Scopes,
    pub(super) items: Vec<Item>,
    pub(super) places: Places,
    /// Tensors that are not the network's.
    made: HashMap<i64, TensorDesc>,
    /// The item that writes each tensor.
    pub(super) writers: HashMap<i64, usize>,
    /// The tensor that has a loop's condition in memory.
    pub(super) conditions: HashMap<Loop, i64>,
    /// Where outputs are written whose order turns.
    pub(super) turned: HashMap<i64, i64>,
    /// What a trip has for each loop output, where the device stacks it.
    pub(super) stacked: HashMap<i64, i64>,
    /// Whether the device goes through loops.
    on_device: bool,
    fresh: i64,
}

impl<'a> Items<'a> {
    /// Finds the items and the places.
    ///
    /// # Errors
    /// As the network's tensors.
    pub(super) fn of(network: &'a Network, on_device: bool) -> Result<Items<'a>> {
        let fresh = network.tensors().last().map_or(0, |tensor| tensor.uid.max(0)) + 1;
        let mut all = Items {
            network,
            scopes: scopes(network),
            items: Vec::new(),
            places: Places::default(),
            made: HashMap::new(),
            writers: HashMap::new(),
            conditions: HashMap::new(),
            turned: HashMap::new(),
            stacked: HashMap::new(),
            on_device,
            fresh,
        };
        all.add_layers();
        all.place_all()?;
        Ok(all)
    }

    /// A tensor without its place.
    pub(super) fn base(&self, uid: i64) -> Result<&TensorDesc> {
        self.made.get(&uid).map_or_else(|| self.network.tensor(uid), Ok)
    }

    /// A tensor as it lies in memory.
    pub(super) fn desc(&self, uid: i64) -> Result<TensorDesc> {
        self.places.desc(self.base(uid)?, &|uid| self.base(uid))
    }

    /// The tensor that is there once a tensor's elements are.
    pub(super) fn whole(&self, uid: i64) -> i64 {
        match self.places.get(uid) {
            Some(Place::Element { whole, .. }) => self.whole(whole),
            _ => uid,
        }
    }

    /// The items that read each tensor; what is iterated over is read where its elements are.
    pub(super) fn readers(&self) -> HashMap<i64, Vec<usize>> {
        let mut readers: HashMap<i64, Vec<usize>> = HashMap::new();
        for (at, item) in self.items.iter().enumerate() {
            for uid in &item.reads {
                let whole = Some(self.whole(*uid)).filter(|whole| whole != uid);
                for uid in std::iter::once(*uid).chain(whole) {
                    readers.entry(uid).or_default().push(at);
                }
            }
        }
        readers
    }

    /// Where elements lie in the tensors that they are of.
    pub(super) fn elements(&self) -> Result<HashMap<i64, Along>> {
        let mut elements = HashMap::new();
        for (uid, whole, axis) in self.places.elements() {
            let desc = self.desc(whole)?;
            let bytes = sequence::view(&desc, axis, uid, "").span_bytes()?;
            let (extent, step) = (desc.dims[axis], sequence::step(&desc, axis));
            elements.insert(uid, Along { extent, step, bytes });
        }
        Ok(elements)
    }

    /// Types of tensors that the host reads: what limits trips, and conditions.
    pub(super) fn numbers(&self) -> Result<HashMap<i64, DType>> {
        let reads = |item: &Item| !matches!(item.work, Work::Operation(_));
        let read = self.items.iter().filter(|item| reads(item)).flat_map(|item| &item.reads);
        let all = read.chain(self.conditions.values());
        all.map(|uid| Ok((*uid, self.base(*uid)?.dtype))).collect()
    }

    /// How many trips of a loop are made before their conditions are read.
    pub(super) fn ahead(&self, of: Loop) -> i64 {
        let network = self.network;
        if self.on_device || network.limit(of, TripLimit::While).is_none() {
            return 1;
        }
        // The host must know the trips and branches inside.
        let body = self.scopes.body(of);
        let mut inner = self.scopes.loops.iter().filter(|(_, path)| path.starts_with(&body));
        let asks = inner.any(|(inner, _)| {
            let count = network.limit(*inner, TripLimit::Count);
            let differs = count.is_some_and(|count| network.nest(count).contains(&of));
            differs || network.limit(*inner, TripLimit::While).is_some()
        });
        let branches = self.scopes.layers.iter().any(|(at, path)| {
            matches!(network.layers()[*at], Layer::Conditional { .. }) && path.starts_with(&body)
        });
        let bytes: u64 = network
            .boundaries(of)
            .filter(|layer| matches!(layer, Layer::Recurrence { .. }))
            .flat_map(Layer::outputs)
            .map(|uid| self.base(uid).and_then(TensorDesc::span_bytes).unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add);
        let fits = bytes.saturating_mul(AHEAD_MAX as u64 + 1) <= AHEAD_BYTES_MAX;
        if asks || branches || !fits { 1 } else { AHEAD_MAX }
    }

    fn add_layers(&mut self) {
        let mut loops = HashSet::new();
        for (at, layer) in self.network.layers().iter().enumerate() {
            match layer {
                Layer::Operation(operation) => {
                    let path = self.scopes.layers[&at].clone();
                    self.add(Work::Operation(Box::new(operation.clone())), path);
                }
                Layer::Conditional { .. } => {
                    let path = self.scopes.layers[&at].clone();
                    self.add(Work::Conditional(at), path);
                }
                Layer::LoopOutput { of, .. } if loops.insert(*of) => {
                    let path = self.scopes.loops[of].clone();
                    self.add(Work::Loop(*of), path);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, work: Work, path: Path) {
        let (reads, writes) = match &work {
            Work::Operation(operation) => (operation.inputs.clone(), operation.outputs.clone()),
            Work::Conditional(at) => {
                let layer = &self.network.layers()[*at];
                let Layer::Conditional { condition, .. } = layer else {
                    unreachable!("it is the position of a conditional")
                };
                (vec![*condition], layer.outputs())
            }
            Work::Loop(of) => {
                let limits = [TripLimit::Count, TripLimit::While];
                let reads = limits.iter().filter_map(|kind| self.network.limit(*of, *kind));
                let outputs = self.network.boundaries(*of).filter_map(|layer| match layer {
                    Layer::LoopOutput { y, .. } => Some(*y),
                    _ => None,
                });
                (reads.collect(), outputs.collect())
            }
        };
        let at = self.items.len();
        self.writers.extend(writes.iter().map(|uid| (*uid, at)));
        self.items.push(Item { work, path, reads, writes });
    }

    /// A tensor that is not the network's, like one that is.
    pub(super) fn make(&mut self, like: &TensorDesc) -> i64 {
        let uid = self.fresh;
        self.fresh += 1;
        let desc = TensorDesc { uid, name: String::new(), is_virtual: true, ..like.clone() };
        self.made.insert(uid, TensorDesc { by_value: false, ..desc });
        uid
    }

    /// Decides where results go, those of users first: where an element of a loop output lies
    /// follows from where the output does.
    fn place_all(&mut self) -> Result<()> {
        let network = self.network;
        for input in network.inputs() {
            self.places.set(input.uid, Place::Given(input.uid));
        }
        for layer in network.layers() {
            if let Layer::Iterator { of, x, axis, reverse, y } = layer {
                let (of, whole, axis, reverse) = (*of, *x, *axis, *reverse);
                if self.on_device {
                    self.own(*y)?;
                    let item = self.loop_item(of);
                    self.items[item].reads.push(whole);
                } else {
                    self.places.set(*y, Place::Element { of, whole, axis, reverse });
                }
            }
        }
        self.place_rings()?;
        for output in network.outputs() {
            self.want(output.uid, Place::Given(output.uid), &Path::new())?;
        }
        for layer in network.layers() {
            match layer {
                Layer::Recurrence { of, initial, next, y } => {
                    self.place_recurrence(*of, *initial, *next, *y)?;
                }
                Layer::TripLimit { of, limit: TripLimit::While, x } => {
                    self.place_condition(*of, *x)?;
                }
                _ => {}
            }
        }
        for (at, layer) in network.layers().iter().enumerate().rev() {
            match layer {
                Layer::LoopOutput { of, output, x, y } => {
                    self.place_output(*of, *output, *x, *y)?
                }
                Layer::Conditional { results, .. } => {
                    let path = self.scopes.layers[&at].clone();
                    for of in results {
                        self.own(of.y)?;
                        for (value, is_true) in [(of.then, true), (of.otherwise, false)] {
                            let branch = inside(&path, Frame::Branch(at, is_true));
                            self.want(value, Place::Same(of.y), &branch)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Rings of recurrences, and last values, which are in them.
    fn place_rings(&mut self) -> Result<()> {
        let network = self.network;
        for layer in network.layers() {
            if let Layer::Recurrence { of, y, .. } = layer {
                let ahead = self.ahead(*of);
                let slots = if ahead > 1 { ahead + 1 } else { 2 };
                let packed = TensorDesc::packed(0, "", &self.base(*y)?.dims, self.base(*y)?.dtype);
                let bytes = ring_element(packed.span_bytes()?) * slots as u64;
                let region = self.places.region(bytes);
                let (of, moment, carried) = (*of, Moment::Now, self.on_device);
                self.places.set(*y, Place::Ring { of, region, slots, moment, carried });
            }
        }
        for layer in network.layers() {
            if let Layer::LoopOutput { output: LoopOutput::LastValue, x, y, .. } = layer {
                let ring = self.places.get(*x).expect("it is a recurrence");
                self.places.set(*y, ring);
            }
        }
        Ok(())
    }

    /// Lets a recurrence find its initial value and its next ones.
    fn place_recurrence(&mut self, of: Loop, initial: i64, next: i64, y: i64) -> Result<()> {
        let Some(Place::Ring { region, slots, carried, .. }) = self.places.get(y) else {
            unreachable!("rings were placed")
        };
        let ring = |moment| Place::Ring { of, region, slots, moment, carried };
        self.want(next, ring(Moment::Next), &self.scopes.body(of))?;
        let path = self.scopes.loops[&of].clone();
        let start = self.want(initial, ring(Moment::Start), &path)?;
        let item = self.loop_item(of);
        self.items[item].reads.push(start);
        Ok(())
    }

    /// Lets the conditions of trips that are made ahead be kept.
    fn place_condition(&mut self, of: Loop, x: i64) -> Result<()> {
        let (ahead, varies) = (self.ahead(of), self.network.nest(x).contains(&of));
        let is_kept =
            |place| matches!(place, Place::Ring { of: own, moment: Moment::Now, .. } if own == of);
        let mut condition = x;
        if ahead > 1 && varies && !self.places.get(x).is_some_and(is_kept) {
            let region = self.places.region(ring_element(1) * ahead as u64);
            let (moment, carried) = (Moment::Now, false);
            let ring = Place::Ring { of, region, slots: ahead, moment, carried };
            condition = self.want(x, ring, &self.scopes.body(of))?;
        }
        self.conditions.insert(of, condition);
        Ok(())
    }

    fn place_output(&mut self, of: Loop, output: LoopOutput, x: i64, y: i64) -> Result<()> {
        let Some((axis, length)) = output.concatenated() else { return Ok(()) };
        self.own(y)?;
        if self.on_device {
            return self.place_stacked(of, x, y);
        }
        let mut reverse = matches!(output, LoopOutput::Reverse { .. });
        let mut whole = y;
        if reverse && self.network.limit(of, TripLimit::While).is_some() {
            // The place of the first element depends on the number of trips.
            let desc = self.base(y)?.clone();
            whole = self.make(&desc);
            self.own(whole)?;
            self.turned.insert(y, whole);
            reverse = false;
        }
        let bytes = sequence::view(&self.desc(whole)?, axis, 0, "").span_bytes()?;
        let beyond = self.places.region(if length > 0 { bytes } else { self.packed_bytes(x)? });
        let slice = Place::Slice { of, whole, axis, reverse, beyond };
        self.want(x, slice, &self.scopes.body(of))?;
        Ok(())
    }

    /// Gives an element of a loop output that the device stacks a place.
    fn place_stacked(&mut self, of: Loop, x: i64, y: i64) -> Result<()> {
        let body = self.scopes.body(of);
        // Behind a trip, states have gone on.
        let stays = matches!(
            self.places.get(x),
            Some(Place::Own(_) | Place::Ring { moment: Moment::Next, .. })
        );
        let is_here = self.writers.get(&x).is_some_and(|at| self.items[*at].path == body);
        let element = match stays && is_here {
            true => x,
            false => {
                let region = self.places.region(self.packed_bytes(x)?);
                self.want(x, Place::Own(region), &body)?
            }
        };
        self.stacked.insert(y, element);
        Ok(())
    }

    fn packed_bytes(&self, uid: i64) -> Result<u64> {
        let base = self.base(uid)?;
        TensorDesc::packed(0, "", &base.dims, base.dtype).span_bytes()
    }

    /// Gives a tensor memory of its own, if it has none.
    pub(super) fn own(&mut self, uid: i64) -> Result<()> {
        if self.places.get(uid).is_none() {
            let region = self.places.region(self.packed_bytes(uid)?);
            self.places.set(uid, Place::Own(region));
        }
        Ok(())
    }

    pub(super) fn loop_item(&self, of: Loop) -> usize {
        let is_own = |item: &Item| matches!(item.work, Work::Loop(own) if own == of);
        self.items.iter().position(is_own).expect("every loop that is left is an item")
    }

    /// Lets a tensor be written to a place in a body or branch, or copied there if it cannot be.
    /// Returns the tensor that is there.
    fn want(&mut self, uid: i64, place: Place, path: &Path) -> Result<i64> {
        if self.places.get(uid).is_none() && self.is_written_there(uid, place, path)? {
            self.places.set(uid, place);
            return Ok(uid);
        }
        let like = self.base(uid)?.clone();
        let copy = self.make(&like);
        self.places.set(copy, place);
        let identity = Pointwise::new(Mode::Identity);
        let operation = Operation::pointwise(identity, &[uid], copy);
        self.add(Work::Operation(Box::new(operation)), path.clone());
        Ok(copy)
    }

    /// Whether what computes a tensor does so in this body or branch, and can write it to a place.
    fn is_written_there(&self, uid: i64, place: Place, path: &Path) -> Result<bool> {
        let Some(writer) = self.writers.get(&uid).map(|at| &self.items[*at]) else {
            return Ok(false);
        };
        if writer.path != *path {
            return Ok(false);
        }
        // The first element is overwritten in the third trip, others may still want it.
        let uses = self.network.layers().iter().flat_map(Layer::inputs).filter(|x| *x == uid);
        if matches!(place, Place::Ring { moment: Moment::Start, .. }) && uses.count() > 1 {
            return Ok(false);
        }
        let Work::Operation(operation) = &writer.work else { return Ok(true) };
        let may_have_gaps = matches!(place, Place::Slice { .. } | Place::Same(_));
        if !may_have_gaps || operation.is_elementwise() {
            return Ok(true);
        }
        let mut places = self.places.clone();
        places.set(uid, place);
        let desc = places.desc(self.base(uid)?, &|uid| self.base(uid))?;
        Ok(is_contiguous(&desc))
    }
}

/// Whether neighbours along the last dimension are neighbours in memory.
pub(super) fn is_contiguous(desc: &TensorDesc) -> bool {
    desc.dims.last().is_none_or(|extent| *extent <= 1) || desc.strides.last() == Some(&1)
}
