//! Canonical form of a graph, independent of uids and insertion order.
//!
//! Every operation is coloured with a Merkle hash of its producers (forward pass) and of its
//! consumers (backward pass). The canonical order is the topological order with ties broken by
//! colour. Operations of equal colour are interchangeable except in contrived graphs, where the
//! cost is a redundant compilation, never a wrong result.
//!
//! Colours that ignore extents and strides are compared first, so that graphs of the same structure
//! but different shapes share one operation order and can be served by one dynamic-shape kernel.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};

use blake3::Hasher;

use crate::expr::Identifiers;
use crate::graph::find::find;
use crate::graph::operation::{Operation, writes};
use crate::graph::views::{Place, Resolved, resolve};
use crate::progression::Progression;
use crate::tensor::TensorDesc;

/// Digest of a canonical graph.
pub type GraphDigest = [u8; 32];

/// The canonical form of a graph: canonical tensor `i` is the graph's tensor `uids[i]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CanonicalGraph<'a> {
    /// Tensors whose uid is their index.
    pub tensors: &'a [TensorDesc],
    /// Operations on those uids, in canonical order.
    pub operations: &'a [Operation],
    /// The uid of the tensor of the graph in whose memory each tensor lies: its own, or where an
    /// operation that moves elements is expressed by strides, the one that these are of.
    pub uids: &'a [i64],
    /// Where in that memory each tensor begins, in elements.
    pub offsets: &'a [i64],
}

