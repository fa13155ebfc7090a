//! Loops that the device goes through: between two trips a kernel stores what is stacked, moves
//! states on and fetches the elements of iterators, so that every trip finds them in the same
//! places.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{DynamicSlice, Op, Operation, Reshape, SliceCopy};
use crate::loops::body::room;
use crate::loops::items::Items;
use crate::loops::layer::{Layer, Loop, LoopOutput, TripLimit};
use crate::loops::lower::Lowering;
use crate::loops::place::{Moment, Place};
use crate::loops::program::{Step, WhileStep};
use crate::loops::scope::Path;
use crate::tensor::TensorDesc;

/// A loop output.
struct Stacked {
    /// Where the element of a trip is.
    element: i64,
    y: i64,
    axis: usize,
    length: i64,
    reverse: bool,
    /// All elements; of an output in reverse order they end in its middle, so that the last one
    /// comes first.
    stage: i64,
}

/// Numbers that the device counts, by uid.
struct Counters {
    /// The trips that were made.
    trip: i64,
    /// That number behind the trip that is under way.
    next: i64,
    /// The trip that is under way, while `trip` moves on.
    made: i64,
    /// Whether there is another trip.
    go: i64,
}

/// A copy with the uids of its operands.
struct Turned {
    copy: SliceCopy,
    position: i64,
    x: i64,
    before: Option<i64>,
    y: i64,
}

impl Items<'_> {
    fn shaped(&mut self, dims: &[i64], dtype: DType, place: Place) -> i64 {
        let uid = self.make(&TensorDesc::packed(0, "", dims, dtype));
        self.places.set(uid, place);
        uid
    }

    /// A tensor in memory of its own.
    fn owned(&mut self, dims: &[i64], dtype: DType) -> Result<i64> {
        let uid = self.make(&TensorDesc::packed(0, "", dims, dtype));
        self.own(uid)?;
        Ok(uid)
    }

    /// A number that is passed by value, with so many dimensions.
    fn constant(&mut self, value: i64, rank: usize, dtype: DType) -> i64 {
        self.shaped(&vec![1; rank], dtype, Place::Number(value))
    }

    /// A tensor's memory under other dimensions, which have as many elements; both are packed.
    fn seen_as(&mut self, uid: i64, dims: &[i64]) -> Result<i64> {
        let dtype = self.base(uid)?.dtype;
        let place = self.places.get(uid).expect("it has a place");
        Ok(self.shaped(dims, dtype, place))
    }

    fn intermediate(&mut self, dims: &[i64], dtype: DType) -> i64 {
        self.make(&TensorDesc::packed(0, "", dims, dtype))
    }
}

