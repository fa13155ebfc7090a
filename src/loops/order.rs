//! The order of layers: each after those that it depends on, a loop's outputs after all of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::loops::layer::{Layer, Loop};
use crate::loops::network::Network;

/// A layer, or all outputs of a loop, which are there at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Layer(usize),
    Loop(Loop),
}

/// The layers in order. Loop outputs stand for their loop: they depend on its limits and on the
/// next values of its recurrences, which recurrences do not.
///
/// # Errors
/// `BadParam` for a cycle, with the names on it.
pub(super) fn ordered(network: &Network) -> Result<Vec<Layer>> {
    let layers = network.layers();
    let node = |at: usize| match &layers[at] {
        Layer::LoopOutput { of, .. } => Node::Loop(*of),
        _ => Node::Layer(at),
    };
    let mut writers = BTreeMap::new();
    for (at, layer) in layers.iter().enumerate() {
        writers.extend(layer.outputs().into_iter().map(|uid| (uid, node(at))));
    }
    let mut needs: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    for (at, layer) in layers.iter().enumerate() {
        let of = |uid: &i64| writers.get(uid).copied();
        let own = match layer {
            Layer::Recurrence { initial, .. } => vec![*initial],
            layer => layer.inputs(),
        };
        needs.entry(node(at)).or_default().extend(own.iter().filter_map(of));
        if let Some(of_loop) = layer.of_loop() {
            let all = layer.inputs().into_iter().filter_map(|uid| of(&uid));
            needs.entry(Node::Loop(of_loop)).or_default().extend(all);
        }
    }
    let mut order = Vec::new();
    let mut done = BTreeSet::new();
    while done.len() < needs.len() {
        let ready: Vec<Node> = needs
            .iter()
            .filter(|(node, needs)| !done.contains(*node) && needs.is_subset(&done))
            .map(|(node, _)| *node)
            .collect();
        if ready.is_empty() {
            return Err(cycle(network, &needs, &done));
        }
        for ready in ready {
            done.insert(ready);
            order.extend((0..layers.len()).filter(|at| node(*at) == ready));
        }
    }
    Ok(order.into_iter().map(|at| layers[at].clone()).collect())
}

/// The error of a cycle: from any node that waits, nodes that wait are followed until one repeats.
fn cycle(
    network: &Network,
    needs: &BTreeMap<Node, BTreeSet<Node>>,
    done: &BTreeSet<Node>,
) -> Error {
    let mut at = *needs.keys().find(|node| !done.contains(*node)).expect("a node waits");
    let mut walked = Vec::new();
    while !walked.contains(&at) {
        walked.push(at);
        at = *needs[&at].iter().find(|node| !done.contains(*node)).expect("it waits for a node");
    }
    let start = walked.iter().position(|node| *node == at).expect("the walk closed");
    let name = |node: &Node| match node {
        Node::Loop(of) => format!("loop `{}`", network.descriptor(*of).name),
        Node::Layer(at) => match network.layers()[*at].outputs().first() {
            Some(uid) => format!("`{}`", network.reference(*uid)),
            None => "a trip limit".to_owned(),
        },
    };
    let mut names: Vec<String> = walked[start..].iter().rev().map(name).collect();
    // Rotated to the least name, so that the message does not depend on the order of insertion.
    let first = (0..names.len()).min_by_key(|at| &names[*at]).expect("a cycle has a node");
    names.rotate_left(first);
    names.push(names[0].clone());
    Error::bad_param(format!(
        "the network has a cycle: {}: only the next value of a recurrence may be computed from it",
        names.join(" -> ")
    ))
}
