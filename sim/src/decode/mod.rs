//! Translation of instructions to micro-ops: every opcode and modifier is recognised here or
//! rejected.
//!
//! Device functions are inlined; their parameters are in local memory.

mod arithmetic;
mod atomic;
mod bit;
mod bit_range;
mod bulk;
mod cluster;
mod compare;
mod compare_pair;
mod control;
mod convert;
mod convert_eight;
mod convert_narrow;
mod copy;
mod float;
mod fragments;
mod indirect;
mod matrix;
mod memory;
mod modifiers;
mod multiply;
mod operand;
mod pair;
mod policy;
mod relation;
mod tensor_core;
mod tensor_map;
mod video;
mod walk;
mod warp;
mod warpgroup;

use crate::accuracy::Accuracy;
use crate::ast::{Ast, Function, Instruction, Prototype, Space, Statement, Variable, VariableId};
use crate::colour;
use crate::draft::{Draft, Drafts, Source, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::lanes::{LaneOp, handler};
use crate::op::{Handler, Kind, Origin};
use crate::program::Program;
use crate::refused;
use crate::traits::Traits;
use crate::types::{Class, Type};
pub(crate) use atomic::known;
use modifiers::Modifiers;
use std::collections::HashMap;

/// Maximum depth of nested calls.
const CALL_DEPTH_MAX: usize = 32;

/// Maximum number of ops of a kernel: shadow entries have 19 bits for an op.
const OPS_MAX: usize = 1 << 19;
/// Maximum number of registers of a kernel, including inlined functions.
const VALUES_MAX: usize = 1 << 22;
/// Maximum shared memory per block, beyond that of any device.
const SHARED_BYTES_MAX: u32 = 1 << 23;
/// Maximum local memory per thread, as on every device.
const LOCAL_BYTES_MAX: u32 = 512 << 10;

/// Decodes an entry.
pub(crate) fn decode(ast: &Ast, function: &Function, accuracy: Accuracy) -> Result<Program> {
    let mut program = Program { accuracy, target: ast.target.clone(), ..Program::default() };
    let mut decoder = Decoder::new(ast, accuracy);
    decoder.origin.line = function.line;
    decoder.place_shared(function)?;
    let end = decoder.new_label();
    let frame = decoder.frame(function, end, &HashMap::new())?;
    decoder.body(function, frame)?;
    decoder.bind_label(end);
    decoder.emit(Kind::Exit, Vec::new(), Vec::new(), 0);
    program.local_bytes = decoder.local_bytes.next_multiple_of(16);
    program.shared_bytes = decoder.shared_bytes.max(decoder.dynamic_at);
    decoder.hold_accumulators();
    colour::encode(&decoder.drafts, &mut program)?;
    Ok(program)
}

/// Location of a function's variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placed {
    /// Offset in the block's shared memory.
    Shared(u32),
    /// Offset in the thread's local memory.
    Local(u32),
    /// Offset in the launch's parameter block.
    Param(u32),
    /// A module variable in global memory.
    Global(u32),
}

/// Storage of a declared register.
enum Register {
    One(Value),
    /// Low and high half of a 128-bit register.
    Pair([Value; 2]),
}

/// An inlined function.
struct Frame {
    name: String,
    registers: Vec<Register>,
    places: Vec<Placed>,
    labels: HashMap<(u32, String), u32>,
    targets: HashMap<(u32, String), Vec<String>>,
    prototypes: HashMap<(u32, String), Prototype>,
    scopes: Vec<u32>,
    end: u32,
    entry: bool,
}

/// Start and end of a variable placed after `used` bytes, if within `bytes_max`.
fn placed_after(used: u32, variable: &Variable, align: u32, bytes_max: u32) -> Option<(u32, u32)> {
    let at = used.checked_next_multiple_of(variable.align.max(align))?;
    let end = at.checked_add(variable.bytes).filter(|&end| end <= bytes_max)?;
    Some((at, end))
}

struct Decoder<'a> {
    ast: &'a Ast,
    accuracy: Accuracy,
    drafts: Drafts,
    frames: Vec<Frame>,
    /// Offsets of module variables in shared memory.
    shared_places: HashMap<u32, u32>,
    shared_bytes: u32,
    /// Offset of the dynamic arrays; 0 if there are none.
    dynamic_at: u32,
    local_bytes: u32,
    guard: Option<(Value, bool)>,
    origin: Origin,
    /// The carry flag, if in use.
    carry: Option<Value>,
    /// Accumulators of wgmma.
    accumulators: Vec<Value>,
}

