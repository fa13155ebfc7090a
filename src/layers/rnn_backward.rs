//! The backward passes of a recurrent network, and what they ask of its reserve space.

use crate::device::Stream;
use crate::error::{Error, Result};
use crate::layers::reserves::Phase;
use crate::layers::rnn::{PersistentRnn, Vectors};
use crate::layers::rnn_forward::needs_lengths;
use crate::layers::rnn_pack::RnnPack;
use crate::layers::rnn_plans::Pass;
use crate::layers::weight_sum::WeightGradientMode;
use crate::plan::{ExecutionPlan, Memory, Slot};
use crate::rnn::{Optional, RnnDataDescriptor, RnnDescriptor, Role};

/// Arguments of cuDNN's `cudnnRNNBackwardData_v8`; `None` is NULL.
#[derive(Debug, Clone, Copy)]
pub struct RnnBackwardData<'a> {
    /// The network.
    pub descriptor: &'a RnnDescriptor,
    /// The lengths of `x_desc` in device memory, `i32`, as in the forward pass.
    pub lengths: Memory<'a>,
    /// Descriptor of `y` and `dy`.
    pub y_desc: &'a RnnDataDescriptor,
    /// The gradient of `y`; that of steps beyond a sequence's length is ignored.
    pub dy: Memory<'a>,
    /// Descriptor of `x` and `dx`.
    pub x_desc: &'a RnnDataDescriptor,
    /// The gradient of `x`.
    pub dx: Memory<'a>,
    /// `h` before the first step, as in the forward pass.
    pub hx: Option<Memory<'a>>,
    /// The gradient of `h` after the last step; `None`: 0.
    pub dhy: Option<Memory<'a>>,
    /// The gradient of `hx`; `None`: not written.
    pub dhx: Option<Memory<'a>>,
    /// Cell state before the first step, LSTM only.
    pub cx: Option<Memory<'a>>,
    /// The gradient of the cell state after the last step; `None`: 0.
    pub dcy: Option<Memory<'a>>,
    /// The gradient of `cx`; `None`: not written.
    pub dcx: Option<Memory<'a>>,
    /// The weight space.
    pub weight_space: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space that the forward pass wrote.
    pub reserve: Memory<'a>,
}

/// Arguments of cuDNN's `cudnnRNNBackwardWeights_v8`.
#[derive(Debug, Clone, Copy)]
pub struct RnnBackwardWeights<'a> {
    /// The network.
    pub descriptor: &'a RnnDescriptor,
    /// Must be [`WeightGradientMode::Add`].
    pub mode: WeightGradientMode,
    /// The lengths of `x_desc` in device memory, `i32`, as in the forward pass.
    pub lengths: Memory<'a>,
    /// Descriptor of `x`.
    pub x_desc: &'a RnnDataDescriptor,
    /// The input.
    pub x: Memory<'a>,
    /// `h` before the first step, as in the forward pass.
    pub hx: Option<Memory<'a>>,
    /// Descriptor of `y`.
    pub y_desc: &'a RnnDataDescriptor,
    /// The output of the forward pass.
    pub y: Memory<'a>,
    /// The weight space of gradients, to which those of this pass are added.
    pub weight_gradients: Memory<'a>,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<Memory<'a>>,
    /// The reserve space that the backward pass of the data wrote.
    pub reserve: Memory<'a>,
}

impl PersistentRnn {
    /// Launches the backward pass of the data over `steps` time steps on a stream: from
    /// [`Role::OutputGradient`], the gradients of the final states if given, the weights and the
    /// reserve space of a forward pass the gradients of input and initial states. Lengths and
    /// resets are those of the forward pass.
    ///
    /// # Errors
    /// As [`PersistentRnn::forward`]; `BadParam` for a reserve space that no forward pass of this
    /// problem has written.
    pub fn backward_data(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let rows = self.rows(Pass::BackwardData, steps)?;
        self.backward(Pass::BackwardData, stream, rows, pack)
    }

