//! Networks with loops, as the formal semantics of TensorRT's loops says: an interpreter of lazy
//! sequences.
//!
//! Inside a loop a tensor is a sequence with an element for each trip; an element is evaluated when
//! one is needed that is computed from it, and once. Nothing is evaluated in advance: an iterator
//! past the end of its tensor is an error only if that element is needed.

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::graph::Operation;
use crate::loops::{BranchResult, Layer, Loop, LoopOutput, Network, TripLimit, Trouble};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, unravel};
use crate::reference::{given, results};

/// Evaluates a network and returns its outputs by uid.
///
/// `inputs` maps the uid of every input to its values in row-major order.
///
/// # Errors
/// `BadParam` as [`evaluate`](crate::reference::evaluate); when an output needs an element of an
/// iterator past the end of its tensor; when a loop makes more trips than an output has room for,
/// or its condition is still true after its most trips; and when a condition that decides what is
/// computed is not certain within the errors of its operands.
pub fn evaluate_network(
    network: &Network,
    inputs: &HashMap<i64, Vec<f64>>,
) -> Result<HashMap<i64, Expected>> {
    let mut interpreter = Interpreter {
        network,
        writers: HashMap::new(),
        elements: HashMap::new(),
        trips: HashMap::new(),
        tested: HashMap::new(),
    };
    for (at, layer) in network.layers().iter().enumerate() {
        interpreter.writers.extend(layer.outputs().into_iter().map(|uid| (uid, at)));
    }
    for tensor in network.inputs() {
        let values = Rc::new(given(tensor, inputs)?);
        interpreter.elements.insert((tensor.uid, Vec::new()), values);
    }
    let mut outputs = HashMap::new();
    for tensor in network.outputs() {
        interpreter.meet(Need::Element(tensor.uid, Trips::new()))?;
        let value = &interpreter.elements[&(tensor.uid, Vec::new())];
        outputs.insert(tensor.uid, (**value).clone());
    }
    Ok(outputs)
}

/// The trip that each of some loops is in.
type Trips = HashMap<Loop, i64>;

/// Something that is evaluated when it is needed.
#[derive(Debug, Clone)]
enum Need {
    /// The element of a tensor's sequence in some trips.
    Element(i64, Trips),
    /// The number of trips of a loop, in some trips of those around it.
    Trips(Loop, Trips),
}

/// What is known by now.
struct Interpreter<'a> {
    network: &'a Network,
    /// The layer that writes each tensor.
    writers: HashMap<i64, usize>,
    /// Elements by tensor and the trips of the loops around it.
    elements: HashMap<(i64, Vec<i64>), Rc<Expected>>,
    /// Numbers of trips by loop and the trips of the loops around it.
    trips: HashMap<(Loop, Vec<i64>), i64>,
    /// Conditions known to be true, of loops whose number of trips is not known yet.
    tested: HashMap<(Loop, Vec<i64>), i64>,
}

