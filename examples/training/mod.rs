//! What the examples of training share: graphs with their memory, the cross-entropy, Adam as a
//! pointwise graph, characters as vectors, and a picture of the losses.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::fmt::Write as _;

use kiln::device::{Buffer, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{GraphBuilder, Reduction, ReductionOp};
use kiln::rnn::HostTensor;
use kiln::{DType, ExecutionPlan, Kiln, OperationGraph, VariantPack};
use safetensors::SafeTensors;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// William Shakespeare, Sonnet 18 (1609).
pub const TEXT: &str = include_str!("sonnet.txt");
const RATE: f64 = 0.01;

/// A plan with memory for all that its graph reads and writes; tensors of one uid share it.
pub struct Bound {
    plan: ExecutionPlan,
    pack: VariantPack,
}

impl Bound {
    /// `value` is that of every tensor which is passed by value.
    pub fn new(
        kiln: &Kiln,
        graph: &OperationGraph,
        memory: &mut HashMap<i64, Buffer>,
        value: f64,
    ) -> Result<Bound> {
        let plan = kiln.plan(graph)?;
        let mut pack = VariantPack::new();
        for tensor in graph.inputs().filter(|tensor| tensor.by_value) {
            pack.set_value(tensor.uid, value);
        }
        for tensor in graph.inputs().chain(graph.outputs()).filter(|tensor| !tensor.by_value) {
            let own = match memory.entry(tensor.uid) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let zeros = vec![0; tensor.span_bytes()? as usize];
                    place.insert(kiln.device().upload(&zeros)?)
                }
            };
            pack = pack.with(tensor.uid, own);
        }
        let workspace = kiln.device().alloc(plan.workspace_bytes().max(1))?;
        Ok(Bound { plan, pack: pack.with_workspace(&workspace) })
    }

    pub fn run(&self, stream: &Stream) -> kiln::Result<()> {
        self.plan.execute(stream, &self.pack)
    }
}

/// The mean cross-entropy of `softmax(scores)`, `[1, rows, classes]`, and one-hot `targets`.
pub fn cross_entropy(graph: &mut GraphBuilder, scores: i64, targets: i64) -> kiln::Result<i64> {
    let rows = graph.descriptor(targets).map_or(0, |tensor| tensor.dims[1]);
    let row = |graph: &mut GraphBuilder, op, x| {
        graph.reduction(Reduction { op, math: Default::default() }, x, &[1, rows, 1])
    };
    let largest = row(graph, ReductionOp::Max, scores)?;
    let apart = graph.pointwise(Pointwise::new(Mode::Sub), &[scores, largest])?;
    let exp = graph.pointwise(Pointwise::new(Mode::Exp), &[apart])?;
    let sum = row(graph, ReductionOp::Add, exp)?;
    let log = graph.pointwise(Pointwise::new(Mode::Log), &[sum])?;
    let chosen = graph.pointwise(Pointwise::new(Mode::Mul), &[apart, targets])?;
    let chosen = row(graph, ReductionOp::Add, chosen)?;
    let missed = graph.pointwise(Pointwise::new(Mode::Sub), &[log, chosen])?;
    let mean = Reduction { op: ReductionOp::Avg, math: Default::default() };
    let loss = graph.reduction(mean, missed, &[1, 1, 1])?;
    Ok(loss)
}

/// Adam (Kingma and Ba 2014) for a vector of parameters, in place.
pub struct Adam {
    plan: ExecutionPlan,
    pack: VariantPack,
    /// Uids of the corrections of both moments.
    corrections: [i64; 2],
}

const BETAS: [f64; 2] = [0.9, 0.999];

