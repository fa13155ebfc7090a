//! Windows of a resampling: where they lie over an image, in exact fractions of its elements.

use std::fmt;

use crate::error::{Error, Result};
use crate::graph::fraction::{Fraction, common_denominator};

/// Spatial dimensions at most: a tensor's, but for images and channels.
const SPATIAL_MAX: usize = 6;

/// Numbers that positions are computed with stay below this, so that sums of a few of them are
/// those of 64-bit integers.
const POSITION_MAX: i128 = 1 << 60;

/// Where the windows of a resampling lie, a number for each spatial dimension: that of output `o`
/// starts at element `o * stride - pre` of the image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sampling {
    /// Elements of the image in a window, more than 0.
    pub window_dims: Vec<Fraction>,
    /// Elements of the image between the starts of neighbouring windows, more than 0.
    pub strides: Vec<Fraction>,
    /// Padding in front of the image; less than 0, which pooling does not take, leaves some out.
    pub pre_paddings: Vec<Fraction>,
    /// Padding behind the image, as in front of it.
    pub post_paddings: Vec<Fraction>,
}

impl Sampling {
    /// Windows of these extents next to each other, without padding.
    pub fn of(window_dims: &[i64]) -> Sampling {
        let whole: Vec<Fraction> = window_dims.iter().copied().map(Fraction::from).collect();
        let none = vec![Fraction::from(0); whole.len()];
        Sampling {
            window_dims: whole.clone(),
            strides: whole,
            pre_paddings: none.clone(),
            post_paddings: none,
        }
    }

    /// The same with whole strides and paddings, those in front of the image and behind it alike.
    #[must_use]
    pub fn moved(self, strides: &[i64], paddings: &[i64]) -> Sampling {
        let whole = |numbers: &[i64]| numbers.iter().copied().map(Fraction::from).collect();
        let paddings: Vec<Fraction> = whole(paddings);
        let pre_paddings = paddings.clone();
        Sampling { strides: whole(strides), pre_paddings, post_paddings: paddings, ..self }
    }

    /// Spatial dimensions.
    pub fn spatial_dims(&self) -> usize {
        self.window_dims.len()
    }

    /// The attributes by name, and whether 0 is one of the values that they may have.
    pub(crate) fn attributes(&self) -> [(&'static str, &Vec<Fraction>, bool); 4] {
        [
            ("window_dims", &self.window_dims, false),
            ("strides", &self.strides, false),
            ("pre_paddings", &self.pre_paddings, true),
            ("post_paddings", &self.post_paddings, true),
        ]
    }

    /// Checks the numbers by themselves; windows of pooling leave no element out.
    ///
    /// # Errors
    /// `NotSupported` for their count, as the document has it; `BadParam` for one too small.
    pub(super) fn check(&self, name: &str, pooling: bool) -> Result<()> {
        let dims = self.spatial_dims();
        if dims == 0 || dims > SPATIAL_MAX {
            let text = format!("{name}: {dims} spatial dimensions, expected 1 to {SPATIAL_MAX}");
            return Err(Error::not_supported(text));
        }
        for (attribute, values, may_be_zero) in self.attributes() {
            if values.len() != dims {
                let count = values.len();
                let text = format!("{name}: {attribute} has {count} numbers, window_dims {dims}");
                return Err(Error::not_supported(text));
            }
            let least = if may_be_zero { 0 } else { 1 };
            let too_small = |value: &&Fraction| value.numerator() < least;
            let bounded = pooling || !may_be_zero;
            if let Some(value) = values.iter().find(too_small).filter(|_| bounded) {
                let rule = if may_be_zero { "less than" } else { "not more than" };
                let values = listed(values);
                let text = format!("{name}: {attribute} is {values}, {value} is {rule} 0");
                return Err(Error::bad_param(text));
            }
        }
        Ok(())
    }

    /// Checks that all numbers are whole.
    ///
    /// # Errors
    /// `NotSupported` naming the attribute that is not.
    pub(super) fn check_whole(&self, name: &str, mode: &str) -> Result<()> {
        for (attribute, values, _) in self.attributes() {
            if values.iter().any(|value| !value.is_whole()) {
                let values = listed(values);
                return Err(Error::not_supported(format!(
                    "{name}: {attribute} is {values}, {mode} takes whole numbers"
                )));
            }
        }
        Ok(())
    }

    /// Outputs along a spatial dimension of an image: `1 + floor((image + pre + post - window) /
    /// stride)`.
    ///
    /// # Errors
    /// `BadParam` where there are fewer than none; `NotSupported` where positions are beyond 64
    /// bits.
    pub(super) fn outputs(&self, name: &str, axis: usize, image: i64) -> Result<i64> {
        let [window, stride, pre, post] = self.attributes().map(|(_, values, _)| values[axis]);
        let too_large = || {
            Error::not_supported(format!(
                "{name}: {image} elements with paddings of {pre} and {post}, windows of {window} \
                 {stride} apart: positions exceed 64 bits"
            ))
        };
        let unit = common_denominator(&[window, stride, pre, post]).ok_or_else(too_large)?;
        let unit = i128::from(unit);
        // Half elements are the finest that positions are rounded to.
        let checked = |number: i128| Some(number).filter(|of| of.abs() * 2 < POSITION_MAX);
        let number = |of: Fraction| checked(of.over(unit));
        let parts = [number(window), number(stride), number(pre), number(post)];
        let [Some(window_units), Some(stride_units), Some(pre_units), Some(post_units)] = parts
        else {
            return Err(too_large());
        };
        let image_units = i128::from(image).checked_mul(unit).and_then(checked);
        let rest = image_units.ok_or_else(too_large)? + pre_units + post_units - window_units;
        let outputs = 1 + rest.div_euclid(stride_units);
        if outputs < 0 {
            return Err(Error::bad_param(format!(
                "{name}: windows of {window} do not fit into {image} elements with paddings of \
                 {pre} and {post}"
            )));
        }
        checked(outputs * stride_units).ok_or_else(too_large)?;
        i64::try_from(outputs).map_err(|_| too_large())
    }
}

/// Numbers as a list.
pub(super) fn listed(values: &[Fraction]) -> impl fmt::Display {
    let values: Vec<String> = values.iter().map(Fraction::to_string).collect();
    format!("[{}]", values.join(", "))
}
