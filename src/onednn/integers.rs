//! What the integers of a primitive stand for, as graphs have it: constants.

use crate::dtype::DType;
use crate::expr::Real;
use crate::graph::Quantization;
use crate::onednn::attr::{DataQuantization, PrimitiveAttr, WEIGHTS_CHANNELS};
use crate::onednn::constants::{Constant, Constants};

/// Integers are numbers times a scale, plus a shift if there is one.
#[derive(Debug, Clone)]
pub(super) struct Integers {
    pub(super) scale: Constant,
    pub(super) shift: Option<Constant>,
}

impl Integers {
    /// Those of data.
    pub(super) fn of_data(own: DataQuantization, constants: &mut Constants) -> Integers {
        let mut add = |number: Real| constants.add(&[number.get()], &[1]);
        let scale = add(own.scale);
        let shift = (own.shift.get() != 0.0).then(|| add(own.shift));
        Integers { scale, shift }
    }

    /// Those of memory, if attributes are given: of weights, if there are five dimensions, else of
    /// data.
    ///
    /// # Errors
    /// The rule that the attributes break.
    pub(super) fn of_memory(
        dims: &[i64],
        attr: &PrimitiveAttr,
        constants: &mut Constants,
    ) -> Result<Option<Integers>, String> {
        if *attr == PrimitiveAttr::default() {
            return Ok(None);
        }
        let &[_, _, _, gates, hidden] = dims else {
            let data = attr.data.unwrap_or_default();
            return match data.broken_rule() {
                Some(rule) => Err(rule),
                None => Ok(Some(Integers::of_data(data, constants))),
            };
        };
        let weights = attr.weights.clone().unwrap_or_default();
        if let Some(rule) = weights.broken_rule("weights", dims, &WEIGHTS_CHANNELS) {
            return Err(rule);
        }
        let channels = if weights.mask == 0 { [1, 1] } else { [gates, hidden] };
        let numbers: Vec<f64> = weights.scales.iter().map(|scale| scale.get()).collect();
        Ok(Some(Integers { scale: constants.add(&numbers, &channels), shift: None }))
    }
}

/// The numbers of an 8-bit LSTM.
#[derive(Debug, Clone)]
pub(super) struct IntegerLstm {
    pub(super) quantization: Quantization,
    pub(super) data: Integers,
    /// What 1 in a row of weights stands for: one number, or one for each row.
    pub(super) unit: Constant,
}

impl IntegerLstm {
    /// Those of an LSTM with these attributes and data of this type.
    ///
    /// # Errors
    /// The rule that the quantization of data breaks: graphs have an integer that stands for 0.
    pub(super) fn new(
        attr: &PrimitiveAttr,
        data: DType,
        constants: &mut Constants,
    ) -> Result<IntegerLstm, String> {
        let own = attr.data.unwrap_or_default();
        let shift = own.shift.get();
        if shift.fract() != 0.0 {
            return Err(format!("the shift {shift} is not a number of {data}"));
        }
        let quantization = Quantization::new(own.scale.get(), shift as i64);
        if let Some(rule) = quantization.broken_rule(data) {
            return Err(rule);
        }
        let weights = attr.weights.clone().unwrap_or_default();
        let units: Vec<f64> = weights.scales.iter().map(|scale| 1.0 / scale.get()).collect();
        Ok(IntegerLstm {
            quantization,
            unit: constants.add(&units, &[units.len() as i64]),
            data: Integers::of_data(own, constants),
        })
    }
}
