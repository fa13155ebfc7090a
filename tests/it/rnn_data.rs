//! Recurrent layers and networks as data: the parameters of `tests/cases/rnn.toml`, which the
//! README beside it lists.

use kiln::engine;
use kiln::expr::{Math, NanPropagation, Real};
use kiln::graph::{
    Cell, Direction, MatmulMath, Quantization, Recurrence, RecurrenceSlots, RowLayout,
};
use kiln::plan::{ExecutionPlan, Problem};
use kiln::rnn::{CellClip, CellKind, CellOptions, ClipPoint};
use kiln::{DType, Kiln, OperationGraph, Result, TensorDesc};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cases::Parameters;
use crate::harness::Values;
use crate::recurrence;
use crate::rnn_cells::user_cells;
use crate::rnn_own_cells;

/// One layer, whose input is multiplied already.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// A predefined cell or one of the tests'.
    cell: String,
    dtype: DType,
    /// Whether products of f32 are taken in tf32.
    #[serde(default)]
    tf32: bool,
    batch: i64,
    hidden: i64,
    steps: i64,
    #[serde(default = "forward")]
    direction: String,
    #[serde(default = "sequence_major")]
    layout: String,
    #[serde(default)]
    apart: bool,
    #[serde(default)]
    fill: f64,
    #[serde(default)]
    peephole: bool,
    #[serde(default)]
    projected: bool,
    #[serde(default)]
    drop_nan: bool,
    gate_clip: Option<f64>,
    cell_clip: Option<Clip>,
    /// What integers of 8 bits stand for: so many a unit, and which for 0.
    scale: Option<f64>,
    #[serde(default)]
    shift: i64,
    /// Whether all weights of 8 bits have one scale.
    #[serde(default)]
    per_tensor: bool,
    /// Whether tensors are aligned to one element alone.
    #[serde(default)]
    misaligned: bool,
    /// Optional operands and results; `all` are those that the cell may have.
    #[serde(default)]
    tensors: Vec<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Clip {
    min: f64,
    max: f64,
    propagate_nan: bool,
    /// Whether the state is clipped where it is stored; else where it is read.
    stored: bool,
}

fn forward() -> String {
    Direction::Forward.name().to_owned()
}

fn sequence_major() -> String {
    RowLayout::SequenceMajor.name().to_owned()
}

/// The one of these that has this name.
fn named<T: Copy>(name: &str, all: &[T], name_of: fn(T) -> &'static str) -> T {
    let found = all.iter().copied().find(|one| name_of(*one) == name);
    found.unwrap_or_else(|| panic!("no `{name}`"))
}

impl Layer {
    fn math(&self) -> MatmulMath {
        match (self.dtype, self.tf32) {
            (DType::F64, _) => MatmulMath::F64,
            (_, true) => MatmulMath::Tf32,
            _ => MatmulMath::F32,
        }
    }

    fn cell(&self) -> Cell {
        let Layer { peephole, projected, drop_nan, .. } = *self;
        let own = user_cells::all().expect("their lines fit together").into_iter();
        let mut own = own.chain(rnn_own_cells::later_gemms());
        if let Some(cell) = own.find(|cell| cell.name == self.cell) {
            return cell;
        }
        let clip = |clip: Clip| CellClip {
            min: Real::new(clip.min),
            max: Real::new(clip.max),
            nan: match clip.propagate_nan {
                true => NanPropagation::Propagate,
                false => NanPropagation::NotPropagate,
            },
            point: if clip.stored { ClipPoint::Stored } else { ClipPoint::Read },
        };
        let options = CellOptions {
            math: if self.math() == MatmulMath::F64 { Math::F64 } else { Math::F32 },
            peephole,
            projected,
            cell_clip: self.cell_clip.map(clip),
            drop_nan,
            gate_clip: self.gate_clip.map(Real::new),
            ..CellOptions::default()
        };
        named(&self.cell, &CellKind::ALL, CellKind::name).cell(&options)
    }

    fn slots(&self, cell: &Cell) -> RecurrenceSlots {
        let (all, others) = (self.tensors == ["all"], cell.states.len() > 1);
        let has = |name: &str| all || self.tensors.iter().any(|of| of == name);
        RecurrenceSlots {
            x_bias: has("x_bias"),
            r_bias: has("r_bias"),
            h_initial: has("h_initial"),
            states_initial: others && has("states_initial"),
            lengths: has("lengths"),
            reset: has("reset"),
            h_final: has("h_final"),
            states_final: others && has("states_final"),
            history: others && has("history"),
        }
    }

