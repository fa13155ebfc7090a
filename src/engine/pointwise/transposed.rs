//! The pointwise engine for a tensor that is read along one dimension and written along another, as
//! an image whose channels become the last dimension.
//!
//! A thread has a square of elements: rows of it are loaded, columns of it stored, each in accesses
//! of up to 16 bytes. Lanes of a warp are side by side in both directions, so that whole sectors
//! are moved both ways and nothing passes through shared memory.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{
    ACCESS_BYTES_MAX, GRID_MAX, access_bytes, ceil_div, stored_bytes, volume,
};
use crate::engine::dimensions::coordinates;
use crate::engine::header::KernelNames;
use crate::engine::pointwise::Elements;
use crate::engine::pointwise::transposition::Transposition;
use crate::engine::pointwise::work::Demand;
use crate::engine::program::{GraphProgram, Source};
use crate::engine::signature::{
    Indent, Width, arguments, ctype, kernel_parameter, list, names_with_positions, untold,
};
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::expr::Identifiers;
use crate::graph::CanonicalGraph;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "pointwise_transposed";

/// Elements of a side of the square of a thread, at most.
const VECTOR_MAX: i64 = 8;

/// Registers besides those of the square.
const REGISTERS_BASE: i64 = 48;

/// The engine `pointwise_transposed`: a tensor that is read along one dimension and written along
/// another.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct TransposedEngine;

impl Engine for TransposedEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let transposed = Transposed::of(Elements::of(graph, target)?)?;
        let best = transposed.best();
        Ok(Box::new(Tuned::of(transposed, [best])?))
    }

    fn elementwise(&self) -> bool {
        true
    }
}

settings! { struct Settings { lanes, threads } }

/// Settings with the tiles that follow.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    settings: Settings,
    /// Tiles along both dimensions.
    read_tiles: i64,
    written_tiles: i64,
    blocks: u32,
}

/// A graph with everything that its kernel and its launch are made from.
#[derive(Debug)]
struct Transposed<'a> {
    elements: Elements<'a>,
    program: GraphProgram,
    x: usize,
    y: usize,
    /// The dimension of the domain along which `x` lies; `y` lies along the last one.
    read: usize,
    /// Elements of a side of the square of a thread.
    vector: i64,
}

impl<'a> Transposed<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(elements: Elements<'a>) -> Result<Transposed<'a>> {
        let graph = elements.graph();
        let Transposition { program, x, y, read } = Transposition::of(graph, &elements.domain)?;
        let widest = [x, y].map(|at| graph.tensors[at].dtype.bytes() as i64).into_iter().max();
        let vector = (ACCESS_BYTES_MAX / widest.expect("there are two")).min(VECTOR_MAX);
        Ok(Transposed { elements, program, x, y, read, vector })
    }

    fn graph(&self) -> CanonicalGraph<'_> {
        self.elements.graph()
    }

    fn extents(&self) -> &[i64] {
        &self.elements.domain.extents
    }

    /// The extents of both dimensions.
    fn plane(&self) -> [i64; 2] {
        [self.extents()[self.read], self.extents()[self.extents().len() - 1]]
    }

    /// Of a number for each dimension, those of the others.
    fn of_outer(&self, numbers: &[i64]) -> Vec<i64> {
        let last = numbers.len() - 1;
        (0..last).filter(|at| *at != self.read).map(|at| numbers[at]).collect()
    }

    fn registers(&self) -> i64 {
        let words = |at: usize| self.graph().tensors[at].dtype.bytes() as i64 * self.vector / 4;
        let results = if self.graph().tensors[self.y].dtype.bytes() == 8 { 2 } else { 1 };
        REGISTERS_BASE + self.vector * words(self.x).max(1) + words(self.y) + results * self.vector
    }

    /// Whether offsets and tiles fit 32 bits.
    fn is_narrow(&self, schedule: &Schedule) -> bool {
        let tile = schedule.settings.threads * self.vector * self.vector;
        let padded = i64::from(schedule.blocks).saturating_mul(tile);
        padded.max(self.elements.domain.offset_max()) < 1 << 31
    }

    fn tensor(&self, at: usize, name: &str) -> Tensor {
        let tensor = &self.graph().tensors[at];
        let (strides, extents) = (&self.elements.domain.strides[at], self.extents());
        let last = extents.len() - 1;
        let along = if at == self.x { self.read } else { last };
        let others: Vec<usize> = (0..extents.len()).filter(|other| *other != along).collect();
        let of = |values: &[i64]| others.iter().map(|at| values[*at]).collect::<Vec<i64>>();
        let outer = self.of_outer(strides);
        let terms = (0..outer.len()).map(|at| format!("p.i{at} * OUTER{at}"));
        Tensor {
            name: name.to_owned(),
            text: untold(tensor),
            ctype: ctype(tensor.dtype),
            access_bytes: access_bytes(tensor, &of(strides), &of(extents), self.vector),
            across: if at == self.x { strides[last] } else { strides[self.read] },
            offset: terms.map(|term| format!(" + {term}")).collect(),
            outer,
        }
    }

    fn variables(&self, schedule: &Schedule) -> Variables {
        let graph = self.graph();
        let mut identifiers = Identifiers::new();
        let names = names_with_positions(graph, &mut identifiers);
        let source = |source: &Source| match source {
            Source::Tensor(at) | Source::Position(at) => names[*at].clone(),
            Source::Coordinate(_) => String::new(),
        };
        let inputs: Vec<String> = self.program.sources.iter().map(source).collect();
        let outputs = [names[self.y].clone()];
        let emitted = self.program.program.emit(&inputs, &outputs, &mut identifiers);
        let read = (0..inputs.len()).find(|input| self.program.reads(*input));
        let register = emitted.input_types[read.expect("x is read")];
        let [x, y] = [self.x, self.y].map(|at| self.tensor(at, &names[at]));
        let value_type = emitted.outputs[0].ctype;
        let parameters = [self.x, self.y].map(|at| kernel_parameter(graph, at, &names[at]));
        let chain = [format!("const {register} {}", x.name), format!("{value_type}& {}", y.name)];
        let [read, written] = self.plane();
        let outer = self.of_outer(self.extents());
        Variables {
            listing: self.program.program.to_string().lines().map(str::to_owned).collect(),
            functions: emitted.functions,
            index_type: if self.is_narrow(schedule) { "unsigned" } else { "long long" },
            threads: schedule.settings.threads,
            lanes: schedule.settings.lanes,
            vector: self.vector,
            read,
            written,
            read_tiles: schedule.read_tiles,
            written_tiles: schedule.written_tiles,
            divisions: coordinates(outer.len(), "outer", "EXTENT"),
            // The first one is counted by the launch.
            extents: outer,
            x,
            y,
            value_type,
            lines: emitted.lines,
            chain_parameters: list(&chain, Indent(4), Width(60)),
            kernel_parameters: list(&parameters, Indent(4), Width(25)),
        }
    }
}