impl Lowering<'_> {
    /// The steps of a loop: its counters and the elements of the first trip, all trips, and what is
    /// made of their results.
    pub(super) fn turns(&mut self, of: Loop, path: &Path) -> Result<Vec<Step>> {
        let network = self.items.network;
        let condition = self.items.conditions.get(&of).copied();
        let count = network.limit(of, TripLimit::Count);
        let (test, rest) = self.body(of, path)?;
        let counters = Counters {
            trip: self.items.owned(&[1], DType::I32)?,
            next: self.items.owned(&[1], DType::I32)?,
            made: self.items.owned(&[1], DType::I32)?,
            go: self.items.owned(&[1], DType::Bool)?,
        };
        self.going.extend([(counters.go, DType::Bool), (counters.trip, DType::I32)]);
        let stacked = self.stacked(of)?;
        let zero = self.items.constant(0, 1, DType::I32);
        let mut steps = Vec::new();

        let identity = Pointwise::new(Mode::Identity);
        let mut first = vec![Operation::pointwise(identity, &[zero], counters.trip)];
        if condition.is_none() {
            self.below(zero, count.expect("a loop has a limit"), counters.go, &mut first)?;
        }
        steps.push(self.launched(first)?);
        let fetched = self.fetched(of, zero)?;
        steps.extend(self.copied(fetched)?);
        let mut decided = test;
        if let Some(condition) = condition {
            decided.push(self.decided(of, condition, &counters)?);
        }
        steps.extend(decided.iter().cloned());

        let mut body = rest;
        body.extend(self.turned(of, &counters, &stacked, condition.is_some())?);
        body.extend(decided);
        let (least_extent, least_length) = room(network, of);
        let Counters { trip, go, .. } = counters;
        steps.push(Step::While(WhileStep {
            of,
            go,
            trip,
            count,
            condition,
            body,
            least_extent,
            least_length,
        }));
        for output in &stacked {
            steps.extend(self.finished(output, trip)?);
        }
        Ok(steps)
    }

    fn stacked(&mut self, of: Loop) -> Result<Vec<Stacked>> {
        let network = self.items.network;
        let mut stacked = Vec::new();
        for layer in network.boundaries(of) {
            let Layer::LoopOutput { output, y, .. } = layer else { continue };
            let Some((axis, length)) = output.concatenated() else { continue };
            let desc = self.items.base(*y)?.clone();
            if desc.is_empty() {
                continue;
            }
            let reverse = matches!(output, LoopOutput::Reverse { .. });
            let mut dims = desc.dims;
            dims[axis] *= if reverse { 2 } else { 1 };
            let (y, element, stage) =
                (*y, self.items.stacked[y], self.items.owned(&dims, desc.dtype)?);
            stacked.push(Stacked { element, y, axis, length, reverse, stage });
        }
        Ok(stacked)
    }

    /// Adds `go = trip < count`.
    fn below(&mut self, trip: i64, count: i64, go: i64, to: &mut Vec<Operation>) -> Result<()> {
        let count = self.flat(count, to)?;
        to.push(Operation::pointwise(Pointwise::new(Mode::CmpLt), &[trip, count], go));
        Ok(())
    }

    /// A number with one dimension.
    fn flat(&mut self, uid: i64, to: &mut Vec<Operation>) -> Result<i64> {
        let TensorDesc { dims, dtype, .. } = self.items.base(uid)?;
        if dims.len() == 1 {
            return Ok(uid);
        }
        let dtype = *dtype;
        let flat = self.items.intermediate(&[1], dtype);
        let op = Op::Reshape(Reshape);
        to.push(Operation { op, inputs: vec![uid], outputs: vec![flat] });
        Ok(flat)
    }

    /// Another trip is made where the condition is true and no bound is reached.
    fn decided(&mut self, of: Loop, condition: i64, counters: &Counters) -> Result<Step> {
        let network = self.items.network;
        let most = network.descriptor(of).trips_max.min(i64::from(i32::MAX));
        let most = self.items.constant(most, 1, DType::I32);
        let limits: Vec<i64> =
            network.limit(of, TripLimit::Count).into_iter().chain([most]).collect();
        let mut operations = Vec::new();
        let mut so_far = self.flat(condition, &mut operations)?;
        for (at, limit) in limits.iter().enumerate() {
            let below = self.items.intermediate(&[1], DType::Bool);
            self.below(counters.trip, *limit, below, &mut operations)?;
            let is_last = at + 1 == limits.len();
            let both =
                if is_last { counters.go } else { self.items.intermediate(&[1], DType::Bool) };
            let and = Pointwise::new(Mode::LogicalAnd);
            operations.push(Operation::pointwise(and, &[so_far, below], both));
            so_far = both;
        }
        self.launched(operations)
    }

    /// The elements of a loop's iterators at a position.
    fn fetched(&mut self, of: Loop, position: i64) -> Result<Vec<Turned>> {
        let mut fetched = Vec::new();
        for layer in self.items.network.boundaries(of) {
            let Layer::Iterator { x, axis, reverse, y, .. } = layer else { continue };
            let mut dims = self.items.base(*x)?.dims.clone();
            let extent = std::mem::replace(&mut dims[*axis], 1);
            // There may be a loop that makes no trip.
            if extent == 0 || dims.contains(&0) {
                continue;
            }
            let copy = SliceCopy::Read { axis: *axis as i64, size: 1, reverse: *reverse };
            let y = self.items.seen_as(*y, &dims)?;
            fetched.push(Turned { copy, position, x: *x, before: None, y });
        }
        Ok(fetched)
    }

    /// What is done between two trips.
    fn turned(
        &mut self,
        of: Loop,
        counters: &Counters,
        stacked: &[Stacked],
        is_tested: bool,
    ) -> Result<Vec<Step>> {
        let network = self.items.network;
        let Counters { trip, next, made, go } = *counters;
        let one = self.items.constant(1, 1, DType::I32);
        let add = Pointwise::new(Mode::Add);
        let identity = Pointwise::new(Mode::Identity);
        let mut counted = vec![
            Operation::pointwise(add, &[trip, one], next),
            Operation::pointwise(identity, &[trip], made),
        ];
        if !is_tested {
            let count = network.limit(of, TripLimit::Count).expect("a loop has a limit");
            self.below(next, count, go, &mut counted)?;
        }
        let mut copies = Vec::new();
        for of in stacked {
            let mut position = made;
            if of.reverse {
                // From the end: behind what is in front of the middle.
                let length = self.items.constant(of.length, 1, DType::I32);
                position = self.items.owned(&[1], DType::I32)?;
                counted.push(Operation::pointwise(add, &[trip, length], position));
            }
            let mut dims = self.items.base(of.stage)?.dims.clone();
            let y = self.items.seen_as(of.stage, &dims)?;
            dims[of.axis] = 1;
            let x = self.items.seen_as(of.element, &dims)?;
            let copy = SliceCopy::Write { axis: of.axis as i64, reverse: of.reverse };
            copies.push(Turned { copy, position, x, before: Some(of.stage), y });
        }
        for layer in network.boundaries(of) {
            let Layer::Recurrence { y, .. } = layer else { continue };
            let desc = self.items.base(*y)?.clone();
            let Some(Place::Ring { of, region, slots, carried, .. }) = self.items.places.get(*y)
            else {
                unreachable!("recurrences have rings")
            };
            let moment = Moment::Next;
            let ring = Place::Ring { of, region, slots, moment, carried };
            let x = self.items.shaped(&desc.dims, desc.dtype, ring);
            if !desc.is_empty() {
                copies.push(whole(&desc, next, x, *y));
            }
        }
        copies.extend(self.fetched(of, next)?);
        // Nothing else reads it while it moves on.
        copies.push(whole(&TensorDesc::packed(0, "", &[1], DType::I32), next, next, trip));
        let mut steps = vec![self.launched(counted)?];
        steps.extend(self.copied(copies)?);
        Ok(steps)
    }

    /// The steps that make copies.
    fn copied(&mut self, copies: Vec<Turned>) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for copies in copies.chunks(DynamicSlice::COPIES_MAX) {
            let inputs =
                copies.iter().flat_map(|of| [of.position, of.x].into_iter().chain(of.before));
            let outputs = copies.iter().map(|of| of.y).collect();
            let op = DynamicSlice { copies: copies.iter().map(|of| of.copy).collect() };
            let op = Op::DynamicSlice(op);
            steps.push(self.launched(vec![Operation { op, inputs: inputs.collect(), outputs }])?);
        }
        Ok(steps)
    }

    /// A loop output from all of its elements: 0 behind those that trips have made.
    fn finished(&mut self, of: &Stacked, trip: i64) -> Result<Vec<Step>> {
        let desc = self.items.base(of.y)?.clone();
        let (rank, mut steps, mut elements) = (desc.dims.len(), Vec::new(), of.stage);
        if of.reverse {
            let length = self.items.constant(of.length, 1, DType::I32);
            let first = self.items.owned(&[1], DType::I32)?;
            let sub = Pointwise::new(Mode::Sub);
            steps.push(self.launched(vec![Operation::pointwise(sub, &[length, trip], first)])?);
            elements = self.items.owned(&desc.dims, desc.dtype)?;
            let copy = SliceCopy::Read { axis: of.axis as i64, size: of.length, reverse: false };
            let moved = Turned { copy, position: first, x: of.stage, before: None, y: elements };
            steps.extend(self.copied(vec![moved])?);
        }
        let count = self.items.seen_as(trip, &vec![1; rank])?;
        let zero = self.items.constant(0, rank, DType::F64);
        let [place, made, zeros] = [DType::F64, DType::Bool, desc.dtype]
            .map(|dtype| self.items.intermediate(&desc.dims, dtype));
        let exact = |mode| Pointwise { math: Math::F64, ..Pointwise::new(mode) };
        let index = Pointwise { axis: of.axis as i64, ..exact(Mode::GenIndex) };
        let select = Pointwise::new(Mode::BinarySelect);
        steps.push(self.launched(vec![
            Operation::pointwise(index, &[elements], place),
            Operation::pointwise(exact(Mode::CmpLt), &[place, count], made),
            Operation::pointwise(exact(Mode::Mul), &[place, zero], zeros),
            Operation::pointwise(select, &[elements, zeros, made], of.y),
        ])?);
        Ok(steps)
    }
}

/// A copy of all elements, wherever it is said to begin.
fn whole(desc: &TensorDesc, position: i64, x: i64, y: i64) -> Turned {
    let copy = SliceCopy::Read { axis: 0, size: desc.dims[0], reverse: false };
    Turned { copy, position, x, before: None, y }
}
