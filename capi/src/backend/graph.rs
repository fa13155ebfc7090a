//! Operation graphs (section 8.2.2.25).

use std::sync::Arc;

use kiln::engine::engines;
use kiln::graph::{Operation, OperationGraph};
use kiln::tensor::TensorDesc;

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::product::{Graph, Product};
use crate::handle::handle_of;
use crate::status::{Outcome, bad, refuse};

/// Builds a graph.
pub fn finalize(node: &Node) -> Outcome<Product> {
    let handle = handle_of(node.integer(N::OPERATIONGRAPH_HANDLE))?;
    let nodes = node.nodes(N::OPERATIONGRAPH_OPS);
    let (mut tensors, mut operations) = (Vec::<TensorDesc>::new(), Vec::new());
    for (at, operation) in nodes.iter().enumerate() {
        let Product::Operation(own) = operation.product("an operation")? else {
            return bad(format!("element {at} is no operation"));
        };
        let op = match &own.op {
            Ok(op) => op.clone(),
            Err(reason) => {
                let (name, count) = (own.name, nodes.len());
                return refuse(format!("operation {} of {count}, {name}: {reason}", at + 1));
            }
        };
        for tensor in own.inputs.iter().chain(&own.outputs) {
            match tensors.iter().find(|known| known.uid == tensor.uid) {
                Some(known) if *known != **tensor => {
                    return bad(format!("two tensors that differ have the uid {}", tensor.uid));
                }
                Some(_) => {}
                None => tensors.push(TensorDesc::clone(tensor)),
            }
        }
        let uids = |of: &[Arc<TensorDesc>]| of.iter().map(|tensor| tensor.uid).collect();
        operations.push(Operation { op, inputs: uids(&own.inputs), outputs: uids(&own.outputs) });
    }
    let graph = OperationGraph::new(tensors, operations)?;
    let gpu = handle.gpu().clone();
    let target = gpu.kiln.device().target();
    let able = engines().iter().filter(|of| of.support(graph.canonical(), target).is_ok());
    let engines: Vec<&'static str> = able.map(|engine| engine.name()).collect();
    if engines.is_empty() {
        // That a graph cannot be divided either is said now, with every engine's reason.
        gpu.kiln.parts(&graph)?;
    }
    Ok(Product::Graph(Arc::new(Graph { gpu, graph, engines })))
}