impl Interpreter<'_> {
    /// Evaluates what is needed, and before it what that needs in turn: on a stack of its own,
    /// as sequences are long.
    fn meet(&mut self, need: Need) -> Result<()> {
        let mut open = vec![need];
        while let Some(need) = open.last().cloned() {
            let missing = match &need {
                Need::Element(uid, trips) => self.element(*uid, trips)?,
                Need::Trips(of, trips) => self.count(*of, trips)?,
            };
            if missing.is_empty() {
                open.pop();
            }
            // The first one is evaluated first.
            open.extend(missing.into_iter().rev());
        }
        Ok(())
    }

    /// The trips of the loops in each of whose trips a tensor has an element of its own: it is the
    /// same in those of all others.
    fn key(&self, uid: i64, trips: &Trips) -> (i64, Vec<i64>) {
        (uid, self.network.nest(uid).iter().map(|of| trips[of]).collect())
    }

    fn loop_key(&self, of: Loop, trips: &Trips) -> (Loop, Vec<i64>) {
        (of, self.network.around(of).iter().map(|of| trips[of]).collect())
    }

    fn known(&self, uid: i64, trips: &Trips) -> Option<&Rc<Expected>> {
        self.elements.get(&self.key(uid, trips))
    }

    /// Those of some elements that are not known.
    fn unknown(&self, uids: &[i64], trips: &Trips) -> Vec<Need> {
        let unknown = uids.iter().filter(|uid| self.known(**uid, trips).is_none());
        unknown.map(|uid| Need::Element(*uid, trips.clone())).collect()
    }

    /// Evaluates an element; returns what is to be evaluated first.
    fn element(&mut self, uid: i64, trips: &Trips) -> Result<Vec<Need>> {
        if self.known(uid, trips).is_some() {
            return Ok(Vec::new());
        }
        let network = self.network;
        match &network.layers()[self.writers[&uid]] {
            Layer::Operation(operation) => {
                let missing = self.unknown(&operation.inputs, trips);
                if missing.is_empty() {
                    self.operation(operation, trips)?;
                }
                Ok(missing)
            }
            Layer::TripLimit { .. } => unreachable!("a trip limit writes nothing"),
            Layer::Iterator { of, x, axis, reverse, y } => {
                let whole = network.tensor(*x)?;
                let extent = whole.dims[*axis];
                let element = trips[of];
                if element >= extent {
                    return Err(Trouble::PastEnd { y: *y, element }.error(network));
                }
                let Some(value) = self.known(*x, trips) else {
                    return Ok(self.unknown(&[*x], trips));
                };
                let at = if *reverse { extent - 1 - element } else { element };
                let picked = picked(value, &whole.dims, *axis, at);
                Ok(self.learn(uid, trips, Rc::new(picked)))
            }
            Layer::Recurrence { of, initial, next, .. } => {
                let mut before = trips.clone();
                let trip = before.get_mut(of).expect("a recurrence is in its loop");
                *trip -= 1;
                let (from, at) = match *trip {
                    -1 => (*initial, trips),
                    _ => (*next, &before),
                };
                match self.known(from, at).cloned() {
                    Some(value) => Ok(self.learn(uid, trips, value)),
                    None => Ok(self.unknown(&[from], at)),
                }
            }
            Layer::LoopOutput { of, output, x, y } => {
                let Some(n) = self.trips.get(&self.loop_key(*of, trips)).copied() else {
                    return Ok(vec![Need::Trips(*of, trips.clone())]);
                };
                let at = |trip: i64| {
                    let mut trips = trips.clone();
                    trips.insert(*of, trip);
                    trips
                };
                let needed: Vec<Trips> = match output.concatenated() {
                    None => vec![at(n)],
                    Some((_, length)) if length < n => {
                        return Err(Trouble::TooLong { y: *y, trips: n }.error(network));
                    }
                    Some(_) => (0..n).map(at).collect(),
                };
                let missing: Vec<Need> =
                    needed.iter().flat_map(|trips| self.unknown(&[*x], trips)).collect();
                if !missing.is_empty() {
                    return Ok(missing);
                }
                let values: Vec<Rc<Expected>> =
                    needed.iter().filter_map(|trips| self.known(*x, trips).cloned()).collect();
                let value = match output {
                    LoopOutput::LastValue => values[0].clone(),
                    _ => Rc::new(stacked(&values, &network.tensor(*y)?.dims, *output)),
                };
                Ok(self.learn(uid, trips, value))
            }
            Layer::Conditional { condition, results } => {
                let Some(value) = self.known(*condition, trips) else {
                    return Ok(self.unknown(&[*condition], trips));
                };
                let is_true = certain(network, *condition, value)? != 0.0;
                let own = results.iter().find(|of| of.y == uid).expect("it writes the tensor");
                let BranchResult { then, otherwise, .. } = own;
                let taken = if is_true { *then } else { *otherwise };
                match self.known(taken, trips).cloned() {
                    Some(value) => Ok(self.learn(uid, trips, value)),
                    None => Ok(self.unknown(&[taken], trips)),
                }
            }
        }
    }

    /// Evaluates the number of trips of a loop; returns what is to be evaluated first.
    fn count(&mut self, of: Loop, trips: &Trips) -> Result<Vec<Need>> {
        let network = self.network;
        let key = self.loop_key(of, trips);
        let mut most = i64::MAX;
        if let Some(count) = network.limit(of, TripLimit::Count) {
            let Some(value) = self.known(count, trips) else {
                return Ok(self.unknown(&[count], trips));
            };
            most = (certain(network, count, value)? as i64).max(0);
        }
        let Some(condition) = network.limit(of, TripLimit::While) else {
            self.trips.insert(key, most);
            return Ok(Vec::new());
        };
        let mut inside = trips.clone();
        loop {
            let trip = self.tested.get(&key).copied().unwrap_or(0);
            if trip < most {
                inside.insert(of, trip);
                let Some(value) = self.known(condition, &inside) else {
                    return Ok(self.unknown(&[condition], &inside));
                };
                if certain(network, condition, value)? != 0.0 {
                    if trip == network.descriptor(of).trips_max {
                        return Err(Trouble::Endless { of }.error(network));
                    }
                    self.tested.insert(key.clone(), trip + 1);
                    continue;
                }
            }
            self.trips.insert(key, trip.min(most));
            return Ok(Vec::new());
        }
    }

    fn operation(&mut self, operation: &Operation, trips: &Trips) -> Result<()> {
        let network = self.network;
        let operand = |uid: &i64| {
            let expected = &**self.known(*uid, trips).expect("nothing is missing");
            Ok(Operand { desc: network.tensor(*uid)?, expected })
        };
        let operands = operation.inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
        let outputs = operation.outputs.iter().map(|uid| network.tensor(*uid));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let results = results(&operation.op, &operands, &outputs)?;
        for (uid, value) in operation.outputs.iter().zip(results) {
            self.learn(*uid, trips, Rc::new(value));
        }
        Ok(())
    }

    /// Keeps an element; nothing is missing any more.
    fn learn(&mut self, uid: i64, trips: &Trips, value: Rc<Expected>) -> Vec<Need> {
        let key = self.key(uid, trips);
        self.elements.insert(key, value);
        Vec::new()
    }
}

