//! One warp's way through the code, clock by clock.
//!
//! Instructions issue in order. Each waits for the clocks that the one before it stalls, for its
//! scoreboards, and for its pipe, which the warp has for itself.

use crate::architecture::Architecture;
use crate::control::SCOREBOARDS;
use crate::instruction::Instruction;
use crate::opcode::Pipe;
use std::collections::VecDeque;

/// When each pipe is free, and in front of them the slot that issues.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pipes {
    pub free: [f64; Pipe::ALL.len()],
    pub issue: f64,
}

/// A warp on its way.
#[derive(Debug, Clone)]
pub struct Walk<'a> {
    architecture: &'a Architecture,
    /// Clocks until a load from global memory is back.
    global: f64,
    /// When the next instruction may issue.
    now: f64,
    /// When what each scoreboard counts is done, in order.
    scoreboards: [VecDeque<f64>; SCOREBOARDS],
    /// When each pipe is free.
    pipes: Pipes,
    /// When the asynchronous MMAs end that belong to no group, and the groups.
    mmas: f64,
    groups: VecDeque<f64>,
    /// When the asynchronous copies of the warp end.
    copies: f64,
}

impl<'a> Walk<'a> {
    /// A warp that starts; loads from global memory take so many clocks.
    pub fn new(architecture: &'a Architecture, global: f64) -> Walk<'a> {
        Walk {
            architecture,
            global,
            now: 0.0,
            scoreboards: Default::default(),
            pipes: Pipes::default(),
            mmas: 0.0,
            groups: VecDeque::new(),
            copies: 0.0,
        }
    }

    /// The clock at which the next instruction may issue.
    pub fn clock(&self) -> f64 {
        self.now
    }

    /// Lets time pass.
    pub fn wait(&mut self, clocks: f64) {
        self.now += clocks;
    }

    /// The pipes as this warp leaves them, or as it finds them.
    pub(crate) fn pipes(&mut self) -> &mut Pipes {
        &mut self.pipes
    }

    /// The clock at which an instruction may issue if its pipe is free.
    pub(crate) fn ready(&self, instruction: &Instruction) -> f64 {
        let mut at = self.now;
        for (scoreboard, pending) in self.scoreboards.iter().enumerate() {
            if instruction.control.wait >> scoreboard & 1 != 0 {
                at = pending.iter().copied().fold(at, f64::max);
            }
        }
        let oldest = |pending: &VecDeque<f64>, left: u32| {
            let done = pending.len().saturating_sub(left as usize);
            pending.iter().take(done).copied().fold(0.0, f64::max)
        };
        if let Some((scoreboard, left)) = instruction.outstanding() {
            at = at.max(oldest(&self.scoreboards[usize::from(scoreboard) % SCOREBOARDS], left));
        }
        match instruction.groups_left() {
            Some(left) => at.max(oldest(&self.groups, left)),
            None => at,
        }
    }

    /// Issues an instruction; returns the clock at which it did.
    pub fn step(&mut self, instruction: &Instruction) -> f64 {
        let control = instruction.control;
        let mut at = self.ready(instruction).max(self.pipes.issue);
        for (scoreboard, pending) in self.scoreboards.iter_mut().enumerate() {
            if control.wait >> scoreboard & 1 != 0 {
                pending.clear();
            }
        }
        let keep = |pending: &mut VecDeque<f64>, left: u32| {
            pending.drain(..pending.len().saturating_sub(left as usize));
        };
        if let Some((scoreboard, left)) = instruction.outstanding() {
            keep(&mut self.scoreboards[usize::from(scoreboard) % SCOREBOARDS], left);
        }
        if let Some(left) = instruction.groups_left() {
            keep(&mut self.groups, left);
        }
        let asynchronous = instruction.shape().is_some_and(|shape| shape.asynchronous);
        let busy = self.architecture.busy(instruction);
        let pipe = &mut self.pipes.free[instruction.opcode.pipe as usize];
        let start = pipe.max(at);
        *pipe = start + busy;
        if asynchronous {
            self.mmas = *pipe;
            if instruction.ends_group() {
                self.groups.push_back(self.mmas);
            }
        } else if instruction.opcode.pipe != Pipe::Memory {
            // What accesses memory waits in a queue, not at issue.
            at = start;
        }
        self.pipes.issue = at + 1.0;
        at += self.blocks(instruction);
        let begun = if asynchronous { at } else { start.max(at) };
        if instruction.name() == "LDGSTS" {
            self.copies = self.copies.max(begun + self.global);
        }
        if let Some(scoreboard) = control.write {
            let copied = instruction.name() == "LDGDEPBAR";
            let done = if copied { self.copies } else { begun + self.latency(instruction) };
            self.scoreboards[usize::from(scoreboard)].push_back(done);
        }
        if let Some(scoreboard) = control.read {
            self.scoreboards[usize::from(scoreboard)].push_back(begun + READ);
        }
        self.now = at + f64::from(control.stall.max(1));
        at
    }

    /// Clocks for which an instruction keeps the warp from going on, besides its stall.
    fn blocks(&self, instruction: &Instruction) -> f64 {
        let latencies = &self.architecture.latencies;
        match (instruction.name(), instruction.scope()) {
            ("BAR", _) => latencies.barrier,
            ("MEMBAR", Some("GPU" | "SYS")) => latencies.fence,
            ("UCGABAR", _) => latencies.cluster,
            _ => 0.0,
        }
    }

    /// Clocks from issue to result.
    fn latency(&self, instruction: &Instruction) -> f64 {
        let latencies = &self.architecture.latencies;
        // Wavefronts come one after another.
        let wavefronts = self.architecture.busy(instruction) - 1.0;
        match instruction.name() {
            "LDG" | "LD" => self.global + wavefronts,
            "LDS" | "LDSM" | "ATOMS" | "LDTM" => latencies.shared + wavefronts,
            "LDL" => latencies.l1 + wavefronts,
            "ATOMG" | "ATOM" => latencies.l2,
            "SHFL" | "MATCH" | "MOVM" => latencies.shuffle,
            "DMMA" | "IMMA" | "QMMA" | "HMMA" => latencies.tensor,
            _ => match instruction.opcode.pipe {
                Pipe::Special => latencies.special,
                Pipe::Memory => latencies.register,
                Pipe::Double => self.architecture.double + latencies.special / 2.0,
                _ => latencies.register / 2.0,
            },
        }
    }
}

/// Clocks until a memory instruction has read its operands.
const READ: f64 = 12.0;