    /// Launches the backward pass of the weights, after that of the data with the same reserve
    /// space: adds to [`Role::WeightGradients`].
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data`]; `BadParam` where that has not run.
    pub fn backward_weights(&mut self, stream: &Stream, steps: i64, pack: &RnnPack) -> Result<()> {
        let rows = self.rows(Pass::BackwardWeights, steps)?;
        self.backward(Pass::BackwardWeights, stream, rows, pack)
    }

    /// As [`PersistentRnn::backward_data`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data`]; `BadParam` for a network that is not packed.
    pub fn backward_data_packed(
        &mut self,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
    ) -> Result<()> {
        self.expect_packed(Pass::BackwardData)?;
        self.backward(Pass::BackwardData, stream, rows, pack)
    }

    /// As [`PersistentRnn::backward_weights`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_weights`]; `BadParam` for a network that is not packed.
    pub fn backward_weights_packed(
        &mut self,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
    ) -> Result<()> {
        self.expect_packed(Pass::BackwardWeights)?;
        self.backward(Pass::BackwardWeights, stream, rows, pack)
    }

    /// The plans of both backward passes over `steps` time steps with these optional tensors of
    /// the forward pass, of the data and of the weights, which are built if necessary.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data`].
    pub fn prepare_backward(
        &mut self,
        steps: i64,
        with: Optional,
    ) -> Result<[Vec<ExecutionPlan>; 2]> {
        let rows = self.rows(Pass::BackwardData, steps)?;
        self.prepared_backward(rows, with)
    }

    /// As [`PersistentRnn::prepare_backward`], for a packed network with `rows` vectors.
    ///
    /// # Errors
    /// As [`PersistentRnn::backward_data_packed`].
    pub fn prepare_backward_packed(
        &mut self,
        rows: i64,
        with: Optional,
    ) -> Result<[Vec<ExecutionPlan>; 2]> {
        self.expect_packed(Pass::BackwardData)?;
        self.prepared_backward(rows, with)
    }

    fn prepared_backward(&mut self, rows: i64, with: Optional) -> Result<[Vec<ExecutionPlan>; 2]> {
        let with = Optional { history: false, reserve: true, ..with };
        let mut plans = |pass| Ok(self.find(pass, rows, with)?.built.plans().cloned().collect());
        Ok([plans(Pass::BackwardData)?, plans(Pass::BackwardWeights)?])
    }

    pub(super) fn backward(
        &mut self,
        pass: Pass,
        stream: &Stream,
        rows: i64,
        pack: &RnnPack,
    ) -> Result<()> {
        let with = pack.optional();
        let with = Optional { history: false, reserve: true, ..with };
        let Some(Slot::Memory { address, .. }) = pack.slots.slot(Role::Reserve) else {
            return Err(Error::bad_param(format!("{}: `reserve` is missing", pass.name())));
        };
        let held = Vectors::new(rows, with);
        let (needed, wanted) = match pass {
            Pass::BackwardWeights => (Phase::Backward, Pass::BackwardData.name()),
            _ => (Phase::Forward, "a forward pass in training"),
        };
        self.reserves.check(pass.name(), address, &held, (needed, wanted))?;
        self.run(pass, stream, (rows, with, false), pack)?;
        self.reserves.record(address, held, Phase::Backward);
        Ok(())
    }

    /// Launches the backward pass of the data by descriptors (`cudnnRNNBackwardData_v8`).
    ///
    /// # Errors
    /// As [`PersistentRnn::rnn_forward`] and [`PersistentRnn::backward_data`].
    pub fn rnn_backward_data(&mut self, stream: &Stream, call: &RnnBackwardData<'_>) -> Result<()> {
        let lstm = call.descriptor.get().cell_mode.has_cell_state();
        let [cx, dcy, dcx] = [call.cx, call.dcy, call.dcx].map(|state| state.filter(|_| lstm));
        let rows = self.expect(Pass::BackwardData, call.descriptor, (call.x_desc, call.y_desc))?;
        let pack = RnnPack::new()
            .with(Role::OutputGradient, call.dy)
            .with(Role::InputGradient, call.dx)
            .with(Role::Weights, call.weight_space)
            .with(Role::Reserve, call.reserve);
        let optional = [
            (Role::Lengths, Some(call.lengths).filter(|_| needs_lengths(call.x_desc))),
            (Role::HInitial, call.hx),
            (Role::HFinalGradient, call.dhy),
            (Role::HInitialGradient, call.dhx),
            (Role::StatesInitial, cx),
            (Role::StatesFinalGradient, dcy),
            (Role::StatesInitialGradient, dcx),
        ];
        let pack = pack.completed(&optional, call.workspace);
        self.backward(Pass::BackwardData, stream, rows, &pack)
    }

    /// Launches the backward pass of the weights by descriptors (`cudnnRNNBackwardWeights_v8`).
    ///
    /// # Errors
    /// As [`PersistentRnn::rnn_forward`] and [`PersistentRnn::backward_weights`]; `NotSupported`
    /// for [`WeightGradientMode::Set`].
    pub fn rnn_backward_weights(
        &mut self,
        stream: &Stream,
        call: &RnnBackwardWeights<'_>,
    ) -> Result<()> {
        if call.mode == WeightGradientMode::Set {
            let name = Pass::BackwardWeights.name();
            let text = format!("{name}: gradients are added to those in memory, not set");
            return Err(Error::not_supported(text));
        }
        let rows =
            self.expect(Pass::BackwardWeights, call.descriptor, (call.x_desc, call.y_desc))?;
        let pack = RnnPack::new()
            .with(Role::Input, call.x)
            .with(Role::Output, call.y)
            .with(Role::WeightGradients, call.weight_gradients)
            .with(Role::Reserve, call.reserve);
        let optional = [
            (Role::Lengths, Some(call.lengths).filter(|_| needs_lengths(call.x_desc))),
            (Role::HInitial, call.hx),
        ];
        let pack = pack.completed(&optional, call.workspace);
        self.backward(Pass::BackwardWeights, stream, rows, &pack)
    }
}