impl<'a> Decoder<'a> {
    fn new(ast: &'a Ast, accuracy: Accuracy) -> Decoder<'a> {
        Decoder {
            ast,
            accuracy,
            drafts: Drafts::default(),
            frames: Vec::new(),
            shared_places: HashMap::new(),
            shared_bytes: 0,
            dynamic_at: 0,
            local_bytes: 0,
            guard: None,
            origin: Origin::default(),
            carry: None,
            accumulators: Vec::new(),
        }
    }

    fn unsupported<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::at_line(ErrorKind::Unsupported, self.origin.line, message))
    }

    fn invalid<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::at_line(ErrorKind::Parse, self.origin.line, message))
    }

    fn new_value(&mut self, class: Class) -> Value {
        self.drafts.classes.push(class);
        Value(self.drafts.classes.len() as u32 - 1)
    }

    fn new_register(&mut self, ty: Type) -> Register {
        match ty {
            Type::B128 => Register::Pair([(); 2].map(|()| self.new_value(Class::Wide))),
            _ => Register::One(self.new_value(ty.class())),
        }
    }

    fn new_label(&mut self) -> u32 {
        self.drafts.labels.push(0);
        self.drafts.labels.len() as u32 - 1
    }

    fn bind_label(&mut self, label: u32) {
        self.drafts.labels[label as usize] = self.drafts.ops.len();
    }

    fn push(&mut self, kind: Kind, writes: Vec<Value>, reads: Vec<Source>, imm: i64) -> &mut Draft {
        let (guard, origin) = (self.guard, self.origin);
        let draft = Draft { kind, guard, writes, reads, imm, targets: Vec::new(), origin };
        self.drafts.ops.push(draft);
        self.drafts.ops.last_mut().expect("an op was just pushed")
    }

    /// Emits an op under the instruction's guard.
    fn emit(&mut self, kind: Kind, writes: Vec<Value>, reads: Vec<Source>, imm: i64) {
        self.push(kind, writes, reads, imm);
    }

    /// Emits an op into a new register without the guard, since nothing else reads it.
    fn emit_new(&mut self, class: Class, kind: Kind, reads: Vec<Source>, imm: i64) -> Source {
        let value = self.new_value(class);
        self.push(kind, vec![value], reads, imm).guard = None;
        Source::Value(value)
    }

    fn lane(&mut self, handler: Handler, write: Value, reads: Vec<Source>, imm: i64) {
        self.emit(Kind::Lane(handler), vec![write], reads, imm);
    }

    fn lane_new<O: LaneOp>(&mut self, class: Class, reads: Vec<Source>) -> Source {
        self.emit_new(class, Kind::Lane(handler::<O>()), reads, 0)
    }

    /// Allocates all shared variables that the kernel reaches: sized ones first, then the dynamic
    /// arrays, which all start at the end.
    fn place_shared(&mut self, entry: &Function) -> Result<()> {
        let mut reached = Vec::new();
        self.reach(entry, &mut reached, &mut vec![entry.name.clone()]);
        let shared = |id: &u32| self.ast.variables[*id as usize].space == Space::Shared;
        reached.retain(shared);
        let (fixed, dynamic): (Vec<u32>, Vec<u32>) =
            reached.into_iter().partition(|&id| self.ast.variables[id as usize].bytes > 0);
        for id in fixed {
            let place = self.reserve_shared(&self.ast.variables[id as usize])?;
            self.shared_places.insert(id, place);
        }
        // Variables of functions precede the dynamic arrays too. They are allocated with their
        // function, so their space is reserved here by a trial allocation.
        if !dynamic.is_empty() {
            let own: Vec<&Variable> =
                entry.variables.iter().filter(|v| v.space == Space::Shared).collect();
            let fixed = self.shared_bytes;
            for variable in own {
                self.reserve_shared(variable)?;
            }
            let align = dynamic.iter().map(|&id| self.ast.variables[id as usize].align).max();
            let align = align.unwrap_or(1).max(16);
            let Some(at) = self.shared_bytes.checked_next_multiple_of(align) else {
                return self.unsupported(format!("an alignment of {align} in shared memory"));
            };
            self.shared_bytes = fixed;
            self.dynamic_at = at;
            for id in dynamic {
                self.shared_places.insert(id, at);
            }
        }
        Ok(())
    }

    fn reserve_shared(&mut self, variable: &Variable) -> Result<u32> {
        let placed = placed_after(self.shared_bytes, variable, 1, SHARED_BYTES_MAX);
        let Some((at, end)) = placed else {
            let text = format!("more than {SHARED_BYTES_MAX} bytes of shared memory");
            return self.unsupported(text);
        };
        self.shared_bytes = end;
        Ok(at)
    }

    fn reserve_local(&mut self, variable: &Variable) -> Result<u32> {
        let placed = placed_after(self.local_bytes, variable, 4, LOCAL_BYTES_MAX);
        let Some((at, end)) = placed else {
            return self.unsupported(format!("more than {LOCAL_BYTES_MAX} bytes of local memory"));
        };
        self.local_bytes = end;
        Ok(at)
    }

    /// Collects the module variables that a function or its callees use.
    fn reach(&self, function: &Function, out: &mut Vec<u32>, seen: &mut Vec<String>) {
        for statement in &function.body {
            let Statement::Instruction(instruction) = statement else { continue };
            for operand in &instruction.operands {
                walk::walk(operand, &mut |id, name| {
                    if let Some(VariableId::Module(id)) = id
                        && !out.contains(&id)
                    {
                        out.push(id);
                        for stored in &self.ast.variables[id as usize].relocations {
                            self.reach_function(&stored.symbol, out, seen);
                        }
                    }
                    if let Some(name) = name {
                        self.reach_function(name, out, seen);
                    }
                });
            }
        }
    }

    fn reach_function(&self, name: &str, out: &mut Vec<u32>, seen: &mut Vec<String>) {
        if seen.iter().any(|other| other == name) {
            return;
        }
        if let Some(callee) = self.ast.functions.iter().find(|f| f.name == name) {
            seen.push(name.to_string());
            self.reach(callee, out, seen);
        }
    }

    /// Creates the registers, variables and labels of an inlined function.
    fn frame(
        &mut self,
        function: &Function,
        end: u32,
        bound: &HashMap<usize, Placed>,
    ) -> Result<Frame> {
        let values = |ty: &Type| if *ty == Type::B128 { 2 } else { 1 };
        let count: usize = function.registers.iter().map(values).sum();
        if self.drafts.classes.len() + count > VALUES_MAX {
            return self.unsupported(format!("more than {VALUES_MAX} registers"));
        }
        let registers = function.registers.iter().map(|&ty| self.new_register(ty)).collect();
        let mut places = Vec::new();
        let mut param_at = 0_u32;
        for (index, variable) in function.variables.iter().enumerate() {
            let formal = index < function.returns + function.params;
            let place = match (variable.space, bound.get(&index)) {
                (_, Some(&place)) => place,
                (Space::Param, None) if formal && function.entry => {
                    param_at = param_at.next_multiple_of(variable.align);
                    param_at += variable.bytes;
                    Placed::Param(param_at - variable.bytes)
                }
                (Space::Param | Space::Local, None) => Placed::Local(self.reserve_local(variable)?),
                (Space::Shared, None) => Placed::Shared(self.reserve_shared(variable)?),
                (Space::Global | Space::Const, None) => {
                    return self.unsupported("a global variable inside a function");
                }
            };
            places.push(place);
        }
        let mut frame = Frame {
            name: function.name.clone(),
            registers,
            places,
            labels: HashMap::new(),
            targets: HashMap::new(),
            prototypes: HashMap::new(),
            scopes: function.scopes.clone(),
            end,
            entry: function.entry,
        };
        for statement in &function.body {
            match statement {
                Statement::Label { name, scope } => {
                    let label = self.new_label();
                    frame.labels.insert((*scope, name.clone()), label);
                }
                Statement::BranchTargets { name, scope, targets } => {
                    frame.targets.insert((*scope, name.clone()), targets.clone());
                }
                Statement::Prototype { name, scope, prototype } => {
                    frame.prototypes.insert((*scope, name.clone()), prototype.clone());
                }
                Statement::Instruction(_) => {}
            }
        }
        Ok(frame)
    }

    fn top(&self) -> &Frame {
        self.frames.last().expect("a body is decoded within its frame")
    }

    fn body(&mut self, function: &Function, frame: Frame) -> Result<()> {
        if self.frames.iter().any(|outer| outer.name == function.name) {
            return self.unsupported(format!("recursive call of `{}`", function.name));
        }
        if self.frames.len() >= CALL_DEPTH_MAX {
            return self.unsupported(format!("calls nest deeper than {CALL_DEPTH_MAX}"));
        }
        self.frames.push(frame);
        for statement in &function.body {
            match statement {
                Statement::Label { name, scope } => {
                    let label = self.top().labels[&(*scope, name.clone())];
                    self.bind_label(label);
                }
                Statement::BranchTargets { .. } | Statement::Prototype { .. } => {}
                Statement::Instruction(instruction) => self.instruction(instruction)?,
            }
        }
        self.guard = None;
        self.frames.pop();
        Ok(())
    }

    fn instruction(&mut self, instruction: &'_ Instruction) -> Result<()> {
        let traits = Traits::of(instruction, self.origin.traits.instruction + 1);
        self.origin = Origin { line: instruction.line, loc: instruction.loc, traits };
        self.guard = match instruction.guard {
            None => None,
            Some(guard) => {
                let value = self.register(guard.register)?;
                if self.drafts.classes[value.0 as usize] != Class::Pred {
                    return self.invalid("the guard is not a predicate");
                }
                Some((value, guard.negated))
            }
        };
        let plain = self.without_policy(instruction)?;
        let instruction = plain.as_ref().unwrap_or(instruction);
        let mut modifiers = Modifiers::new(instruction);
        self.dispatch(instruction, &mut modifiers)?;
        if self.drafts.ops.len() > OPS_MAX {
            return self.unsupported(format!("more than {OPS_MAX} ops, calls inlined"));
        }
        modifiers.finish()
    }

    fn dispatch(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        match i.opcode.as_str() {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "min" | "max" | "abs"
            | "neg" | "sad" | "mul24" | "mad24" | "addc" | "subc" | "madc" | "dp4a" | "dp2a" => {
                self.arithmetic(i, m)
            }
            "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "copysign"
            | "testp" => self.function(i, m),
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "popc" | "clz"
            | "brev" | "bfe" | "bfi" | "bfind" | "lop3" | "prmt" | "selp" | "slct" => {
                self.bits(i, m)
            }
            "fns" | "szext" | "bmsk" => self.bit_range(i, m),
            "vadd2" | "vadd4" | "vsub2" | "vsub4" | "vavrg2" | "vavrg4" | "vabsdiff2"
            | "vabsdiff4" | "vmin2" | "vmin4" | "vmax2" | "vmax4" | "vset2" | "vset4" => {
                self.video(i, m)
            }
            "setp" | "set" => self.compare(i, m),
            "mov" => self.mov(i, m),
            "cvt" => self.convert(i, m),
            "cvta" => self.convert_address(i, m),
            "isspacep" => self.is_space(i, m),
            "st" | "red" if i.modifiers.first().is_some_and(|first| first == "async") => {
                self.store_async(i, m)
            }
            "tcgen05" => self.tensor_core(i, m),
            "tensormap" => self.tensor_map(i, m),
            "wgmma" => self.warpgroup(i, m),
            "cp" => self.asynchronous(i, m),
            "mbarrier" => self.memory_barrier(i, m),
            "mapa" | "getctarank" => self.map_address(i, m),
            "elect" => self.elect(i, m),
            "setmaxnreg" => self.register_budget(i, m),
            "ld" | "ldu" => self.load(i, m),
            "st" => self.store(i, m),
            "prefetch" | "prefetchu" | "applypriority" | "discard" => self.cache_hint(i, m),
            "createpolicy" => self.create_policy(i, m),
            "atom" | "red" => self.atomic(i, m),
            "bra" => self.branch(i, m),
            "brx" => self.branch_indexed(i, m),
            "call" => self.call(i, m),
            "ret" | "exit" | "trap" | "brkpt" => self.leave(i, m),
            "bar" | "barrier" => self.barrier(i, m),
            "shfl" | "vote" | "match" | "redux" | "activemask" => self.exchange(i, m),
            "membar" | "fence" | "nanosleep" | "griddepcontrol" | "pmevent" => self.order(i, m),
            "ldmatrix" | "stmatrix" | "movmatrix" => self.matrix(i, m),
            "mma" => self.multiply_matrices(i, m),
            "wmma" => self.fragments(i, m),
            other => match refused::reason(other) {
                Some(why) => Err(m.error(&format!("is not supported: {why}"))),
                None => self.unsupported(format!("unknown opcode `{other}`")),
            },
        }
    }
}
