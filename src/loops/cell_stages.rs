//! The cell of a body: its lines in the stages between which its GEMMs are.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::expr::{Mode, Pointwise, Program, Value};
use crate::graph::{Cell, RecurrentGemm, Stage};
use crate::loops::body::Refused;
use crate::loops::cell::{Body, Lane, Line};

/// Names of the first states; those of others are numbered.
const STATES: [&str; 2] = ["h", "c"];

/// A cell, and what of it is written at every step.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) cell: Cell,
    /// Its GEMMs, by number, in the order of the stages.
    pub(super) gemms: Vec<usize>,
    /// The names of blocks that were asked for.
    pub(super) names: Vec<String>,
}

impl Body<'_> {
    /// The cell; `next` has the next value of each state, `shown` further blocks whose names are
    /// wanted.
    pub(super) fn staged(&mut self, next: &[Lane], shown: &[Lane]) -> Refused<Staged> {
        let named = self.named(next);
        let levels = Levels::of(self)?;
        let last = levels.lines.iter().chain(&levels.gemms).copied().max().unwrap_or(0);
        let names = |lane: &Lane| self.name(*lane, &named);
        let mut order: Vec<usize> = (0..self.gemms.len()).collect();
        order.sort_by_key(|at| levels.gemms[*at]);
        let mut stages = Vec::new();
        for level in 0..=last {
            let own: Vec<usize> =
                order.iter().copied().filter(|at| levels.gemms[*at] == level).collect();
            let gemm = match own.first() {
                None => None,
                Some(first) => {
                    let operand = self.gemms[*first].operand;
                    if own.iter().any(|at| self.gemms[*at].operand != operand) {
                        return Err("GEMMs with different operands wait for the same".to_owned());
                    }
                    let blocks = own.iter().flat_map(|gemm| {
                        (0..self.gemms[*gemm].blocks).map(|block| gate(*gemm, block))
                    });
                    let gates: Vec<String> = blocks.collect();
                    let gates: Vec<&str> = gates.iter().map(String::as_str).collect();
                    Some(RecurrentGemm::new(names(&operand), &gates))
                }
            };
            let program = self.program(level, last, &levels, &named, shown)?;
            stages.push(Stage { gemm, statistics: Vec::new(), program });
        }
        let gates = (0..self.gates()).map(|block| block.to_string()).collect();
        let [rows, units] = self.inputs();
        let cell = Cell {
            name: "loop".to_owned(),
            gates,
            states: (0..self.states.len()).map(state).collect(),
            parameters: self.parameter_names(),
            row_inputs: rows.iter().map(names).collect(),
            unit_inputs: units.iter().map(names).collect(),
            stages,
            projected: false,
        };
        Ok(Staged { cell, gemms: order, names: shown.iter().map(names).collect() })
    }

    /// Blocks of the first iterator.
    pub(super) fn gates(&self) -> usize {
        self.lanes_of_iterator(0).len()
    }

    /// Blocks of further iterators: with a value for each row, and for each hidden unit.
    fn inputs(&self) -> [Vec<Lane>; 2] {
        let others = (1..self.iterators.len()).flat_map(|at| self.lanes_of_iterator(at));
        let (rows, units) = others.partition(|lane| matches!(lane, Lane::Row { .. }));
        [rows, units]
    }

    fn parameter_names(&self) -> Vec<String> {
        let tensors = self.parameters.iter().enumerate();
        tensors
            .flat_map(|(at, (_, blocks))| (0..*blocks).map(move |of| parameter(at, of)))
            .collect()
    }

    /// Gives each state a line of its own for its next value; returns the names of lines.
    fn named(&mut self, next: &[Lane]) -> Vec<(usize, String)> {
        let mut named: Vec<(usize, String)> = Vec::new();
        for (at, lane) in next.iter().enumerate() {
            let own = match lane {
                Lane::Line(line) if named.iter().all(|(taken, _)| taken != line) => *line,
                lane => {
                    let dtype = self.state_type(at);
                    let op = Pointwise::new(Mode::Identity);
                    self.lines.push(Line { op, operands: vec![*lane], dtype });
                    self.lines.len() - 1
                }
            };
            named.push((own, format!("next_{}", state(at))));
        }
        // The layer rounds its output itself; a line rounds what others read.
        let (first, _) = named[0];
        let is_read = self.lines.iter().any(|line| line.operands.contains(&Lane::Line(first)));
        let line = &mut self.lines[first];
        if !is_read && line.dtype.is_float() && line.dtype.bytes() == 2 {
            line.dtype = DType::F32;
        }
        named
    }

    fn name(&self, lane: Lane, named: &[(usize, String)]) -> String {
        match lane {
            Lane::Gate { iterator: 0, block } => format!("x_{block}"),
            Lane::Gate { iterator, block } => format!("u{iterator}_{block}"),
            Lane::Row { iterator } => format!("w{iterator}"),
            Lane::State(at) => state(at),
            Lane::Product { gemm, block } => format!("r_{}", gate(gemm, block)),
            Lane::Parameter { tensor, block } => parameter(tensor, block),
            Lane::Line(at) => {
                let own = named.iter().find(|(line, _)| *line == at);
                own.map_or_else(|| format!("v{at}"), |(_, name)| name.clone())
            }
        }
    }

    /// The lines of a stage.
    fn program(
        &self,
        level: usize,
        last: usize,
        levels: &Levels,
        named: &[(usize, String)],
        shown: &[Lane],
    ) -> Refused<Program> {
        let mut program = Program::new();
        let mut values: Vec<(Lane, Value)> = Vec::new();
        let fail = |error: crate::error::Error| error.to_string();
        for (at, line) in self.lines.iter().enumerate() {
            if levels.lines[at] != level {
                continue;
            }
            let mut operands = Vec::new();
            for lane in &line.operands {
                let known = values.iter().find(|(known, _)| known == lane).map(|(_, value)| *value);
                operands.push(match known {
                    Some(value) => value,
                    None => {
                        let dtype = self.input_type(*lane)?;
                        let value = program.input(self.name(*lane, named), dtype);
                        values.push((*lane, value));
                        value
                    }
                });
            }
            let name = self.name(Lane::Line(at), named);
            let value = program.push(name, line.op, &operands, line.dtype).map_err(fail)?;
            values.push((Lane::Line(at), value));
        }
        // What later stages, GEMMs, the next step and the caller read.
        let mut wanted: BTreeSet<usize> = BTreeSet::new();
        wanted.extend(named.iter().map(|(line, _)| *line));
        let later = self.lines.iter().zip(&levels.lines).filter(|(_, of)| **of > level);
        let read = later.flat_map(|(line, _)| &line.operands);
        let operands = self.gemms.iter().map(|gemm| &gemm.operand);
        let lines = read.chain(operands).chain(shown).filter_map(|lane| match lane {
            Lane::Line(at) => Some(*at),
            _ => None,
        });
        wanted.extend(lines);
        for (lane, value) in &values {
            if matches!(lane, Lane::Line(at) if levels.lines[*at] == level && wanted.contains(at)) {
                program.output(*value);
            }
        }
        match program.outputs().is_empty() && level < last {
            true => Err("a GEMM waits for nothing but another one".to_owned()),
            false => Ok(program),
        }
    }

    /// The type of an input of a program: whatever tensors hold is read as f32, which f64 replaces
    /// where everything is.
    fn input_type(&self, lane: Lane) -> Refused<DType> {
        match lane {
            Lane::Line(at) if !self.lines[at].dtype.is_float() => {
                let dtype = self.lines[at].dtype;
                Err(format!("a value of {dtype} is read behind a GEMM"))
            }
            _ => Ok(DType::F32),
        }
    }
}

