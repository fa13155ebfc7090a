//! Weights of a quantised network from those of the network in numbers.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::rnn::network::Rnn;
use crate::rnn::weights::{Block, WeightKind, WeightSpace};

/// A row of a matrix of weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightRow<'a> {
    /// `layer * directions + direction`.
    pub pseudo_layer: usize,
    /// [`WeightKind::Input`] or [`WeightKind::Recurrent`].
    pub kind: WeightKind,
    /// Gate times hidden size, plus hidden unit.
    pub row: usize,
    /// Its elements.
    pub weights: &'a [f64],
}

impl WeightRow<'_> {
    /// Integers per unit with which the row's largest weight is 127; 1 for a row of zeros.
    pub fn factor(&self) -> f64 {
        let largest = self.weights.iter().map(|weight| weight.abs()).fold(0.0, f64::max);
        if largest > 0.0 { 127.0 / largest } else { 1.0 }
    }
}

impl Rnn {
    /// The same network in f32.
    fn in_numbers(&self) -> Rnn {
        Rnn { dtype: DType::F32, quantization: None, ..self.clone() }
    }

    /// Builds the weight space of this quantised network from that of the same network in f32: a
    /// weight is rounded to an integer after it is multiplied by its row's `factor`, of which the
    /// reciprocal is the scale. Scales of a whole tensor are factors that are equal.
    ///
    /// # Errors
    /// As [`Rnn::validate`]; `BadParam` for a network that is not quantised, weights of another
    /// size, and a factor that is not positive and finite.
    pub fn quantise_weights(
        &self,
        weights: &[f64],
        factor: impl Fn(WeightRow<'_>) -> f64,
    ) -> Result<Vec<f64>> {
        if self.quantization.is_none() {
            return Err(Error::bad_param(
                "rnn: integer weights of a network that is not quantised",
            ));
        }
        let (space, given) = (WeightSpace::new(self)?, WeightSpace::new(&self.in_numbers())?);
        let (count, wanted) = (weights.len(), given.elements());
        if count as i64 != wanted {
            let text = format!("rnn: {count} weights, the network in f32 has {wanted}");
            return Err(Error::bad_param(text));
        }
        let part = |pseudo_layer, kind| {
            let block: Block = given.block(pseudo_layer, kind)?;
            let [first, columns] = [block.offset, block.columns].map(|of| of as usize);
            Some((&weights[first..first + block.rows as usize * columns], columns))
        };
        let factors = |pseudo_layer, kind| -> Result<Vec<f64>> {
            let (matrix, columns) = part(pseudo_layer, kind).expect("a network has its matrices");
            let rows = matrix.chunks(columns).enumerate();
            let factor = |(row, weights): (usize, _)| {
                let factor = factor(WeightRow { pseudo_layer, kind, row, weights });
                let factor = DType::F32.round(factor);
                match factor > 0.0 && factor.is_finite() {
                    true => Ok(factor),
                    false => Err(Error::bad_param(format!(
                        "rnn: factor {factor} of row {row} of `{}`",
                        self.torch_name(pseudo_layer, kind)
                    ))),
                }
            };
            rows.map(factor).collect()
        };
        let scales = |pseudo_layer, kind| {
            let factors = factors(pseudo_layer, kind)?.into_iter();
            Ok(factors.map(|factor| DType::F32.round(1.0 / factor)).collect())
        };
        space.filled(|pseudo_layer, kind| match kind {
            WeightKind::InputScales => scales(pseudo_layer, WeightKind::Input),
            WeightKind::RecurrentScales => scales(pseudo_layer, WeightKind::Recurrent),
            WeightKind::Input | WeightKind::Recurrent => {
                let (matrix, columns) = part(pseudo_layer, kind).expect("it is in the space");
                let rows = matrix.chunks(columns).zip(factors(pseudo_layer, kind)?);
                let integer =
                    |weight: &f64, factor: f64| DType::I8.round(DType::F32.round(weight * factor));
                Ok(rows
                    .flat_map(|(row, factor)| row.iter().map(move |weight| integer(weight, factor)))
                    .collect())
            }
            kind => Ok(part(pseudo_layer, kind).expect("it is in both").0.to_vec()),
        })
    }
}
