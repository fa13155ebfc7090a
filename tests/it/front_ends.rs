//! A front-end that the library does not know: planning, running and checking it needs nothing but
//! the trait.

use kiln::frontend::{FrontEnd, random_values};
use kiln::plan::{Problem, Values, write_values};
use kiln::{DType, Error, ErrorKind, OperationGraph, Result, TensorDesc};
use serde_json::json;

use crate::harness::{compare, kiln};

const SIZE: i64 = 100;

/// `y = exp(x + x)` as two graphs, whose intermediate tensor is in memory. The caller's `x` is one
/// vector, the first graph's a matrix of one row.
#[derive(Debug)]
struct Chain {
    graphs: [OperationGraph; 2],
}

/// A pointwise mode whose operands are all the tensor `from`; it writes the tensor `to`.
fn graph(mode: &str, operands: usize, from: (i64, &str), to: (i64, &str)) -> OperationGraph {
    let tensor = |(uid, name)| json!({"name": name, "uid": uid, "dtype": "f32", "dims": [1, SIZE]});
    let inputs = vec![from.1; operands];
    let operation = json!({"pointwise": mode, "inputs": inputs, "output": to.1});
    let graph = json!({"tensors": [tensor(from), tensor(to)], "operations": [operation]});
    OperationGraph::from_json(&json!({ "graph": graph }).to_string()).unwrap()
}

impl Chain {
    fn new() -> Chain {
        let graphs = [graph("add", 2, (1, "x"), (2, "sum")), graph("exp", 1, (2, "sum"), (3, "y"))];
        Chain { graphs }
    }
}

impl FrontEnd for Chain {
    fn graphs(&self) -> Vec<&OperationGraph> {
        self.graphs.iter().collect()
    }

    fn named_inputs(&self) -> Vec<TensorDesc> {
        vec![TensorDesc::packed(0, "x", &[SIZE], DType::F32)]
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        vec![TensorDesc::packed(0, "y", &[SIZE], DType::F32)]
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        let values = random_values(&self.graphs[0], seed)?;
        Ok(Values::from([(0, values[&1].clone())]))
    }

    fn initial_values(&self, mut named: Values) -> Result<Values> {
        let missing = || Error::with(ErrorKind::BadParam, "chain: `x` is missing");
        let x = named.remove(&0).ok_or_else(missing)?;
        Ok(Values::from([(1, x)]))
    }

    fn named_values(&self, state: &Values) -> Values {
        Values::from([(0, state[&3].clone())])
    }
}

/// Plans and runs a problem graph by graph, as the command line does, checking each against the
/// reference.
fn run(problem: &Problem, values: &mut Values) {
    for (number, graph) in problem.graphs().into_iter().enumerate() {
        let inputs = problem.inputs(number, values);
        let outputs = kiln().trial(&kiln().plan(graph).unwrap(), &inputs).unwrap().outputs;
        compare(graph, &inputs, &outputs, "a graph of a chain");
        problem.store(number, &outputs, values);
    }
}

#[test]
fn a_front_end_of_two_graphs_runs_like_those_of_the_library() {
    let problem = Problem::new(Chain::new());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);

    let mut values = problem.random_values(7).unwrap();
    let x = TensorDesc::packed(1, "x", &[SIZE], DType::F32);
    write_values(&file("x"), [x].iter(), &values).unwrap();
    assert_eq!(problem.read_values(&file("x")).unwrap(), values);
    let given = values[&1].clone();

    run(&problem, &mut values);
    let y = values[&3].clone();
    for (x, y) in given.iter().zip(&y) {
        let expected = (x + x).exp();
        assert!((y - expected).abs() <= 1e-5 * expected, "exp({x} + {x}) is {y}");
    }
    problem.write_values(&file("y"), &values).unwrap();
    let named = TensorDesc::packed(5, "y", &[SIZE], DType::F32);
    let written = kiln::plan::read_values(&file("y"), [named].iter()).unwrap();
    assert_eq!(written[&5], y);

    let error = problem.only_graph().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadParam);
    let text = "the problem is 2 graphs, one after the other: expected one";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_document_has_a_known_key() {
    let refused = |text: &str| Problem::from_json(text).unwrap_err().to_string();
    let known = "expected one of `graph`, `rnn`, `sdpa`, `mha`, `loop`";
    assert_eq!(refused("{}"), format!("malformed problem: no key, {known}"));
    let text = format!("malformed problem: unknown key `conv`, {known}");
    assert_eq!(refused(r#"{"conv": 1}"#), text);
    let text = "malformed problem: the keys `rnn` and `mha`, expected one";
    assert_eq!(refused(r#"{"mha": {}, "rnn": {}}"#), text);
}