impl CanonicalGraph<'_> {
    /// Where in the memory of `uids` the tensor at index `at` begins, in elements; what engines
    /// add to a graph has no memory.
    pub(crate) fn offset(&self, at: usize) -> i64 {
        self.offsets.get(at).copied().unwrap_or(0)
    }

    /// Where in the memory of `uids` the tensor at index `at` begins.
    pub(crate) fn offset_bytes(&self, at: usize) -> u64 {
        self.offset(at) as u64 * self.tensors[at].dtype.bytes() as u64
    }

    /// Returns whether an operation writes the tensor at index `at`.
    pub(crate) fn is_written(&self, at: usize) -> bool {
        writes(self.operations, at as i64)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Canonical {
    pub(super) tensors: Vec<TensorDesc>,
    pub(super) operations: Vec<Operation>,
    pub(super) uids: Vec<i64>,
    pub(super) offsets: Vec<i64>,
    /// The tensors as operations that compute see them: uid and name.
    seen: Vec<(i64, String)>,
    /// Whether operations that move elements are expressed by strides.
    moves: bool,
}

/// The order is that of the first, also where shapes decide it and would decide otherwise.
impl Progression for Canonical {
    fn term(first: &Canonical, second: &Canonical, at: i64) -> Option<Canonical> {
        let tensors = Vec::term(&first.tensors, &second.tensors, at)?;
        let offsets = Vec::term(&first.offsets, &second.offsets, at)?;
        let operations = Vec::term(&first.operations, &second.operations, at)?;
        let (uids, seen, moves) = (first.uids.clone(), first.seen.clone(), first.moves);
        Some(Canonical { tensors, operations, uids, offsets, seen, moves })
    }
}

/// Digests of the canonical form, without and with uids and names.
#[derive(Debug, Clone)]
pub(super) struct Digests {
    pub(super) form: GraphDigest,
    pub(super) whole: GraphDigest,
}

type Colour = [u8; 32];

/// Computes the canonical form of a valid graph; `tensors` is sorted by uid, `operations` is in
/// topological order. Operations that move elements are left where strides cannot express them.
pub(super) fn canonical(tensors: &[TensorDesc], operations: &[Operation]) -> Canonical {
    match resolve(tensors, operations) {
        Ok(Some(resolved)) => {
            let Resolved { tensors: seen, operations: left, places } = resolved;
            Canonical { moves: true, ..canonical_of(&seen, &left, &places) }
        }
        _ => canonical_of(tensors, operations, &BTreeMap::new()),
    }
}

impl Canonical {
    /// The digests of the graph of these tensors and operations, whose canonical form this is.
    pub(super) fn digests(&self, tensors: &[TensorDesc], operations: &[Operation]) -> Digests {
        let text = format!("{:?}{:?}", self.tensors, self.operations);
        let mut form = hash(&[b"kiln graph 2", text.as_bytes()]);
        let uid_bytes: Vec<u8> = self.seen.iter().flat_map(|(uid, _)| uid.to_le_bytes()).collect();
        let names: String = self.seen.iter().map(|(_, name)| format!("{name:?}")).collect();
        let mut whole = hash(&[&form, &uid_bytes, names.as_bytes()]);
        if self.moves {
            // The operations of the graph itself count.
            let shaped = |tensor: &TensorDesc| format!("{:?}", anonymous(tensor));
            let forms = listed(tensors, operations, shaped);
            let all = listed(tensors, operations, |tensor| format!("{tensor:?}"));
            let offsets = format!("{:?}", self.offsets);
            form = hash(&[&form, forms.as_bytes()]);
            whole = hash(&[&whole, all.as_bytes(), offsets.as_bytes()]);
        }
        Digests { form, whole }
    }
}

/// Operations with their tensors as `show` describes them, independent of the order.
fn listed(
    tensors: &[TensorDesc],
    operations: &[Operation],
    show: impl Fn(&TensorDesc) -> String,
) -> String {
    let text = |operation: &Operation| {
        let uids = operation.inputs.iter().chain(&operation.outputs);
        let shown = uids.filter_map(|uid| find(tensors, *uid)).map(&show);
        let shown: Vec<String> = shown.collect();
        format!("{:?}{shown:?}", operation.op.normalised())
    };
    let mut texts: Vec<String> = operations.iter().map(text).collect();
    texts.sort_unstable();
    texts.concat()
}

/// The canonical form of operations that compute, on tensors some of which lie in others' memory.
fn canonical_of(
    tensors: &[TensorDesc],
    operations: &[Operation],
    places: &BTreeMap<i64, Place>,
) -> Canonical {
    let order = order(tensors, operations);
    let mut uids: Vec<i64> = Vec::new();
    let mut position: HashMap<i64, i64> = HashMap::new();
    let mut renamed = Vec::new();
    for index in order {
        let mut place = |uid: i64| {
            *position.entry(uid).or_insert_with(|| {
                uids.push(uid);
                uids.len() as i64 - 1
            })
        };
        let Operation { op, inputs, outputs } = &operations[index];
        let inputs = inputs.iter().map(|uid| place(*uid)).collect();
        let outputs = outputs.iter().map(|uid| place(*uid)).collect();
        renamed.push(Operation { op: op.normalised(), inputs, outputs });
    }
    let name = |uid: i64| find(tensors, uid).map_or(String::new(), |tensor| tensor.name.clone());
    let plain = |(index, uid): (usize, &i64)| {
        let tensor = find(tensors, *uid).expect("operations name known tensors");
        TensorDesc { uid: index as i64, ..anonymous(tensor) }
    };
    let tensors = uids.iter().enumerate().map(plain).collect();
    let seen = uids.iter().map(|uid| (*uid, name(*uid))).collect();
    let offsets = uids.iter().map(|uid| places.get(uid).map_or(0, |place| place.offset)).collect();
    let uids = uids.iter().map(|uid| places.get(uid).map_or(*uid, |place| place.uid)).collect();
    Canonical { tensors, operations: renamed, uids, offsets, seen, moves: false }
}

/// Strips the uid and reduces the name to its identifier base. A virtual tensor has no memory, so
/// only its dimensions and type are kept.
fn anonymous(tensor: &TensorDesc) -> TensorDesc {
    let name = if tensor.name.is_empty() { String::new() } else { Identifiers::base(&tensor.name) };
    let plain = TensorDesc { uid: 0, name, ..tensor.clone() };
    match tensor.is_virtual {
        true => TensorDesc {
            is_virtual: true,
            ..TensorDesc::packed(0, plain.name, &tensor.dims, tensor.dtype)
        },
        false => plain,
    }
}

/// Describes a tensor without its shape.
fn structure(tensor: &TensorDesc) -> String {
    let TensorDesc { name, dtype, is_virtual, by_value, .. } = anonymous(tensor);
    format!("{:?}", (name, dtype, is_virtual, by_value))
}

fn hash(parts: &[&[u8]]) -> Colour {
    let mut hasher = Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// Computes a colour per operation from its text and from `text` of each tensor it touches.
fn colours(
    tensors: &[TensorDesc],
    operations: &[Operation],
    texts: &[String],
    text: impl Fn(&TensorDesc) -> String,
) -> Vec<Colour> {
    let mut forward: HashMap<i64, Colour> =
        tensors.iter().map(|tensor| (tensor.uid, hash(&[text(tensor).as_bytes()]))).collect();
    // Forward colour of each operation, from which the colours of its results derive.
    let mut results = vec![[0; 32]; operations.len()];
    for (index, operation) in operations.iter().enumerate() {
        let uids = operation.outputs.iter().chain(&operation.inputs);
        let parts = uids.map(|uid| forward[uid].as_slice());
        let parts: Vec<&[u8]> = [texts[index].as_bytes()].into_iter().chain(parts).collect();
        results[index] = hash(&parts);
        for (slot, uid) in operation.outputs.iter().enumerate() {
            forward.insert(*uid, in_slot(&results[index], slot));
        }
    }
    let mut backward: HashMap<i64, Vec<Colour>> = HashMap::new();
    let mut colours = vec![[0; 32]; operations.len()];
    for (index, operation) in operations.iter().enumerate().rev() {
        let mut parts: Vec<Colour> = vec![results[index]];
        for output in &operation.outputs {
            let mut uses = backward.remove(output).unwrap_or_default();
            uses.sort_unstable();
            parts.push(hash(&uses.iter().map(|used| used.as_slice()).collect::<Vec<_>>()));
        }
        colours[index] = hash(&parts.iter().map(|part| part.as_slice()).collect::<Vec<_>>());
        for (slot, uid) in operation.inputs.iter().enumerate() {
            backward.entry(*uid).or_default().push(in_slot(&colours[index], slot));
        }
    }
    colours
}

fn in_slot(colour: &Colour, slot: usize) -> Colour {
    hash(&[colour, &(slot as u64).to_le_bytes()])
}

/// Topological order; among ready operations the smallest colour comes first: that without shapes,
/// then that with them. Colours are computed only where more than one operation is ready.
fn order(tensors: &[TensorDesc], operations: &[Operation]) -> Vec<usize> {
    let texts = LazyCell::new(|| {
        let text = |operation: &Operation| format!("{:?}", operation.op.normalised());
        operations.iter().map(text).collect::<Vec<_>>()
    });
    let structural = LazyCell::new(|| colours(tensors, operations, &texts, structure));
    let shape = |tensor: &TensorDesc| format!("{:?}", anonymous(tensor));
    let shaped = LazyCell::new(|| colours(tensors, operations, &texts, shape));
    let by_colour = |a: &usize, b: &usize| {
        let by_structure = structural[*a].cmp(&structural[*b]);
        by_structure.then_with(|| shaped[*a].cmp(&shaped[*b])).then_with(|| a.cmp(b))
    };
    let produced = |(index, op): (usize, &Operation)| -> Vec<(i64, usize)> {
        op.outputs.iter().map(|uid| (*uid, index)).collect()
    };
    let producer: HashMap<i64, usize> = operations.iter().enumerate().flat_map(produced).collect();
    let mut waiting = vec![0; operations.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    for (index, operation) in operations.iter().enumerate() {
        for from in operation.inputs.iter().filter_map(|uid| producer.get(uid)) {
            waiting[index] += 1;
            readers[*from].push(index);
        }
    }
    let mut ready: Vec<usize> = (0..operations.len()).filter(|at| waiting[*at] == 0).collect();
    let mut order = Vec::with_capacity(operations.len());
    while !ready.is_empty() {
        let smallest = || (0..ready.len()).min_by(|a, b| by_colour(&ready[*a], &ready[*b]));
        let first = if ready.len() == 1 { Some(0) } else { smallest() };
        let index = ready.swap_remove(first.expect("an operation is ready"));
        order.push(index);
        for reader in &readers[index] {
            waiting[*reader] -= 1;
            if waiting[*reader] == 0 {
                ready.push(*reader);
            }
        }
    }
    order
}
