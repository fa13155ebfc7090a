//! The expression language of all pointwise computation: elementwise chains, GEMM prologues and
//! epilogues, score modifiers and the bodies of recurrent cells.
//!
//! A [`Program`] is an SSA list of [`Pointwise`] operations over typed inputs. It has types and
//! values but no tensors, memory or threads, which belong to the graph and the engines. It can be
//! [evaluated in `f64`](Program::eval), [simplified](Program::simplified) where that is bit-exact,
//! [differentiated](Program::vjp) and [emitted as CUDA C++](Program::emit).
//!
//! ```
//! use kiln::expr::{Mode, Pointwise, Program};
//! use kiln::DType;
//!
//! let mut program = Program::new();
//! let x = program.input("x", DType::Bf16);
//! let bias = program.input("bias", DType::F32);
//! let sum = program.push("sum", Pointwise::new(Mode::Add), &[x, bias], DType::F32)?;
//! let y = program.push("y", Pointwise::new(Mode::ReluFwd), &[sum], DType::Bf16)?;
//! program.output(y);
//! assert_eq!(program.eval(&[-3.0, 0.5]), [0.0]);
//! # Ok::<(), kiln::Error>(())
//! ```

mod emit;
mod eval;
mod identifier;
mod integer;
mod lines;
mod mode;
mod pointwise;
mod program;
pub(crate) mod pullback;
mod random;
mod simplify;
mod vjp;

pub use emit::{Emission, EmittedOutput, EmittedProgram};
pub use identifier::Identifiers;
pub(crate) use integer::MOVED;
pub use lines::Lines;
pub use mode::{Mode, ModeClass};
pub use pointwise::{Activations, Math, NanPropagation, Pointwise, Real};
pub use program::{Input, InputKind, Instruction, Program, Value};
pub use random::{Distribution, Draw, Seed};
pub(crate) use random::{position_from, words as random_words};
