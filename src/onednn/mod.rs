//! oneDNN's RNN primitive and its reorders, lowered to operation graphs (oneAPI 1.3 specification,
//! oneDNN, RNN).
//!
//! An [`RnnDesc`] is an operation with the memory descriptors of its tensors. [`Primitive::rnn`]
//! checks them, resolves `any` formats, and lowers the operation to [`Step`]s: the graph of
//! [`rnn`](crate::rnn) whose tensors are views of the caller's memory, and in front of it and
//! behind it reorders of what strides of those graphs cannot say, and of numbers beside 8-bit
//! integers. A [`Kiln`](crate::Kiln) plans them once (`layers`).
//!
//! Gates are in oneDNN's order (`i f c o`; `u r o`, of linear-before-reset cells with a fourth
//! bias) in the cells themselves, so nothing is permuted.
//!
//! ```
//! use kiln::DType;
//! use kiln::onednn::{Arg, Cell, FormatTag, MemoryDesc, Primitive, PropKind, RnnDesc};
//! use kiln::onednn::{RnnDirection, Tensor};
//!
//! let of = |dims: &[i64], tag| MemoryDesc::new(dims, DType::F32, tag);
//! let (t, n, c) = (5, 2, 16);
//! let lstm = RnnDesc::new(Cell::Lstm, PropKind::ForwardInference, RnnDirection::LeftToRight)
//!     .with(Tensor::SrcLayer, of(&[t, n, c], FormatTag::Tnc)?)
//!     .with(Tensor::WeightsLayer, of(&[1, 1, c, 4, c], FormatTag::Any)?)
//!     .with(Tensor::WeightsIter, of(&[1, 1, c, 4, c], FormatTag::Any)?)
//!     .with(Tensor::Bias, of(&[1, 1, 4, c], FormatTag::Ldgo)?)
//!     .with(Tensor::DstLayer, of(&[t, n, c], FormatTag::Tnc)?);
//! let primitive = Primitive::rnn(&lstm)?;
//! let weights = primitive.desc(Arg::Of(Tensor::WeightsIter)).expect("it was given");
//! assert_eq!(*weights, of(&[1, 1, c, 4, c], FormatTag::Ldgoi)?);
//! # Ok::<(), kiln::Error>(())
//! ```

mod argument;
mod attr;
mod constants;
mod description;
mod integers;
mod lower;
mod memory;
mod primitive;
mod reorder;
mod sizes;
mod step;
mod types;
mod view;

pub use argument::{Arg, Tensor};
pub use attr::{DataQuantization, PrimitiveAttr, WeightsScales};
pub use description::{Activation, Cell, PropKind, RnnDesc, RnnDirection};
pub use memory::{FormatTag, MemoryDesc};
pub use primitive::Primitive;
pub use step::{Home, Step};