    fn operation(&self) -> Recurrence {
        let directions = [Direction::Forward, Direction::Reverse, Direction::Both];
        let layouts = [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];
        let cell = self.cell();
        Recurrence {
            math: self.math(),
            direction: named(&self.direction, &directions, Direction::name),
            layout: named(&self.layout, &layouts, RowLayout::name),
            apart: self.apart,
            fill: Real::new(self.fill),
            with: self.slots(&cell),
            quantization: self.scale.map(|scale| Quantization::new(scale, self.shift)),
            ..Recurrence::new(cell, self.batch, self.hidden)
        }
    }

    pub fn graph(&self) -> OperationGraph {
        let graph = recurrence::graph(&self.operation(), self.steps, self.dtype);
        let mut tensors = graph.tensors().to_vec();
        if self.misaligned {
            tensors.iter_mut().for_each(|tensor| tensor.alignment = tensor.dtype.bytes());
        }
        let scales = |tensor: &&mut TensorDesc| tensor.name == "r_scales" && self.per_tensor;
        for scales in tensors.iter_mut().filter(scales) {
            *scales = TensorDesc::packed(scales.uid, "r_scales", &[1; 3], scales.dtype);
        }
        OperationGraph::new(tensors, graph.operations().to_vec()).expect("it is valid")
    }

    pub fn inputs(&self, graph: &OperationGraph) -> Values {
        recurrence::values(graph, &self.operation(), self.steps)
    }
}

/// A network: the keys of its problem document, and how long its sequences are.
pub struct NetworkData {
    problem: Problem,
    lengths: Option<Vec<f64>>,
}

impl NetworkData {
    /// Fields that are `"none"` are left out; `lengths` adds the tensor. Of packed vectors, `rows`
    /// are what the lengths and `behind` say.
    pub fn new(parameters: Parameters) -> NetworkData {
        let mut fields: Map<String, Value> =
            parameters.into_iter().filter(|(_, value)| value != "none").collect();
        let lengths = fields.remove("lengths").map(|lengths| {
            let lengths: Vec<f64> = serde_json::from_value(lengths).expect("a list of lengths");
            lengths
        });
        let behind = fields.remove("behind").and_then(|rows| rows.as_i64()).unwrap_or(0);
        if fields.get("layout").is_some_and(|layout| layout == "packed") {
            fields.remove("steps");
            let sum: f64 = lengths.iter().flatten().sum();
            fields.insert("rows".to_owned(), json!(sum as i64 + behind));
        }
        if lengths.is_some() {
            let tensors = fields.entry("tensors").or_insert_with(|| json!([]));
            tensors.as_array_mut().expect("a list of names").push(json!("lengths"));
        }
        let text = json!({"rnn": fields}).to_string();
        let problem = Problem::from_json(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        NetworkData { problem, lengths }
    }

    pub fn graph(&self) -> OperationGraph {
        self.problem.graphs()[0].clone()
    }

    pub fn inputs(&self) -> Values {
        let mut values = self.problem.random_values(5).expect("there is memory");
        if let (Some(lengths), Ok(tensor)) = (&self.lengths, self.graph().tensor_named("lengths")) {
            values.insert(tensor.uid, lengths.clone());
        }
        values
    }
}

/// The plan of a network with every layer on this engine.
///
/// # Errors
/// The engine's, where it refuses a layer.
pub fn plan_on(kiln: &Kiln, graph: &OperationGraph, engine: &str) -> Result<ExecutionPlan> {
    let target = kiln.device().target();
    let plan = kiln.plan(graph)?;
    let mut document: Value = serde_json::from_str(&plan.to_json()).expect("plans are JSON");
    let parts = document["parts"].as_array_mut().expect("it lists parts");
    for (part, json) in std::iter::zip(plan.parts(), parts) {
        if part.config.engine.starts_with("rnn_") {
            let own = engine::supported(engine, part.graph.canonical(), target)?;
            json["config"] = own.heuristic().to_string().into();
        }
    }
    kiln.plan_from_json(&document.to_string())
}
