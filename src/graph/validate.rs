//! Validation of graphs and the topological order of their operations.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::{Error, Result};
use crate::graph::find::find;
use crate::graph::operation::{Op, Operation};
use crate::tensor::TensorDesc;

/// Validates a graph and returns its operations in topological order. `tensors` is sorted by uid.
pub(super) fn validate(
    tensors: &[TensorDesc],
    operations: Vec<Operation>,
) -> Result<Vec<Operation>> {
    if operations.is_empty() {
        return Err(Error::bad_param("the graph has no operation"));
    }
    check_tensors(tensors)?;
    for operation in &operations {
        check_operation(tensors, operation)?;
    }
    let producers = producers(tensors, &operations)?;
    check_in_place(tensors, &operations, &producers)?;
    check_uses(tensors, &operations, &producers)?;
    let operations = topological(tensors, operations, &producers)?;
    check_connected(&operations)?;
    Ok(operations)
}

pub(crate) fn check_tensors(tensors: &[TensorDesc]) -> Result<()> {
    for pair in tensors.windows(2) {
        if pair[0].uid == pair[1].uid {
            let (uid, a, b) = (pair[0].uid, &pair[0].name, &pair[1].name);
            return Err(Error::bad_param(format!("tensors `{a}` and `{b}` share uid {uid}")));
        }
    }
    let mut names = BTreeMap::new();
    for tensor in tensors {
        tensor.validate()?;
        if tensor.name.starts_with('#') {
            let name = &tensor.name;
            let text = format!("tensor `{name}`: a name must not begin with `#`, which marks uids");
            return Err(Error::bad_param(text));
        }
        if tensor.name.is_empty() {
            if !tensor.is_virtual {
                let uid = tensor.uid;
                return Err(Error::bad_param(format!("tensor with uid {uid} has no name")));
            }
        } else if let Some(other) = names.insert(&tensor.name, tensor.uid) {
            let (name, uid) = (&tensor.name, tensor.uid);
            let text = format!("tensors with uids {other} and {uid} are both named `{name}`");
            return Err(Error::bad_param(text));
        }
    }
    Ok(())
}

pub(crate) fn check_operation(tensors: &[TensorDesc], operation: &Operation) -> Result<()> {
    let (op, slots) = (&operation.op, operation.op.slots());
    let name = op.name();
    op.check_arity(operation.inputs.len())?;
    let (results, given) = (slots.outputs.len(), operation.outputs.len());
    if results != given {
        return Err(Error::bad_param(format!("{name}: expected {results} results, got {given}")));
    }
    let known = |uid: &i64| {
        find(tensors, *uid).ok_or_else(|| {
            Error::bad_param(format!("{name}: no tensor of the graph has uid {uid}"))
        })
    };
    let inputs = operation.inputs.iter().map(known).collect::<Result<Vec<_>>>()?;
    let outputs = operation.outputs.iter().map(known).collect::<Result<Vec<_>>>()?;
    if let Some(result) = outputs.iter().find(|output| operation.inputs.contains(&output.uid)) {
        return Err(Error::not_supported(format!(
            "{name}: `{}` is both read and written: give the output a uid of its own and pass the \
             same pointer for both",
            result.name
        )));
    }
    op.check(&inputs, &outputs)?;
    let given = slots.inputs.iter().zip(&inputs).chain(slots.outputs.iter().zip(&outputs));
    let stores = |slot: &str| matches!(op, Op::Attention(_)) && matches!(slot, "q" | "k" | "v");
    match { given }.find(|(slot, tensor)| tensor.dtype.is_f8() && !stores(slot)) {
        None => Ok(()),
        Some((slot, TensorDesc { name: tensor, dtype, .. })) => Err(Error::not_supported(format!(
            "{name}: {slot} `{tensor}` is {dtype}, which only q, k and v of attention may have"
        ))),
    }
}

/// Maps each tensor to the index of the operation that writes it.
fn producers(tensors: &[TensorDesc], operations: &[Operation]) -> Result<HashMap<i64, usize>> {
    let mut producers = HashMap::new();
    for (index, operation) in operations.iter().enumerate() {
        for uid in &operation.outputs {
            let tensor = find(tensors, *uid).expect("operations were checked");
            if tensor.by_value {
                let name = &tensor.name;
                return Err(Error::bad_param(format!(
                    "tensor `{name}` is by value but is written"
                )));
            }
            let name = shown(tensor);
            match producers.insert(*uid, index) {
                None => {}
                Some(other) if other == index => {
                    let text = format!("tensor {name} is written twice by one operation");
                    return Err(Error::bad_param(text));
                }
                Some(_) => {
                    let text = format!("tensor {name} is written by two operations");
                    return Err(Error::bad_param(text));
                }
            }
        }
    }
    Ok(producers)
}