/// The stage of each GEMM and line.
struct Levels {
    gemms: Vec<usize>,
    lines: Vec<usize>,
}

impl Levels {
    /// # Errors
    /// A reason where a GEMM's operand is neither the first state nor a result.
    fn of(body: &Body<'_>) -> Refused<Levels> {
        let mut levels =
            Levels { gemms: vec![0; body.gemms.len()], lines: vec![0; body.lines.len()] };
        // Operands come before what reads them, GEMMs and lines aside.
        loop {
            let before = (levels.gemms.clone(), levels.lines.clone());
            for (at, gemm) in body.gemms.iter().enumerate() {
                levels.gemms[at] = match gemm.operand {
                    Lane::State(0) => 0,
                    Lane::Line(line) => levels.lines[line] + 1,
                    Lane::State(_) => return Err("GEMMs multiply two recurrences".to_owned()),
                    _ => return Err("a GEMM multiplies what is no result of the body".to_owned()),
                };
            }
            for (at, line) in body.lines.iter().enumerate() {
                let levels_of = line.operands.iter().map(|lane| match lane {
                    Lane::Line(line) => levels.lines[*line],
                    Lane::Product { gemm, .. } => levels.gemms[*gemm],
                    _ => 0,
                });
                levels.lines[at] = levels_of.max().unwrap_or(0);
            }
            if before == (levels.gemms.clone(), levels.lines.clone()) {
                return Ok(levels);
            }
        }
    }
}

fn state(at: usize) -> String {
    STATES.get(at).map_or_else(|| format!("s{at}"), |name| (*name).to_owned())
}

fn gate(gemm: usize, block: usize) -> String {
    format!("{gemm}_{block}")
}

fn parameter(tensor: usize, block: usize) -> String {
    format!("p{tensor}_{block}")
}