/// The only element of a tensor that decides what is computed.
///
/// # Errors
/// `BadParam` where an implementation may decide differently.
fn certain(network: &Network, uid: i64, value: &Expected) -> Result<f64> {
    match value.bounds[0] {
        0.0 => Ok(value.values[0]),
        _ => Err(Error::bad_param(format!(
            "`{}` decides what is computed, and is not certain within the errors of its operands",
            network.reference(uid)
        ))),
    }
}

/// The element of a tensor at a position along an axis.
fn picked(whole: &Expected, dims: &[i64], axis: usize, at: i64) -> Expected {
    let inner: i64 = dims[axis + 1..].iter().product();
    let outer: i64 = dims[..axis].iter().product();
    let position = |(outer, inner_at): (i64, i64)| {
        let from = ((outer * dims[axis] + at) * inner + inner_at) as usize;
        (whole.values[from], whole.bounds[from])
    };
    let all = (0..outer).flat_map(|outer| (0..inner).map(move |inner| (outer, inner)));
    let (values, bounds) = all.map(position).unzip();
    Expected { values, bounds }
}

/// Elements along a new axis of a tensor of these dimensions, then 0.
fn stacked(elements: &[Rc<Expected>], dims: &[i64], output: LoopOutput) -> Expected {
    let (axis, _) = output.concatenated().expect("a concatenation");
    let n = elements.len();
    let mut own = dims.to_vec();
    own.remove(axis);
    let element = |at: i64| {
        let mut index = unravel(at, dims);
        let trip = index.remove(axis) as usize;
        if trip >= n {
            return (0.0, 0.0);
        }
        let of = match output {
            LoopOutput::Reverse { .. } => &elements[n - 1 - trip],
            _ => &elements[trip],
        };
        let position = broadcast_position(&index, &own);
        (of.values[position], of.bounds[position])
    };
    let (values, bounds) = (0..dims.iter().product()).map(element).unzip();
    Expected { values, bounds }
}