impl Adam {
    pub fn new(kiln: &Kiln, weights: &Buffer, gradients: &Buffer) -> Result<Adam> {
        let count = (weights.bytes() / 4) as i64;
        let mut graph = OperationGraph::builder();
        let dims = [1, 1, count];
        let [w, g, m, v] = ["w", "g", "m", "v"].map(|name| graph.input(name, &dims, DType::F32));
        let corrections = ["first", "second"].map(|name| graph.scalar(name, 3, DType::F32));
        let [first, second] = BETAS;
        let op = |mode, a, b| Pointwise::new(mode).alphas(a, b);
        let next_m = graph.pointwise(op(Mode::Add, first, 1.0 - first), &[m, g])?;
        let next_v =
            graph.pointwise(op(Mode::AddSquare, second, (1.0 - second).sqrt()), &[v, g])?;
        let mean = graph.pointwise(op(Mode::Mul, 1.0, 1.0), &[next_m, corrections[0]])?;
        let square = graph.pointwise(op(Mode::Mul, 1.0, 1.0), &[next_v, corrections[1]])?;
        let root = graph.pointwise(op(Mode::Sqrt, 1.0, 1.0), &[square])?;
        let epsilon = graph.scalar("epsilon", 3, DType::F32);
        let root = graph.pointwise(op(Mode::Add, 1.0, 1.0), &[root, epsilon])?;
        let step = graph.pointwise(op(Mode::Div, 1.0, 1.0), &[mean, root])?;
        let next_w = graph.pointwise(op(Mode::Sub, 1.0, RATE), &[w, step])?;
        for (uid, name) in [(next_m, "next_m"), (next_v, "next_v"), (next_w, "next_w")] {
            graph.output(uid, name, DType::F32);
        }
        let plan = kiln.plan(&graph.build()?)?;
        let zeros = vec![0; weights.bytes() as usize];
        let moments = [kiln.device().upload(&zeros)?, kiln.device().upload(&zeros)?];
        let pack = VariantPack::new()
            .with(w, weights)
            .with(next_w, weights)
            .with(g, gradients)
            .with(m, &moments[0])
            .with(next_m, &moments[0])
            .with(v, &moments[1])
            .with(next_v, &moments[1])
            .with_value(epsilon, 1e-8)
            .with_value(corrections[0], 1.0)
            .with_value(corrections[1], 1.0);
        Ok(Adam { plan, pack, corrections })
    }

    pub fn step(&mut self, stream: &Stream, epoch: i32) -> kiln::Result<()> {
        for (uid, beta) in self.corrections.iter().zip(BETAS) {
            self.pack.set_value(*uid, 1.0 / (1.0 - beta.powi(epoch)));
        }
        self.plan.execute(stream, &self.pack)
    }
}

/// The text and its characters, each once.
pub fn text() -> (Vec<char>, Vec<char>) {
    let text: Vec<char> = TEXT.chars().collect();
    let mut alphabet = text.clone();
    alphabet.sort_unstable();
    alphabet.dedup();
    (text, alphabet)
}

/// An f32 tensor of a file by name.
pub fn read(file: &SafeTensors<'_>, name: &str) -> Option<HostTensor> {
    let view = file.tensor(name).ok()?;
    let dims: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
    let values = view.data().chunks_exact(4).map(|element| DType::F32.read(element));
    Some(HostTensor::new(&dims, values.collect()))
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A row of zeros with a one for each character.
pub fn one_hot(characters: &[char], alphabet: &[char]) -> Vec<f32> {
    let element = |of: char, known: char| if known == of { 1.0 } else { 0.0 };
    let row = |of: &char| alphabet.iter().map(|known| element(*of, *known)).collect::<Vec<f32>>();
    characters.iter().flat_map(row).collect()
}

/// The losses of all epochs as a picture, on a logarithmic axis.
pub fn picture(losses: &[f64]) -> String {
    let (width, height, left) = (640.0, 360.0, 60.0);
    let (top, bottom) = (10_f64.log10(), 1e-3_f64.log10());
    let x = |at: usize| left + (width - left - 10.0) * at as f64 / losses.len().max(2) as f64;
    let y = |loss: f64| 10.0 + (height - 40.0) * (top - loss.log10()) / (top - bottom);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    for loss in [10.0, 1.0, 0.1, 0.01, 0.001] {
        let at = y(loss);
        _ = writeln!(
            svg,
            "<text x=\"5\" y=\"{:.0}\">{loss}</text>\
             <path d=\"M{left} {at:.1}H{width}\" stroke=\"#ddd\"/>",
            at + 4.0
        );
    }
    let points: Vec<String> = losses
        .iter()
        .enumerate()
        .map(|(at, loss)| format!("{:.1},{:.1}", x(at), y(loss.clamp(1e-3, 10.0))))
        .collect();
    let points = points.join(" ");
    _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1f77b4\"/>");
    let (at, count) = (height - 8.0, losses.len());
    _ = writeln!(svg, "<text x=\"{left}\" y=\"{at}\">cross-entropy by epoch, {count}</text></svg>");
    svg
}
