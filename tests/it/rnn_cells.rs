//! Users' own cells: from Rust, from JSON, on the device.

use std::fs;
use std::path::Path;

use kiln::graph::{Cell, Op};
use kiln::plan::Problem;

use crate::harness;

#[path = "../../examples/user_cells/cells.rs"]
pub mod user_cells;

/// The problem file of a cell, and the cell in it.
fn problem(name: &str) -> (Problem, Cell) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/user_cells");
    let text = fs::read_to_string(folder.join(format!("{name}.json")))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let problem = Problem::from_json(&text).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let cells = problem.graphs()[0].operations().iter().find_map(|operation| match &operation.op {
        Op::Recurrence(op) => Some(Cell::clone(&op.cell)),
        _ => None,
    });
    (problem, cells.expect("a network has a recurrence"))
}

#[test]
fn cells_from_rust_and_from_json_are_equal() {
    for cell in user_cells::all().expect("their lines fit together") {
        let (_, read) = problem(&cell.name);
        assert_eq!(read, cell);
    }
}

#[test]
fn cells_of_users_run_as_the_reference_says() {
    for cell in user_cells::all().expect("their lines fit together") {
        let (problem, _) = problem(&cell.name);
        let inputs = problem.random_values(3).expect("there is memory");
        for kiln in harness::dialects() {
            harness::check(kiln, problem.graphs()[0], None, &inputs, &cell.name);
        }
    }
}
