//! Nesting, which follows from the flow of data: a loop that uses a value of another is in it.

use std::collections::{BTreeSet, HashMap};

use crate::error::{Error, Result};
use crate::loops::layer::{Layer, Loop, TripLimit};
use crate::loops::nest::Nesting;
use crate::loops::network::Network;

/// Sets of loops, which grow until they contain all that follows from the layers.
struct Sets {
    tensors: HashMap<i64, BTreeSet<Loop>>,
    loops: Vec<BTreeSet<Loop>>,
    grown: bool,
}

impl Sets {
    fn of(&self, uid: i64) -> BTreeSet<Loop> {
        self.tensors.get(&uid).cloned().unwrap_or_default()
    }

    fn of_all(&self, uids: &[i64]) -> BTreeSet<Loop> {
        uids.iter().flat_map(|uid| self.of(*uid)).collect()
    }

    fn grow(&mut self, uid: i64, by: &BTreeSet<Loop>) {
        let own = self.tensors.entry(uid).or_default();
        let before = own.len();
        own.extend(by);
        self.grown |= own.len() > before;
    }

    /// A loop is in all loops whose values it uses.
    fn within(&mut self, of: Loop, loops: &BTreeSet<Loop>) {
        let own = &mut self.loops[of.0];
        let before = own.len();
        own.extend(loops.iter().filter(|other| **other != of));
        self.grown |= own.len() > before;
    }

    fn visit(&mut self, layer: &Layer) {
        let used = self.of_all(&layer.inputs());
        let Some(of) = layer.of_loop() else {
            layer.outputs().into_iter().for_each(|uid| self.grow(uid, &used));
            return;
        };
        self.within(of, &used);
        let mut around = self.loops[of.0].clone();
        if !matches!(layer, Layer::LoopOutput { .. }) {
            around.insert(of);
        }
        layer.outputs().into_iter().for_each(|uid| self.grow(uid, &around));
    }
}

/// Infers the nesting.
///
/// # Errors
/// `BadParam` naming both loops where two use each other's values or one value is of two that are
/// not in each other, and naming the loop and the tensor where a value is used outside its loop or
/// a boundary layer takes a value of its own loop for one from outside.
pub(super) fn nesting(network: &Network) -> Result<Nesting> {
    let loops = network.loops().map(|_| BTreeSet::new()).collect();
    let mut sets = Sets { tensors: HashMap::new(), loops, grown: true };
    while std::mem::take(&mut sets.grown) {
        network.layers().iter().for_each(|layer| sets.visit(layer));
    }
    let name = |of: &Loop| &network.descriptor(*of).name;
    for (at, around) in sets.loops.iter().enumerate() {
        let mutual = around.iter().find(|other| sets.loops[other.0].contains(&Loop(at)));
        if let Some(other) = mutual {
            let [a, b] = [&Loop(at), other].map(name);
            return Err(Error::bad_param(format!(
                "loops `{a}` and `{b}` do not nest cleanly: each uses values of the other"
            )));
        }
    }
    let chain = |loops: &BTreeSet<Loop>, user: &str| {
        let mut chain: Vec<Loop> = loops.iter().copied().collect();
        chain.sort_by_key(|of| sets.loops[of.0].len());
        let apart = chain.windows(2).find(|pair| !sets.loops[pair[1].0].contains(&pair[0]));
        match apart {
            None => Ok(chain),
            Some(pair) => {
                let [a, b] = [&pair[0], &pair[1]].map(name);
                Err(Error::bad_param(format!(
                    "loops `{a}` and `{b}` do not nest cleanly: {user} uses values of both, and \
                     neither is in the other"
                )))
            }
        }
    };
    let of_loop = |(at, around): (usize, &BTreeSet<Loop>)| {
        chain(around, &format!("loop `{}`", name(&Loop(at))))
    };
    let of_tensor = |(uid, around): (&i64, &BTreeSet<Loop>)| {
        Ok((*uid, chain(around, &format!("`{}`", network.reference(*uid)))?))
    };
    // In the order of the uids, so that it is the same error every time.
    let mut tensors: Vec<_> = sets.tensors.iter().collect();
    tensors.sort_unstable();
    let loops = sets.loops.iter().enumerate().map(of_loop).collect::<Result<_>>()?;
    check_outside(network, &sets)?;
    let tensors = tensors.into_iter().map(of_tensor).collect::<Result<_>>()?;
    Ok(Nesting { tensors, loops })
}

/// Checks that outputs of the network are of no loop, and that a loop takes what must be from
/// outside from there.
fn check_outside(network: &Network, sets: &Sets) -> Result<()> {
    for output in network.outputs() {
        if let Some(of) = sets.of(output.uid).first() {
            let (name, of) = (&output.name, &network.descriptor(*of).name);
            return Err(Error::bad_param(format!(
                "`{name}` is a value of loop `{of}` and is used outside of it: expected a loop \
                 output"
            )));
        }
    }
    for layer in network.layers() {
        let (of, x, what) = match layer {
            Layer::TripLimit { of, limit: TripLimit::Count, x } => (of, x, "count".to_owned()),
            Layer::Iterator { of, x, .. } => (of, x, "tensor of an iterator".to_owned()),
            Layer::Recurrence { of, initial, y, .. } => {
                (of, initial, format!("initial value of recurrence `{}`", network.reference(*y)))
            }
            _ => continue,
        };
        if sets.of(*x).contains(of) {
            let (x, name) = (network.reference(*x), &network.descriptor(*of).name);
            return Err(Error::bad_param(format!(
                "loop `{name}`: the {what}, `{x}`, is a value of the loop: expected one from \
                 outside"
            )));
        }
    }
    Ok(())
}