/// Checks that no operation writes what another one has in place.
fn check_in_place(
    tensors: &[TensorDesc],
    operations: &[Operation],
    producers: &HashMap<i64, usize>,
) -> Result<()> {
    for operation in operations {
        let op = &operation.op;
        let concatenated = match op {
            Op::Concatenate(op) => op.in_place.map(|at| operation.inputs[at as usize]),
            _ => None,
        };
        let same = operation.in_same_memory(tensors).into_iter().map(|(x, _)| x);
        let reads = |uid: i64| {
            let inputs = operations.iter().flat_map(|other| &other.inputs);
            inputs.filter(|input| **input == uid).count()
        };
        if let (Op::DynamicSlice(_), Some(uid)) = (op, same.clone().find(|uid| reads(*uid) > 1)) {
            let name = shown(find(tensors, uid).expect("operations were checked"));
            return Err(Error::bad_param(format!(
                "{op}: {name}, which a slice is written to, is read elsewhere in the graph"
            )));
        }
        let mut in_place = concatenated.into_iter().chain(same);
        if let Some(uid) = in_place.find(|uid| producers.contains_key(uid)) {
            let name = shown(find(tensors, uid).expect("operations were checked"));
            return Err(Error::bad_param(format!(
                "{op}: {name}, which is in place, is written by an operation: where it is virtual, \
                 it is written to its place"
            )));
        }
    }
    Ok(())
}

fn check_uses(
    tensors: &[TensorDesc],
    operations: &[Operation],
    producers: &HashMap<i64, usize>,
) -> Result<()> {
    let read: BTreeSet<i64> =
        operations.iter().flat_map(|operation| operation.inputs.iter().copied()).collect();
    for tensor in tensors {
        let name = shown(tensor);
        let written = producers.contains_key(&tensor.uid);
        let fail = |rule: &str| Err(Error::bad_param(format!("tensor {name} {rule}")));
        match (written, read.contains(&tensor.uid), tensor.is_virtual) {
            (false, false, _) => return fail("is not used by any operation"),
            (false, true, true) => return fail("is virtual but no operation writes it"),
            (true, false, true) => return fail("is virtual but no operation reads it"),
            (true, _, false) if tensor.may_overlap() => {
                let (dims, strides) = (&tensor.dims, &tensor.strides);
                return Err(Error::not_supported(format!(
                    "tensor {name} is written but its elements may overlap: dimensions {dims:?}, \
                     strides {strides:?}"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Kahn's algorithm with a FIFO queue.
fn topological(
    tensors: &[TensorDesc],
    operations: Vec<Operation>,
    producers: &HashMap<i64, usize>,
) -> Result<Vec<Operation>> {
    let sources = |operation: &Operation| -> BTreeSet<usize> {
        operation.inputs.iter().filter_map(|uid| producers.get(uid).copied()).collect()
    };
    let mut waiting: Vec<usize> =
        operations.iter().map(|operation| sources(operation).len()).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    for (index, operation) in operations.iter().enumerate() {
        for source in sources(operation) {
            readers[source].push(index);
        }
    }
    let mut order: Vec<usize> = (0..operations.len()).filter(|at| waiting[*at] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        for reader in &readers[order[next]] {
            waiting[*reader] -= 1;
            if waiting[*reader] == 0 {
                order.push(*reader);
            }
        }
        next += 1;
    }
    if order.len() < operations.len() {
        return Err(cycle(tensors, &operations, producers, &waiting));
    }
    let mut slots: Vec<Option<Operation>> = operations.into_iter().map(Some).collect();
    Ok(order.into_iter().map(|at| slots[at].take().expect("each operation once")).collect())
}

/// Reports one cycle: starting at any blocked operation, follows blocked producers until one
/// repeats.
fn cycle(
    tensors: &[TensorDesc],
    operations: &[Operation],
    producers: &HashMap<i64, usize>,
    waiting: &[usize],
) -> Error {
    let mut at = (0..operations.len()).find(|at| waiting[*at] > 0).expect("an operation is stuck");
    let mut walked = Vec::new();
    while !walked.contains(&at) {
        walked.push(at);
        let stuck = |uid: &i64| producers.get(uid).copied().filter(|at| waiting[*at] > 0);
        at = operations[at].inputs.iter().find_map(stuck).expect("a stuck operand");
    }
    let start = walked.iter().position(|seen| *seen == at).expect("the walk closed");
    let mut names: Vec<String> = walked[start..]
        .iter()
        .rev()
        .map(|at| shown(find(tensors, operations[*at].outputs[0]).expect("checked")))
        .collect();
    // Rotate the cycle to its smallest name, so that the message does not depend on insertion
    // order.
    let first = (0..names.len()).min_by_key(|at| &names[*at]).expect("a cycle has a tensor");
    names.rotate_left(first);
    names.push(names[0].clone());
    Error::bad_param(format!("the graph has a cycle: {}", names.join(" -> ")))
}

fn check_connected(operations: &[Operation]) -> Result<()> {
    // Union-find by relabelling: graphs are small, and this runs once.
    let mut label: HashMap<i64, usize> = HashMap::new();
    for (index, operation) in operations.iter().enumerate() {
        let uids = operation.inputs.iter().chain(&operation.outputs).copied();
        let touched: BTreeSet<usize> =
            uids.clone().filter_map(|uid| label.get(&uid).copied()).collect();
        for other in label.values_mut().filter(|other| touched.contains(other)) {
            *other = index;
        }
        label.extend(uids.map(|uid| (uid, index)));
    }
    let parts = label.values().collect::<BTreeSet<_>>().len();
    match parts {
        1 => Ok(()),
        _ => Err(Error::bad_param(format!("the operations form {parts} unconnected graphs"))),
    }
}

fn shown(tensor: &TensorDesc) -> String {
    match tensor.name.as_str() {
        "" => format!("#{}", tensor.uid),
        name => format!("`{name}`"),
    }
}
