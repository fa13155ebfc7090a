//! Runs the cells of `cells.rs` and compares them with the reference.
//!
//! ```text
//! cargo run --release --example user_cells
//! ```
//! The same cells as problem files are `examples/user_cells/*.json`.

mod cells;

use kiln::plan::Problem;
use kiln::rnn::{BiasMode, Extent, Optional, Rnn};
use kiln::{Config, Kiln, reference};

fn main() -> kiln::Result<()> {
    let kiln = Kiln::open(Config::default())?;
    println!("device  {}", kiln.device().target());
    for cell in cells::all()? {
        let (name, recurrent) = (cell.name.clone(), cell.recurrent_gates() > 0);
        let bias = if recurrent { BiasMode::Double } else { BiasMode::SingleInput };
        let rnn = Rnn::of_cell(cell, 16, 32).bias(bias);
        let network = rnn.network(Extent { batch: 4, rows: 4 * 10 }, Optional::default())?;
        let problem = Problem::new(network);
        let (graph, inputs) = (problem.graphs()[0], problem.random_values(1)?);
        let plan = kiln.plan(graph)?;
        let ran = kiln.trial(&plan, &inputs)?;
        let expected = reference::evaluate(graph, &inputs)?;
        for output in graph.outputs() {
            let worst = expected[&output.uid].worst(&ran.outputs[&output.uid]);
            let ratio = worst.map_or(0.0, |worst| worst.ratio);
            println!("{name:16} {output}: worst error {ratio:.2} of its bound");
            assert!(ratio <= 1.0, "the result is not what the reference says");
        }
    }
    Ok(())
}
