//! The syntax tree of a module: declarations and instructions, with names resolved.

use crate::types::Type;
use std::collections::HashMap;

/// State space of a variable.
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
    /// Size in bytes; 0 for an array without bounds (dynamic shared memory).
    pub bytes: u32,
    pub init: Vec<u8>,
    /// Addresses of variables stored in `init`.
    pub relocations: Vec<Relocation>,
    /// Whether the variable is `.extern`.
    pub external: bool,
    /// Whether the host uses it at the same address (`.attribute(.managed)`).
    pub managed: bool,
    pub line: u32,
}

/// Address of another variable within an initialiser.
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

/// A declared register: index into [`Function::registers`].
pub(crate) type RegisterId = u32;

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Register(RegisterId),
    /// A special register without `%`: `tid.x`.
    Special(String),
    Int(i64),
    Single(u32),
    Double(u64),
    Variable(VariableId),
    /// A label or function.
    Name(String),
    /// `{a, b, ..}`, or a parenthesised list of a call.
    Vector(Vec<Operand>),
    /// `!p`.
    Not(Box<Operand>),
    /// `p|q`.
    Pair(Box<Operand>, Box<Operand>),
    /// `[base+offset]`, with optional further parts (tensor coordinates).
    Address {
        base: Box<Operand>,
        offset: i64,
        rest: Vec<Operand>,
    },
    /// `_`.
    Sink,
}

/// Guard predicate of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub register: RegisterId,
    pub negated: bool,
}

/// Source position of a `.loc` directive: file number and line; 0 if none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loc {
    pub file: u32,
    pub line: u32,
}

/// An instruction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instruction {
    pub guard: Option<Guard>,
    /// Name up to the first dot.
    pub opcode: String,
    /// Remaining parts of the name, without dots.
    pub modifiers: Vec<String>,
    pub operands: Vec<Operand>,
    pub line: u32,
    pub loc: Loc,
    /// Scope in which labels are resolved.
    pub scope: u32,
}

/// What an indirect call may call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Prototype {
    /// `.callprototype`: bytes of the return parameters and of the parameters.
    Shape([Vec<u32>; 2]),
    /// `.calltargets`.
    Targets(Vec<String>),
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
    /// `name: .callprototype ..;` or `name: .calltargets f, g;`
    Prototype {
        name: String,
        scope: u32,
        prototype: Prototype,
    },
}

/// An entry or device function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Function {
    pub name: String,
    pub entry: bool,
    /// Return parameters, parameters, then local variables.
    pub variables: Vec<Variable>,
    pub returns: usize,
    pub params: usize,
    /// Register parameters of a device function: returns, then parameters.
    pub register_params: Vec<RegisterId>,
    pub registers: Vec<Type>,
    /// Parent of each label scope; scope 0 is the body.
    pub scopes: Vec<u32>,
    pub body: Vec<Statement>,
    /// Whether the function has a body.
    pub defined: bool,
    pub threads_max: Option<u32>,
    /// From `.minnctapersm` and `.maxnreg`.
    pub blocks_min: Option<u32>,
    pub registers_max: Option<u32>,
    /// Required block shape, `.reqntid`.
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

impl Ast {
    /// Address of a device function: a multiple of 16 by its index, which is not 0.
    pub fn function_address(&self, name: &str) -> Option<u64> {
        let index = self.functions.iter().position(|f| f.name == name && !f.entry)?;
        Some((index as u64 + 1) * 16)
    }
}
