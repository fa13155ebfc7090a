//! The forward pass of a recurrent network by descriptors (`mcdnnRNNForward`, section 6.2.1.36),
//! with its checks.

use crate::device::Stream;
use crate::error::{Error, Result};
use crate::graph::RowLayout;
use crate::layers::rnn::PersistentRnn;
use crate::layers::rnn_pack::RnnPack;
use crate::layers::rnn_plans::Pass;
use crate::layers::rnn_sizes::TempSpace;
use crate::plan::Memory;
use crate::rnn::{Optional, RnnDataDescriptor, RnnDescriptor, Role};

/// `mcdnnForwardMode_t` (section 6.1.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ForwardMode {
    /// No data for a backward pass.
    #[default]
    Inference,
    /// Data for a backward pass is written to the reserve space.
    Training,
}

/// Arguments of `mcdnnRNNForward`; `None` is the document's NULL.
#[derive(Debug, Clone, Copy)]
pub struct RnnForward<'a> {
    /// The network.
    pub descriptor: &'a RnnDescriptor,
    /// Inference or training.
    pub mode: ForwardMode,
    /// The lengths of `x_desc` in device memory, `i32`. They are not compared with `x_desc`.
    pub lengths: Memory<'a>,
    /// Descriptor of `x`.
    pub x_desc: &'a RnnDataDescriptor,
    /// The input.
    pub x: Memory<'a>,
    /// Descriptor of `y`.
    pub y_desc: &'a RnnDataDescriptor,
    /// The output.
    pub y: Memory<'a>,
    /// Dimensions of `hx` and `hy`: layers times directions, batch, elements of `h`.
    pub h_dims: [i64; 3],
    /// `h` before the first step; `None`: 0.
    pub hx: Option<Memory<'a>>,
    /// `h` after the last step; `None`: not written.
    pub hy: Option<Memory<'a>>,
    /// Dimensions of `cx` and `cy`; for cells other than LSTM, all three fields are ignored.
    pub c_dims: [i64; 3],
    /// Cell state before the first step, LSTM only; `None`: 0.
    pub cx: Option<Memory<'a>>,
    /// Cell state after the last step, LSTM only; `None`: not written.
    pub cy: Option<Memory<'a>>,
    /// The weight space.
    pub weight_space: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space, in training only; `None` if its size is 0.
    pub reserve: Option<Memory<'a>>,
}

impl PersistentRnn {
    /// Sizes of temporary memory in bytes for the vectors of `x`.
    ///
    /// # Errors
    /// `BadParam` if the layout or batch size of `x` is not the network's; as
    /// [`PersistentRnn::forward`].
    pub fn temp_space_sizes(&self, mode: ForwardMode, x: &RnnDataDescriptor) -> Result<TempSpace> {
        let extent = x.extent();
        if x.get().layout != self.rnn().layout || extent.batch != self.mini_batch() {
            return Err(Error::bad_param(format!(
                "rnn temp space: {} sequences of layout {}, the network was built for {} of {}",
                extent.batch,
                x.get().layout.name(),
                self.mini_batch(),
                self.rnn().layout.name()
            )));
        }
        let with = Optional {
            lengths: needs_lengths(x),
            reserve: mode == ForwardMode::Training,
            ..Optional::default()
        };
        self.temp_space(extent.rows, with)
    }

    /// Checks that descriptors are of this network and batch size; returns the number of vectors.
    pub(super) fn expect(
        &self,
        pass: Pass,
        descriptor: &RnnDescriptor,
        (x, y): (&RnnDataDescriptor, &RnnDataDescriptor),
    ) -> Result<i64> {
        let bad = |rule: String| Err(Error::bad_param(format!("{}: {rule}", pass.name())));
        if descriptor.network(x, y)? != *self.rnn() {
            return bad("the descriptors are not those that the network was built from".to_owned());
        }
        let extent = x.extent();
        if extent.batch != self.mini_batch() {
            let (is, wanted) = (extent.batch, self.mini_batch());
            return bad(format!("{is} sequences, the network was built for {wanted}"));
        }
        Ok(extent.rows)
    }

    /// Launches a forward pass on a stream (`mcdnnRNNForward`).
    ///
    /// # Errors
    /// As [`RnnDescriptor::network`]; `BadParam` if the descriptors are of another network or batch
    /// size than the one that was built, if states have other dimensions, or if a buffer is too
    /// small.
    pub fn rnn_forward(&mut self, stream: &Stream, call: &RnnForward<'_>) -> Result<()> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn forward: {rule}")));
        self.expect(Pass::Forward, call.descriptor, (call.x_desc, call.y_desc))?;
        let (rnn, extent) = (self.rnn(), call.x_desc.extent());
        let count = rnn.layers * rnn.directions();
        let lstm = call.descriptor.get().cell_mode.has_cell_state();
        let [cx, cy] = [call.cx, call.cy].map(|state| state.filter(|_| lstm));
        let states = [
            ("h", call.h_dims, rnn.state_size(), call.hx.or(call.hy)),
            ("c", call.c_dims, rnn.hidden_size, cx.or(cy)),
        ];
        for (name, dims, size, buffer) in states {
            let wanted = [count, extent.batch, size];
            if buffer.is_some() && dims != wanted {
                return bad(format!("{name} has dimensions {dims:?}, expected {wanted:?}"));
            }
        }
        let training = call.mode == ForwardMode::Training;
        if training && call.reserve.is_none() {
            return bad("training needs a reserve space, there is none".to_owned());
        }
        let pack = RnnPack::new()
            .with(Role::Input, call.x)
            .with(Role::Output, call.y)
            .with(Role::Weights, call.weight_space);
        let optional = [
            (Role::Lengths, Some(call.lengths).filter(|_| needs_lengths(call.x_desc))),
            (Role::HInitial, call.hx),
            (Role::HFinal, call.hy),
            (Role::StatesInitial, cx),
            (Role::StatesFinal, cy),
            (Role::Reserve, call.reserve.filter(|_| training)),
        ];
        let pack = pack.completed(&optional, call.workspace);
        self.forward_pass(stream, extent.rows, &pack, true)
    }
}

/// Whether the lengths of sequences do not follow from the number of vectors.
pub(super) fn needs_lengths(x: &RnnDataDescriptor) -> bool {
    x.is_ragged() || x.get().layout == RowLayout::Packed
}
