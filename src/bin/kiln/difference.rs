//! Differences between two results of a tensor, or of a scratch buffer.

use kiln::TensorDesc;
use kiln::escape::escaped;
use serde_json::{Value, json};

/// Number of differing elements that are shown.
const SHOWN: usize = 5;

/// Comparison of a tensor's values with earlier ones.
pub struct Difference {
    pub name: String,
    pub elements: usize,
    pub differing: usize,
    /// Largest absolute difference; infinite where one value is not finite.
    pub largest: f64,
    /// The first differing elements.
    pub first: Vec<Element>,
}

/// A differing element.
pub struct Element {
    pub index: Vec<i64>,
    pub was: f64,
    pub is: f64,
    /// Value of the reference.
    pub reference: f64,
}

impl Difference {
    /// Compares bitwise, except that all NaNs are equal.
    pub fn of(tensor: &TensorDesc, was: &[f64], is: &[f64], reference: &[f64]) -> Difference {
        let differs = |at: &usize| {
            was[*at].to_bits() != is[*at].to_bits() && !(was[*at].is_nan() && is[*at].is_nan())
        };
        let differing: Vec<usize> = (0..was.len()).filter(differs).collect();
        let distance = |at: &usize| match (is[*at] - was[*at]).abs() {
            distance if distance.is_nan() => f64::INFINITY,
            distance => distance,
        };
        let element = |at: &usize| Element {
            index: index(&tensor.dims, *at as i64),
            was: was[*at],
            is: is[*at],
            reference: reference[*at],
        };
        Difference {
            name: tensor.name.clone(),
            elements: was.len(),
            differing: differing.len(),
            largest: differing.iter().map(distance).fold(0.0, f64::max),
            first: differing.iter().take(SHOWN).map(element).collect(),
        }
    }

    pub fn is_none(&self) -> bool {
        self.differing == 0
    }

    /// One line, followed by one per element shown.
    pub fn text(&self) -> String {
        let Difference { name, elements, differing, largest, first } = self;
        let name = escaped(name);
        if self.is_none() {
            return format!("{name}: {elements} elements, the same bits");
        }
        let mut text =
            format!("{name}: {differing} of {elements} elements differ, by {largest} at most");
        for Element { index, was, is, reference } in first {
            text += &format!("\n  {index:?}  was {was}, is {is}, reference {reference}");
        }
        text
    }

    pub fn json(&self) -> Value {
        // JSON cannot represent NaN and infinities.
        let number =
            |value: f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
        let element = |element: &Element| {
            let Element { index, was, is, reference } = element;
            json!({
                "index": index,
                "was": number(*was),
                "is": number(*is),
                "reference": number(*reference),
            })
        };
        json!({
            "tensor": self.name,
            "elements": self.elements,
            "differing": self.differing,
            "largest": number(self.largest),
            "first": self.first.iter().map(element).collect::<Vec<_>>(),
        })
    }
}

/// Comparison of a scratch buffer's bytes with earlier ones.
pub struct BytesDifference {
    pub name: String,
    pub bytes: usize,
    pub differing: usize,
    /// Offset of the first byte that differs.
    pub first: Option<usize>,
}

impl BytesDifference {
    pub fn of(name: &str, was: &[u8], is: &[u8]) -> BytesDifference {
        let differs = || (0..is.len()).filter(|at| was.get(*at) != is.get(*at));
        let (name, bytes) = (name.to_owned(), is.len());
        BytesDifference { name, bytes, differing: differs().count(), first: differs().next() }
    }

    pub fn text(&self) -> String {
        let BytesDifference { name, bytes, differing, first } = self;
        match first {
            None => format!("scratch {name}: {bytes} bytes, the same"),
            Some(first) => format!(
                "scratch {name}: {differing} of {bytes} bytes differ, the first at offset {first}"
            ),
        }
    }

    pub fn json(&self) -> Value {
        let BytesDifference { name, bytes, differing, first } = self;
        json!({ "buffer": name, "bytes": bytes, "differing": differing, "first": first })
    }
}

/// Index of an element in row-major order.
fn index(dims: &[i64], mut linear: i64) -> Vec<i64> {
    let mut index = vec![0; dims.len()];
    for (place, dim) in index.iter_mut().zip(dims).rev() {
        *place = linear % dim;
        linear /= dim;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::DType;

    #[test]
    fn differences_are_counted_and_placed() {
        let tensor = TensorDesc::packed(1, "y", &[2, 3], DType::F32);
        let was = [0.0, f64::NAN, 1.0, 2.0, f64::INFINITY, 4.0];
        let is = [-0.0, f64::NAN, 1.0, 2.5, 3.0, 4.0];
        let difference = Difference::of(&tensor, &was, &is, &[0.0; 6]);
        assert_eq!(
            difference.text(),
            "y: 3 of 6 elements differ, by inf at most\n  \
             [0, 0]  was 0, is -0, reference 0\n  \
             [1, 0]  was 2, is 2.5, reference 0\n  \
             [1, 1]  was inf, is 3, reference 0"
        );
        assert_eq!(difference.json()["first"][2]["was"], "inf");
        assert!(Difference::of(&tensor, &was, &was, &was).is_none());
    }
}