impl Tunable<2> for Transposed<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        [
            Knob {
                name: "lanes",
                about: "threads side by side along the dimension that is read, the others along \
                        the one that is written",
                values: vec![2, 4, 8, 16],
            },
            Knob { name: "threads", about: "threads per block", values: vec![64, 128, 256] },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let Settings { lanes, threads } = settings;
        let [read, written] = self.plane();
        let read_tiles = ceil_div(read, lanes * self.vector);
        let written_tiles = ceil_div(written, threads / lanes * self.vector);
        let tiles = volume(&self.of_outer(self.extents()))
            .saturating_mul(read_tiles)
            .saturating_mul(written_tiles);
        match u32::try_from(tiles).ok().filter(|tiles| i64::from(*tiles) <= GRID_MAX) {
            Some(blocks) => Ok(Schedule { settings, read_tiles, written_tiles, blocks }),
            None => Err(format!("needs {tiles} blocks, more than a grid has")),
        }
    }

    fn best(&self) -> Settings {
        let [read, written] = self.plane().map(|extent| ceil_div(extent, self.vector));
        let lanes = ((read as u64).next_power_of_two() as i64).clamp(2, 8);
        let threads = if written * lanes <= 64 { 64 } else { 128 };
        Settings { lanes, threads }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { lanes, threads } = self.best();
        vec![
            format!("lanes={lanes}: up to whole lines are read, and two sectors written"),
            format!("threads={threads}: the fewest that cover the dimension, or 128"),
        ]
    }

    fn smaller(&self, _settings: Settings) -> Vec<Settings> {
        Vec::new()
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let (graph, Settings { threads, .. }) = (self.graph(), schedule.settings);
        let demand = Demand::of(graph, &self.elements.domain);
        let in_flight = self.vector * self.vector * graph.tensors[self.x].dtype.bytes() as i64;
        let grid = Grid::fixed(schedule.blocks);
        let work = demand.work(&grid, threads, self.registers(), self.vector, in_flight);
        let bytes = stored_bytes(graph);
        vec![KernelWork { dram_bytes: bytes, l2_bytes: bytes, ..work }]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let graph = self.graph();
        let dtype = graph.tensors[self.y].dtype;
        let names = KernelNames {
            stem: format!("sm75_pointwise_{dtype}_transposed"),
            template: "pointwise/sm75_pointwise_transposed.cu",
            entry: "pointwise",
        };
        let spec = names.spec(self.elements.target.arch, &self.variables(schedule));
        let launch = LaunchPlan {
            grid: Grid::fixed(schedule.blocks),
            threads: schedule.settings.threads as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments: arguments(graph, [&self.x, &self.y].into_iter()),
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        Lowering::from(KernelPlan { spec, launch })
    }

    fn scratch(&self, _schedule: &Schedule) -> Vec<u64> {
        Vec::new()
    }
}

/// Variables of `pointwise/sm75_pointwise_transposed.cu`.
#[derive(Serialize)]
struct Variables {
    /// The program, for the header comment.
    listing: Vec<String>,
    functions: BTreeSet<&'static str>,
    index_type: &'static str,
    threads: i64,
    lanes: i64,
    vector: i64,
    /// Extents of the dimensions that are read and written, and tiles along them.
    read: i64,
    written: i64,
    read_tiles: i64,
    written_tiles: i64,
    /// The other extents, and the coordinate along each.
    extents: Vec<i64>,
    divisions: Vec<String>,
    x: Tensor,
    y: Tensor,
    /// Type of the values before they are rounded.
    value_type: &'static str,
    /// Statements of the program.
    lines: Vec<String>,
    chain_parameters: String,
    kernel_parameters: String,
}

/// A tensor in memory.
#[derive(Serialize)]
struct Tensor {
    name: String,
    /// Its comment.
    text: String,
    ctype: &'static str,
    access_bytes: i64,
    /// Elements between neighbours along the dimension in which it does not lie, and along the
    /// others.
    across: i64,
    outer: Vec<i64>,
    /// C++ expression of what the others add to an offset.
    offset: String,
}
