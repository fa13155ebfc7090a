//! Networks with loops and conditionals, valid by construction.

use crate::error::{Error, Result};
use crate::graph::reference;
use crate::loops::layer::{Layer, Loop, TripLimit};
use crate::loops::nest::Nesting;
use crate::tensor::TensorDesc;

/// The most trips of a loop with a condition, unless its own bound is another.
pub const TRIPS_MAX: i64 = 1 << 20;

/// What a loop is called, and what bounds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoopDescriptor {
    /// Name in messages, text and problem files.
    pub name: String,
    /// The most trips of a loop with a condition: where that is still true then, it is an error.
    pub trips_max: i64,
}

/// A network of layers, some of which are in loops (`INetworkDefinition` with `ILoop`s).
///
/// Inside a loop, a tensor is a lazy sequence with an element for each trip, of which those are
/// evaluated that an output needs. What no output of the network needs is removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Network {
    /// Tensors that layers read or write, sorted by uid.
    pub(super) tensors: Vec<TensorDesc>,
    /// Layers in an order in which a loop's outputs come after all of its layers.
    pub(super) layers: Vec<Layer>,
    pub(super) loops: Vec<LoopDescriptor>,
    pub(super) nesting: Nesting,
    /// See [`Network::on_device`].
    pub(super) on_device: bool,
}

impl Network {
    /// The same network, of which the host knows no number when it runs: the device goes through
    /// loops that are launched trip by trip and takes branches, so that nothing waits for the host
    /// and a stream may be captured into a CUDA graph.
    #[must_use]
    pub fn on_device(self) -> Network {
        Network { on_device: true, ..self }
    }

    /// Whether it is a network [on the device](Network::on_device).
    pub fn is_on_device(&self) -> bool {
        self.on_device
    }

    /// All tensors, sorted by uid.
    pub fn tensors(&self) -> &[TensorDesc] {
        &self.tensors
    }

    /// All layers; each comes after those that it depends on, next values aside.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The name and the bound of a loop.
    ///
    /// # Panics
    /// For a loop of another network.
    pub fn descriptor(&self, of: Loop) -> &LoopDescriptor {
        &self.loops[of.0]
    }

    /// All loops, those too that were removed because they have no output.
    pub fn loops(&self) -> impl Iterator<Item = Loop> + use<> {
        (0..self.loops.len()).map(Loop)
    }

    /// The tensor with this uid.
    ///
    /// # Errors
    /// `BadParam` when there is none.
    pub fn tensor(&self, uid: i64) -> Result<&TensorDesc> {
        let at = self.tensors.binary_search_by_key(&uid, |tensor| tensor.uid).ok();
        let unknown = || Error::bad_param(format!("no tensor of the network has uid {uid}"));
        at.map(|at| &self.tensors[at]).ok_or_else(unknown)
    }

    /// Tensors in memory that no layer writes, sorted by uid.
    pub fn inputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && self.writer(tensor.uid).is_none())
    }

    /// Tensors in memory that a layer writes, sorted by uid.
    pub fn outputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && self.writer(tensor.uid).is_some())
    }

    /// The layer that writes a tensor.
    pub fn writer(&self, uid: i64) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.outputs().contains(&uid))
    }

    /// The boundary layers of a loop.
    pub fn boundaries(&self, of: Loop) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(move |layer| layer.of_loop() == Some(of))
    }

    /// The loops in each of whose trips a tensor has a value of its own, the outermost first.
    pub fn nest(&self, uid: i64) -> &[Loop] {
        self.nesting.of_tensor(uid)
    }

    /// The loops that a loop is in, the outermost first.
    pub fn around(&self, of: Loop) -> &[Loop] {
        self.nesting.of_loop(of)
    }

    /// The tensor that limits a loop's trips in this way.
    pub fn limit(&self, of: Loop, kind: TripLimit) -> Option<i64> {
        self.boundaries(of).find_map(|layer| match layer {
            Layer::TripLimit { limit, x, .. } if *limit == kind => Some(*x),
            _ => None,
        })
    }

    /// A tensor's name in messages, text and problem files: `#uid` where it has none.
    pub fn reference(&self, uid: i64) -> String {
        reference(&self.tensors, uid)
    }
}
