//! One run of a network with loops.

use std::collections::HashMap;

use crate::device::{Conditional, Stream};
use crate::error::{Error, Result};
use crate::layers::loops_planned::Planned;
use crate::loops::{
    Along, ConditionalStep, Loop, LoopOperation, LoopStep, MOVED_FROM, MOVED_TO, Moment, Place,
    Region, Stacked, Step, Trace, Turned, WhileStep,
};
use crate::plan::{DeviceMemory, Slot, VariantPack};

/// The state of a run.
pub(super) struct Run<'a> {
    of: &'a Planned,
    stream: &'a Stream,
    /// Where the stream is captured, those that are captured into bodies of conditional nodes, the
    /// innermost last.
    bodies: Vec<Stream>,
    captured: bool,
    pack: &'a VariantPack,
    workspace: u64,
    /// The trip that each loop is in; after it, the number of its trips.
    trips: HashMap<Loop, i64>,
    /// The most trips of a loop that is being gone through.
    counts: HashMap<Loop, i64>,
    /// Numbers that were read, with the trips in which they were.
    read: HashMap<i64, (Vec<i64>, i64)>,
    trace: Trace,
    /// Whether something may have been read that does not exist.
    suspect: bool,
    /// The pack of a graph that is about to be launched.
    own: VariantPack,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        of: &'a Planned,
        stream: &'a Stream,
        pack: &'a VariantPack,
        workspace: u64,
    ) -> Run<'a> {
        Run {
            of,
            stream,
            bodies: Vec::new(),
            captured: stream.is_captured(),
            pack,
            workspace,
            trips: HashMap::new(),
            counts: HashMap::new(),
            read: HashMap::new(),
            trace: Trace::default(),
            suspect: false,
            own: VariantPack::new(),
        }
    }

    /// Runs the network.
    ///
    /// # Errors
    /// As [`LoopsPlan::execute`](crate::layers::LoopsPlan::execute).
    pub(super) fn run(mut self) -> Result<()> {
        self.steps(&self.of.program.steps)?;
        self.told()
    }

    /// What went wrong in a replay of a CUDA graph: what is known of it are the loops outside of
    /// others.
    ///
    /// # Errors
    /// As [`Run::run`].
    pub(super) fn replayed(mut self) -> Result<()> {
        for step in &self.of.program.steps {
            match step {
                Step::While(step) => {
                    let trips = self.read(step.trip)?;
                    self.noted(step, trips)?;
                }
                Step::Looped(step) => self.looped(step)?,
                _ => {}
            }
        }
        self.told()
    }

    fn told(&self) -> Result<()> {
        let network = &self.of.network;
        let trouble = if self.suspect { network.trouble(&self.trace) } else { None };
        trouble.map_or(Ok(()), |trouble| Err(trouble.error(network)))
    }

    fn steps(&mut self, steps: &'a [Step]) -> Result<()> {
        steps.iter().try_for_each(|step| match step {
            Step::Run(graph) => self.graph(*graph),
            Step::Loop(step) => self.trips(step),
            Step::Conditional(step) => self.branch(step),
            // What a replay does is not known here.
            Step::Looped(_) if self.captured => Ok(()),
            Step::Looped(step) => self.looped(step),
            Step::While(step) => self.while_going(step),
        })
    }

    /// Launches a graph on its tensors' places.
    fn graph(&mut self, at: usize) -> Result<()> {
        let plan = &self.of.plans[at];
        let mut entries = std::mem::take(&mut self.own.entries);
        entries.clear();
        entries.extend(plan.tensors().map(|uid| (uid, self.slot(uid))));
        self.own.entries = entries;
        self.launch(at)
    }

    /// Moves an element by a graph, or copies its bytes.
    fn moving(&mut self, graph: Option<usize>, from: Slot, to: Slot, bytes: u64) -> Result<()> {
        if let Some(at) = graph {
            self.own.entries.clear();
            self.own.entries.extend([(MOVED_FROM, from), (MOVED_TO, to)]);
            return self.launch(at);
        }
        match (from, to) {
            (Slot::Memory { address: from, .. }, Slot::Memory { address: to, .. }) if bytes > 0 => {
                self.stream().copy(from, to, bytes)
            }
            _ => Ok(()),
        }
    }

    fn launch(&mut self, at: usize) -> Result<()> {
        let plan = &self.of.plans[at];
        let address = self.workspace + self.of.program.places.bytes;
        let bytes = plan.workspace_bytes();
        self.own.workspace = Some(Slot::foreign(DeviceMemory { address, bytes }));
        plan.execute(self.stream(), &self.own)
    }

    /// The stream that work is given.
    fn stream(&self) -> &Stream {
        self.bodies.last().unwrap_or(self.stream)
    }

    /// Steps in the body of a conditional node, which `stream` is captured into.
    fn within(&mut self, stream: Stream, steps: &'a [Step]) -> Result<()> {
        self.bodies.push(stream);
        self.steps(steps)
    }

    fn end_body(&mut self) -> Result<()> {
        self.bodies.pop().map_or(Ok(()), |body| body.branch_end())
    }

    /// Captures the steps of two branches, of which the device takes one.
    fn branch_on_device(&mut self, step: &'a ConditionalStep, flag: u64) -> Result<()> {
        let (_, bodies) = self.stream().branch(Conditional::If, flag)?;
        for (body, steps) in bodies.into_iter().zip([&step.then, &step.otherwise]) {
            self.within(body, steps)?;
            self.end_body()?;
        }
        Ok(())
    }

    /// Captures the trips of a loop.
    fn while_on_device(&mut self, step: &'a WhileStep, go: u64) -> Result<()> {
        let (condition, bodies) = self.stream().branch(Conditional::While, go)?;
        for body in bodies {
            self.within(body, &step.body)?;
            self.stream().decide(condition, go)?;
            self.end_body()?;
        }
        Ok(())
    }

    fn branch(&mut self, step: &'a ConditionalStep) -> Result<()> {
        if let (true, Slot::Memory { address, .. }) = (self.captured, self.slot(step.condition)) {
            return self.branch_on_device(step, address);
        }
        let is_true = self.number(step.condition)? != 0;
        let around = self.around(self.of.network.nest(step.y));
        self.trace.taken.insert((step.y, around), is_true);
        self.steps(if is_true { &step.then } else { &step.otherwise })
    }

    /// Notes the trips of a loop that a graph made.
    fn looped(&mut self, step: &LoopOperation) -> Result<()> {
        let of = step.of;
        let key = (of, self.around(self.of.network.around(of)));
        let count = step.count.map(|uid| self.number(uid)).transpose()?.map(|n| n.max(0));
        let mut n = count.unwrap_or(0);
        if let Some(trips) = step.trips {
            // Of another trip around it, the number is another one.
            n = self.read(trips)?;
            let most = self.of.network.descriptor(of).trips_max;
            if n > most {
                n = most;
                self.trace.endless.insert(key.clone());
                self.suspect = true;
            } else if count == Some(n) {
                self.trace.counted.insert(key.clone());
            }
        }
        let tested = i64::from(step.trips.is_some());
        self.suspect |= n.saturating_add(tested) > step.extent || n > step.length;
        self.trace.trips.insert(key, n);
        Ok(())
    }

    /// Goes through a loop.
    fn trips(&mut self, step: &'a LoopStep) -> Result<()> {
        let of = step.of;
        let most = match step.count {
            Some(count) => self.number(count)?.max(0),
            None => i64::MAX,
        };
        self.counts.insert(of, most);
        let key = (of, self.around(self.of.network.around(of)));
        let n = match step.condition {
            None => {
                for trip in 0..most {
                    self.trips.insert(of, trip);
                    self.steps(&step.body)?;
                }
                most
            }
            Some(condition) => {
                let ended = self.while_true(step, condition, most)?;
                if let Ended::Endless(_) = ended {
                    self.trace.endless.insert(key.clone());
                    self.suspect = true;
                }
                if let Ended::Counted(_) = ended {
                    self.trace.counted.insert(key.clone());
                }
                let (Ended::False(n) | Ended::Counted(n) | Ended::Endless(n)) = ended;
                n
            }
        };
        self.trips.insert(of, n);
        self.trace.trips.insert(key, n);
        let tested = i64::from(step.condition.is_some());
        self.suspect |= n.saturating_add(tested) > step.least_extent;
        for stacked in &step.stacked {
            self.finish(stacked, n)?;
        }
        Ok(())
    }

    /// Makes trips until the condition is false, some ahead of its being known.
    fn while_true(&mut self, step: &'a LoopStep, condition: i64, most: i64) -> Result<Ended> {
        let of = step.of;
        let bound = self.of.network.descriptor(of).trips_max;
        let (mut first, mut ahead) = (0, 1);
        loop {
            let end = (first + ahead).min(most).min(bound);
            for trip in first..end {
                self.trips.insert(of, trip);
                self.steps(&step.test)?;
                if step.ahead == 1 && self.read(condition)? == 0 {
                    return Ok(Ended::False(trip));
                }
                self.steps(&step.body)?;
            }
            for trip in (first..end).filter(|_| step.ahead > 1) {
                self.trips.insert(of, trip);
                if self.read(condition)? == 0 {
                    return Ok(Ended::False(trip));
                }
            }
            if end == most {
                return Ok(Ended::Counted(most));
            }
            if end == bound {
                self.trips.insert(of, bound);
                self.steps(&step.test)?;
                let is_true = self.read(condition)? != 0;
                return Ok(if is_true { Ended::Endless(bound) } else { Ended::False(bound) });
            }
            (first, ahead) = (end, (2 * ahead).min(step.ahead));
        }
    }

    /// Makes trips while the device says that there is another one.
    fn while_going(&mut self, step: &'a WhileStep) -> Result<()> {
        let of = step.of;
        if let (true, Slot::Memory { address, .. }) = (self.captured, self.slot(step.go)) {
            return self.while_on_device(step, address);
        }
        let mut n = 0;
        while self.read(step.go)? != 0 {
            self.trips.insert(of, n);
            self.steps(&step.body)?;
            n += 1;
        }
        self.noted(step, n)
    }

    /// Notes how a loop ended that the device went through.
    fn noted(&mut self, step: &WhileStep, n: i64) -> Result<()> {
        let of = step.of;
        self.trips.insert(of, n);
        let key = (of, self.around(self.of.network.around(of)));
        let count = step.count.map(|count| self.read(count)).transpose()?;
        if let Some(condition) = step.condition {
            let ends = self.read(condition)? == 0;
            if count.is_some_and(|count| count.max(0) == n) {
                self.trace.counted.insert(key.clone());
            } else if !ends {
                self.trace.endless.insert(key.clone());
                self.suspect = true;
            }
        }
        let tested = i64::from(step.condition.is_some());
        self.suspect |= n.saturating_add(tested) > step.least_extent || n > step.least_length;
        self.trace.trips.insert(key, n);
        Ok(())
    }

    /// Clears what trips have not written of a loop output, and turns the order of what they have.
    fn finish(&mut self, stacked: &Stacked, n: i64) -> Result<()> {
        let Stacked { y, step, length, bytes, clear, .. } = *stacked;
        self.suspect |= n > length;
        let written = n.min(length);
        let behind = |slot: Slot, step: u64, at: i64| piece(slot, step * at as u64);
        if let Some(Turned { stage, step: own, graph }) = stacked.turned {
            for at in 0..written {
                let from = behind(self.slot(stage), own, (n - 1 - at).min(length - 1));
                self.moving(graph, from, behind(self.slot(y), step, at), bytes)?;
            }
        }
        for at in written..length {
            let zeros = Slot::of(&self.of.zeros);
            self.moving(clear, zeros, behind(self.slot(y), step, at), bytes)?;
        }
        Ok(())
    }

    /// The trips of some loops.
    fn around(&self, loops: &[Loop]) -> Vec<i64> {
        loops.iter().map(|of| self.trips[of]).collect()
    }

    /// The only element of a tensor, which is read once in the trips around it.
    fn number(&mut self, uid: i64) -> Result<i64> {
        let around = self.around(self.of.network.nest(uid));
        if let Some((known, number)) = self.read.get(&uid)
            && *known == around
        {
            return Ok(*number);
        }
        let number = self.read(uid)?;
        self.read.insert(uid, (around, number));
        Ok(number)
    }

    /// The only element of a tensor, from the device.
    fn read(&self, uid: i64) -> Result<i64> {
        match self.slot(uid) {
            Slot::Value(value) => Ok(value as i64),
            Slot::Memory { .. } if self.captured => Err(Error::not_supported(format!(
                "the stream is captured, and the host needs `{}`: only a network on the device \
                 (`Network::on_device`) runs without it",
                self.of.network.reference(uid)
            ))),
            Slot::Memory { address, .. } => {
                let dtype = self.of.program.numbers[&uid];
                let mut bytes = [0; 8];
                let own = &mut bytes[..dtype.bytes()];
                self.stream().read(address, own)?;
                Ok(dtype.read(own) as i64)
            }
        }
    }

    /// Where a tensor is, or its value.
    fn slot(&self, uid: i64) -> Slot {
        let program = &self.of.program;
        match program.places.get(uid).expect("tensors of graphs have places") {
            Place::Given(of) => {
                let given = self.pack.entries.iter().find(|(uid, _)| *uid == of);
                given.expect("the pack was checked").1
            }
            Place::Own(region) => self.region(region),
            Place::Same(of) => self.slot(of),
            Place::Number(value) => Slot::Value(value as f64),
            Place::Ring { of, region, slots, moment, carried } => {
                let at = match moment {
                    Moment::Start => 0,
                    moment if carried => i64::from(moment == Moment::Next),
                    Moment::Now => self.trips[&of] % slots,
                    Moment::Next => (self.trips[&of] + 1) % slots,
                };
                let bytes = region.bytes / slots as u64;
                self.region(Region { offset: region.offset + bytes * at as u64, bytes })
            }
            Place::Element { of, whole, reverse, .. } => {
                let Along { extent, step, bytes } = program.elements[&uid];
                // Past the end, what no output needs may be computed of anything.
                let at = self.trips[&of].min(extent - 1);
                match extent {
                    0 => piece(Slot::of(&self.of.zeros), 0),
                    _ if bytes == 0 => self.slot(whole),
                    _ => {
                        let at = if reverse { extent - 1 - at } else { at };
                        piece(self.slot(whole), step * at as u64)
                    }
                }
            }
            Place::Slice { of, whole, reverse, beyond, .. } => {
                let Along { extent, step, .. } = program.elements[&uid];
                let trip = self.trips[&of];
                let at = if reverse { self.counts[&of] - 1 - trip } else { trip };
                match at < extent {
                    true => piece(self.slot(whole), step * at as u64),
                    false => self.region(beyond),
                }
            }
        }
    }

    fn region(&self, region: Region) -> Slot {
        let (address, bytes) = (self.workspace + region.offset, region.bytes);
        Slot::foreign(DeviceMemory { address, bytes })
    }
}

/// What ended a loop with a condition, after so many trips.
enum Ended {
    False(i64),
    Counted(i64),
    Endless(i64),
}

/// Memory from an offset on.
fn piece(slot: Slot, offset: u64) -> Slot {
    match slot {
        Slot::Memory { bytes, .. } => slot.piece(offset, bytes.saturating_sub(offset)),
        value => value,
    }
}
