//! One warp's way through the code, clock by clock.
//!
//! Instructions issue in order. Each waits for the clocks that the one before it stalls, for its
//! scoreboards, and for its pipe, which the warp has for itself.

use crate::architecture::Architecture;
use crate::control::SCOREBOARDS;
use crate::instruction::Instruction;
use crate::opcode::Pipe;
use std::collections::VecDeque;

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
    pipes: [f64; Pipe::ALL.len()],
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
            pipes: [0.0; Pipe::ALL.len()],
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

    /// Issues an instruction; returns the clock at which it did.
    pub fn step(&mut self, instruction: &Instruction) -> f64 {
        let control = instruction.control;
        let mut at = self.now;
        for (scoreboard, pending) in self.scoreboards.iter_mut().enumerate() {
            if control.wait >> scoreboard & 1 != 0 {
                at = pending.drain(..).fold(at, f64::max);
            }
        }
        if let Some((scoreboard, left)) = instruction.outstanding() {
            let pending = &mut self.scoreboards[usize::from(scoreboard) % SCOREBOARDS];
            while pending.len() > left as usize {
                at = at.max(pending.pop_front().unwrap_or(0.0));
            }
        }
        let pipe = &mut self.pipes[instruction.opcode.pipe as usize];
        let asynchronous = instruction.shape().is_some_and(|shape| shape.asynchronous);
        if asynchronous {
            self.mmas = pipe.max(at) + self.architecture.busy(instruction);
            *pipe = self.mmas;
            if instruction.ends_group() {
                self.groups.push_back(self.mmas);
            }
        } else {
            at = at.max(*pipe);
            *pipe = at + self.architecture.busy(instruction);
        }
        if let Some(left) = instruction.groups_left() {
            while self.groups.len() > left as usize {
                at = at.max(self.groups.pop_front().unwrap_or(0.0));
            }
        }
        at += self.blocks(instruction);
        let done = at + self.latency(instruction);
        if instruction.name() == "LDGSTS" {
            self.copies = self.copies.max(at + self.global);
        }
        if let Some(scoreboard) = control.write {
            let done = if instruction.name() == "LDGDEPBAR" { self.copies } else { done };
            self.scoreboards[usize::from(scoreboard)].push_back(done);
        }
        if let Some(scoreboard) = control.read {
            self.scoreboards[usize::from(scoreboard)].push_back(at + READ);
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
