//! A module as the text says it: declarations and instructions, names resolved to declarations.

use crate::types::Type;
use std::collections::HashMap;

/// A state space that a variable can live in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A variable declared in a module or function, or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub name: String,
    pub space: Space,
    pub align: u32,
    /// Bytes; 0 for an array without bounds (dynamic shared memory).
    pub bytes: u32,
    pub init: Vec<u8>,
    /// Addresses stored in `init`: offset of the 8 bytes, the variable by name, what to add.
    pub relocations: Vec<Relocation>,
    /// Whether another module defines it.
    pub external: bool,
    pub line: u32,
}

/// An address of another variable inside an initialiser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relocation {
    pub offset: u32,
    pub symbol: String,
    pub add: i64,
}

/// A declared variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum VariableId {
    Module(u32),
    Function(u32),
}

/// A declared register: an index into [`Function::registers`].
pub(crate) type RegisterId = u32;

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Register(RegisterId),
    /// A special register, without its `%`: `tid.x`.
    Special(String),
    Int(i64),
    Single(u32),
    Double(u64),
    Variable(VariableId),
    /// A label or function.
    Name(String),
    /// `{a, b, ..}` or the parenthesised lists of a call.
    Vector(Vec<Operand>),
    /// `!p`.
    Not(Box<Operand>),
    /// `p|q`.
    Pair(Box<Operand>, Box<Operand>),
    /// `[base+offset]`, with any further comma-separated parts (tensor coordinates).
    Address {
        base: Box<Operand>,
        offset: i64,
        rest: Vec<Operand>,
    },
    /// `_`.
    Sink,
}

/// The guard of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub register: RegisterId,
    pub negated: bool,
}

/// A source position named by `.loc`: file number and line; 0 where none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loc {
    pub file: u32,
    pub line: u32,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instruction {
    pub guard: Option<Guard>,
    /// The name up to the first dot.
    pub opcode: String,
    /// What follows, without dots.
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
    pub line: u32,
    pub loc: Loc,
    /// The scope that its labels are looked up in.
    pub scope: u32,
}

/// A statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statement {
    Instruction(Instruction),
    Label {
        name: String,
        scope: u32,
    },
    /// `name: .branchtargets a, b;`
    BranchTargets {
        name: String,
        scope: u32,
        targets: Vec<String>,
    },
}

/// An entry or device function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Function {
    pub name: String,
    pub entry: bool,
    /// Return parameters, then parameters, then what the body declares.
    pub variables: Vec<Variable>,
    pub returns: usize,
    pub params: usize,
    /// A device function's register parameters: returns first, then parameters.
    pub register_params: Vec<RegisterId>,
    pub registers: Vec<Type>,
    /// The parent of each label scope; scope 0 is the body.
    pub scopes: Vec<u32>,
    pub body: Vec<Statement>,
    /// Whether there is a body.
    pub defined: bool,
    pub threads_max: Option<u32>,
    /// The shape that a block must have.
    pub threads_required: Option<[u32; 3]>,
    pub cluster: Option<[u32; 3]>,
    pub cluster_blocks_max: Option<u32>,
    pub line: u32,
}

/// A module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ast {
    pub target: String,
    pub files: HashMap<u32, String>,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
}
