//! Loops: the Mandelbrot set as a picture, and words that are decoded until the last one.
//!
//! ```text
//! cargo run --release --example loops
//! ```
//! Both loops end by a condition that the device computes. The picture's has a count as well: its
//! points are iterated until none of them is left inside, and at most so many times. The words are
//! chosen greedily: each is the one with the greatest score behind the one before.

use std::collections::HashMap;
use std::error::Error;

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{GraphBuilder, Matmul, MatmulMath, Reduction, ReductionOp};
use kiln::loops::{LoopOutput, Network, TripLimit};
use kiln::plan::Values;
use kiln::{Config, DType, Kiln};

const ROWS: usize = 24;
const COLUMNS: usize = 72;
const TRIPS: f64 = 48.0;

const WORDS: [&str; 9] = ["a", "loop", "ends", "where", "its", "condition", "is", "false", "."];

fn op(graph: &mut GraphBuilder, mode: Mode, inputs: &[i64]) -> kiln::Result<i64> {
    graph.pointwise(Pointwise::new(mode), inputs)
}

/// `z = z^2 + c` for a grid of `c`, and the trips after which each `z` was still inside.
pub fn mandelbrot() -> kiln::Result<Network> {
    let dims = [ROWS as i64, COLUMNS as i64];
    let mut network = Network::builder();
    let graph = network.graph();
    let [cr, ci, zero] = ["cr", "ci", "zero"].map(|name| graph.input(name, &dims, DType::F32));
    let [four, none] = ["four", "none"].map(|name| graph.input(name, &[1, 1], DType::F32));
    let trips = graph.input("trips", &[1], DType::I32);
    let of = network.add_loop("iteration");
    network.trip_limit(of, TripLimit::Count, trips);
    let [zr, zi, count] = [0, 1, 2].map(|_| network.recurrence(of, zero));
    let (zr, zi, count) = (zr?, zi?, count?);
    let graph = network.graph();
    let [rr, ii, ri] = [(zr, zr), (zi, zi), (zr, zi)].map(|(a, b)| op(graph, Mode::Mul, &[a, b]));
    let (rr, ii, ri) = (rr?, ii?, ri?);
    let square = op(graph, Mode::Add, &[rr, ii])?;
    let inside = op(graph, Mode::CmpLe, &[square, four])?;
    let difference = op(graph, Mode::Sub, &[rr, ii])?;
    let next_r = op(graph, Mode::Add, &[difference, cr])?;
    let twice = op(graph, Mode::Add, &[ri, ri])?;
    let next_i = op(graph, Mode::Add, &[twice, ci])?;
    let next_r = op(graph, Mode::BinarySelect, &[next_r, zr, inside])?;
    let next_i = op(graph, Mode::BinarySelect, &[next_i, zi, inside])?;
    let counted = op(graph, Mode::Add, &[count, inside])?;
    let left = graph.reduction(Reduction::new(ReductionOp::Max), inside, &[1, 1])?;
    let going = op(graph, Mode::CmpGt, &[left, none])?;
    graph.name(going, "going", DType::Bool);
    network.trip_limit(of, TripLimit::While, going);
    network.set_next(zr, next_r)?;
    network.set_next(zi, next_i)?;
    network.set_next(count, counted)?;
    let inside = network.loop_output(of, LoopOutput::LastValue, count)?;
    network.graph().output(inside, "count", DType::F32);
    network.build()
}

/// Words from a first one on, each as a row with a 1, until the last word.
pub fn decoder() -> kiln::Result<Network> {
    let count = WORDS.len() as i64;
    let mut network = Network::builder();
    let graph = network.graph();
    let [first, end] = ["first", "end"].map(|name| graph.input(name, &[1, count], DType::F32));
    let scores = graph.input("scores", &[count, count], DType::F32);
    let half = graph.input("half", &[1, 1], DType::F32);
    let of = network.add_loop("words");
    network.trips_max(of, 100);
    let word = network.recurrence(of, first)?;
    let graph = network.graph();
    let ended = op(graph, Mode::Mul, &[word, end])?;
    let ended = graph.reduction(Reduction::new(ReductionOp::Max), ended, &[1, 1])?;
    let going = op(graph, Mode::CmpLt, &[ended, half])?;
    graph.name(going, "going", DType::Bool);
    let row = graph.matmul(Matmul::new(MatmulMath::F32), word, scores)?;
    let best = graph.reduction(Reduction::new(ReductionOp::Max), row, &[1, 1])?;
    let next = op(graph, Mode::CmpEq, &[row, best])?;
    network.trip_limit(of, TripLimit::While, going);
    network.set_next(word, next)?;
    let output = LoopOutput::Concatenate { axis: 0, length: 100 };
    let words = network.loop_output(of, output, next)?;
    network.graph().output(words, "words", DType::F32);
    network.build()
}

/// Runs a network on values by name; returns those of its only output.
fn run(kiln: &Kiln, network: &Network, values: &HashMap<&str, Vec<f64>>) -> kiln::Result<Vec<f64>> {
    let of = |tensor: &kiln::TensorDesc| (tensor.uid, values[tensor.name.as_str()].clone());
    let inputs: Values = network.inputs().map(of).collect();
    let outputs = kiln.build_loops(network)?.trial(kiln, &inputs)?;
    Ok(outputs.into_values().next().unwrap_or_default())
}

fn main() -> Result<(), Box<dyn Error>> {
    let kiln = Kiln::open(Config::default())?;
    println!("on {}", kiln.device().target());
    let network = mandelbrot()?;
    let at = |index: usize, count: usize, [from, to]: [f64; 2]| {
        from + (to - from) * index as f64 / (count - 1) as f64
    };
    let points = || (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column)));
    let values = HashMap::from([
        ("cr", points().map(|(_, column)| at(column, COLUMNS, [-2.2, 0.8])).collect()),
        ("ci", points().map(|(row, _)| at(row, ROWS, [-1.25, 1.25])).collect()),
        ("zero", vec![0.0; ROWS * COLUMNS]),
        ("four", vec![4.0]),
        ("none", vec![0.0]),
        ("trips", vec![TRIPS]),
    ]);
    let counts = run(&kiln, &network, &values)?;
    for row in counts.chunks(COLUMNS) {
        let shade = |count: &f64| match *count {
            count if count >= TRIPS => '#',
            count => [' ', '.', ':', '-', '=', '+', '*'][(count as usize / 3).min(6)],
        };
        println!("{}", row.iter().map(shade).collect::<String>());
    }
    let count = WORDS.len();
    let one_hot = |at: usize| (0..count).map(|word| f64::from(u8::from(word == at))).collect();
    // Behind a word the next one scores best, then those that are near.
    let score = |from: usize, to: usize| -((to as f64 - from as f64 - 1.0).abs());
    let scores = (0..count).flat_map(|from| (0..count).map(move |to| score(from, to))).collect();
    let values = HashMap::from([
        ("first", one_hot(0)),
        ("end", one_hot(count - 1)),
        ("scores", scores),
        ("half", vec![0.5]),
    ]);
    let words = run(&kiln, &decoder()?, &values)?;
    let chosen = words.chunks(count).map_while(|row| row.iter().position(|of| *of > 0.5));
    let rest: Vec<&str> = chosen.map(|at| WORDS[at]).collect();
    println!("{} {}", WORDS[0], rest.join(" "));
    Ok(())
}
