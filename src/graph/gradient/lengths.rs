//! Rows beyond the lengths of their sequences.

use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::RowLayout;
use crate::graph::builder::GraphBuilder;

/// The vectors `[D, rows, size]` of sequences that are not packed, with 0 in place of what is
/// beyond the lengths `[1, 1, batch]`, which may be NaN.
///
/// # Errors
/// As [`GraphBuilder::operation`].
pub(crate) fn zero_beyond_lengths(
    builder: &mut GraphBuilder,
    vectors: i64,
    lengths: i64,
    layout: RowLayout,
) -> Result<i64> {
    let known = |uid: i64| builder.descriptor(uid).expect("tensors of the builder are known");
    let (own, batch) = (known(vectors).clone(), known(lengths).dims[2]);
    let [directions, rows, size] = own.dims[..].try_into().expect("vectors have 3 dimensions");
    let steps = rows / batch;
    let (dims, step_axis, of_lengths) = match layout {
        RowLayout::BatchMajor => ([directions, batch, steps, size], 2, [1, batch, 1, 1]),
        _ => ([directions, steps, batch, size], 1, [1, 1, batch, 1]),
    };
    let lengths = builder.reshape(lengths, &of_lengths)?;
    let vectors = builder.reshape(vectors, &dims)?;
    let index = Pointwise::new(Mode::GenIndex).axis(step_axis);
    let step = builder.pointwise(index, &[vectors])?;
    let inside = builder.pointwise(Pointwise::new(Mode::CmpLt), &[step, lengths])?;
    let none = Pointwise::new(Mode::Identity).alphas(0.0, 1.0);
    let none = builder.pointwise(none, &[step])?;
    let select = Pointwise::new(Mode::BinarySelect).math(Math::of(own.dtype));
    let masked = builder.pointwise(select, &[vectors, none, inside])?;
    builder.name(masked, "", own.dtype);
    builder.reshape(masked, &own.dims)
}
