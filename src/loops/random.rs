//! Values of a network's inputs that are plausible.

use crate::dtype::DType;
use crate::error::Result;
use crate::frontend::{Values, random_values_of};
use crate::loops::layer::{Layer, TripLimit};
use crate::loops::network::Network;
use crate::tensor::TensorDesc;

impl Network {
    /// Reproducible random values of the inputs: in [-2, 2), counts as many trips as every iterator
    /// and output of their loops has room for, other integers small.
    ///
    /// # Errors
    /// `Io` when host memory is exhausted.
    pub fn random_values(&self, seed: u64) -> Result<Values> {
        let tensors: Vec<TensorDesc> = self.inputs().cloned().collect();
        random_values_of(&tensors, seed, |tensor, _, value| match tensor.dtype {
            DType::Bool => f64::from(u8::from(value > 0.0)),
            _ => self.room(tensor.uid).map_or(value, |room| room as f64),
        })
    }

    /// The trips that the loops of a count have room for, if it is one.
    fn room(&self, uid: i64) -> Option<i64> {
        let counted = |layer: &Layer| match layer {
            Layer::TripLimit { of, limit: TripLimit::Count, x } if *x == uid => Some(*of),
            _ => None,
        };
        let loops = self.layers().iter().filter_map(counted);
        let rooms = loops.map(|of| {
            let extent = |layer: &Layer| match layer {
                Layer::Iterator { x, axis, .. } => Some(self.tensor(*x).ok()?.dims[*axis]),
                Layer::LoopOutput { output, .. } => output.concatenated().map(|(_, length)| length),
                _ => None,
            };
            /// Trips of a loop that has room for any number of them.
            const USUAL: i64 = 8;
            self.boundaries(of).filter_map(extent).min().unwrap_or(USUAL)
        });
        rooms.min()
    }
}
