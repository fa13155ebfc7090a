//! Where each layer is executed: in which bodies of loops, and in which branches.
//!
//! A layer is as deep in loops as its values differ from trip to trip, and no deeper: what does not
//! depend on a loop is computed before it, once. It is in a branch if only that branch uses it.

use std::collections::HashMap;

use crate::loops::layer::{Layer, Loop, TripLimit};
use crate::loops::network::Network;

/// A step into the body of a loop, or into a branch of a conditional.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Frame {
    /// The body of a loop.
    Body(Loop),
    /// The branch of a conditional, given by its layer's position, for this value of its
    /// condition.
    Branch(usize, bool),
}

/// Frames from the outermost to the innermost.
pub(super) type Path = Vec<Frame>;

/// The paths of everything that is executed.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    /// Of operations and conditionals, by the layer's position.
    pub(super) layers: HashMap<usize, Path>,
    pub(super) loops: HashMap<Loop, Path>,
}

impl Scopes {
    /// The path of what is in a loop's body.
    pub(super) fn body(&self, of: Loop) -> Path {
        inside(&self.loops[&of], Frame::Body(of))
    }
}

pub(super) fn inside(path: &Path, frame: Frame) -> Path {
    path.iter().copied().chain([frame]).collect()
}

/// Finds the paths: from the outputs of the network back, as each layer is where its users have it.
pub(super) fn scopes(network: &Network) -> Scopes {
    let mut scopes = Scopes::default();
    let mut users: HashMap<i64, Vec<Path>> = HashMap::new();
    for output in network.outputs() {
        users.entry(output.uid).or_default().push(Path::new());
    }
    for (at, layer) in network.layers().iter().enumerate().rev() {
        let placed = |users: &HashMap<i64, Vec<Path>>, outputs: &[i64], nest: &[Loop]| {
            let all: Vec<&Path> =
                outputs.iter().filter_map(|uid| users.get(uid)).flatten().collect();
            common(&all, nest)
        };
        let mut used: Vec<(i64, Path)> = Vec::new();
        match layer {
            Layer::Operation(operation) => {
                let nest = operation.outputs.first().map_or(&[][..], |uid| network.nest(*uid));
                let path = placed(&users, &operation.outputs, nest);
                used.extend(operation.inputs.iter().map(|uid| (*uid, path.clone())));
                scopes.layers.insert(at, path);
            }
            Layer::Conditional { condition, results } => {
                let path = placed(&users, &layer.outputs(), network.nest(results[0].y));
                used.push((*condition, path.clone()));
                for of in results {
                    used.push((of.then, inside(&path, Frame::Branch(at, true))));
                    used.push((of.otherwise, inside(&path, Frame::Branch(at, false))));
                }
                scopes.layers.insert(at, path);
            }
            // All outputs of a loop stand behind each other, and all that uses them behind those.
            Layer::LoopOutput { of, .. } if !scopes.loops.contains_key(of) => {
                let boundaries: Vec<&Layer> = network.boundaries(*of).collect();
                let outputs = boundaries.iter().filter_map(|layer| match layer {
                    Layer::LoopOutput { y, .. } => Some(*y),
                    _ => None,
                });
                let outputs: Vec<i64> = outputs.collect();
                let path = placed(&users, &outputs, network.around(*of));
                let body = inside(&path, Frame::Body(*of));
                for layer in boundaries {
                    match layer {
                        Layer::TripLimit { limit: TripLimit::While, x, .. }
                        | Layer::LoopOutput { x, .. } => used.push((*x, body.clone())),
                        Layer::Recurrence { initial, next, .. } => {
                            used.extend([(*initial, path.clone()), (*next, body.clone())]);
                        }
                        _ => used.extend(layer.inputs().into_iter().map(|x| (x, path.clone()))),
                    }
                }
                scopes.loops.insert(*of, path);
            }
            _ => {}
        }
        for (uid, path) in used {
            users.entry(uid).or_default().push(path);
        }
    }
    scopes
}

/// What paths have in common, up to the first loop in whose trips nothing changes.
fn common(paths: &[&Path], nest: &[Loop]) -> Path {
    let Some((first, rest)) = paths.split_first() else { return Path::new() };
    let same =
        |(at, frame): &(usize, &Frame)| rest.iter().all(|path| path.get(*at) == Some(*frame));
    let varies = |(_, frame): &(usize, &Frame)| match frame {
        Frame::Body(of) => nest.contains(of),
        Frame::Branch(..) => true,
    };
    first.iter().enumerate().take_while(same).take_while(varies).map(|(_, frame)| *frame).collect()
}
