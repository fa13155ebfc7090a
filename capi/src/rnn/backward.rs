//! Backward passes of recurrent networks, as cuDNN 8 has them.

use kiln::layers::PersistentRnn;
use kiln::rnn::Role;

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray};
use crate::rnn::calls::{Call, Description, Descriptors, Pass, States};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::RnnNetwork;
use crate::status::refuse;
use crate::tensor::Tensor;
use crate::values::WgradMode;

/// The backward pass of the data.
pub const DATA_PASS: Pass = Pass {
    number: 1,
    steps: PersistentRnn::backward_data,
    packed: PersistentRnn::backward_data_packed,
    weights: Role::Weights,
};

/// The backward pass of the weights.
pub const WEIGHTS_PASS: Pass = Pass {
    number: 2,
    steps: PersistentRnn::backward_weights,
    packed: PersistentRnn::backward_weights_packed,
    weights: Role::WeightGradients,
};

functions! { FUNCTIONS:
    /// The backward pass of the data, after a forward pass in training with the same reserve space:
    /// the gradients of x and of the initial states. Gradients of final states that are NULL are 0,
    /// those of initial states that are NULL are not written.
    fn mcdnnRNNBackwardData_v8(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        devSeqLengths: InArray<i32>,
        yDesc: Ref<RnnData>,
        y: Data,
        dy: Data,
        xDesc: Ref<RnnData>,
        dx: DataMut,
        hDesc: Ref<Tensor>,
        hx: Data,
        dhy: Data,
        dhx: DataMut,
        cDesc: Ref<Tensor>,
        cx: Data,
        dcy: Data,
        dcx: DataMut,
        weightSpaceSize: usize,
        weightSpace: Data,
        workSpaceSize: usize,
        workSpace: DataMut,
        reserveSpaceSize: usize,
        reserveSpace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        y.required("y")?;
        let (dy, dx) = (dy.required("dy")?, dx.required("dx")?);
        let weights = weightSpace.required("weightSpace")?;
        let reserve = reserveSpace.required("reserveSpace")?;
        let [hx, dhy, dhx] = [hx.address(), dhy.address(), dhx.address()];
        let [cx, dcy, dcx] = [cx.address(), dcy.address(), dcx.address()];
        let there = (hx | dhy | dhx != 0, cx | dcy | dcx != 0);
        let call = Call {
            handle: &handle,
            description: Description::Live(Descriptors {
                rnn: rnnDesc,
                x: xDesc,
                y: yDesc,
                states: States { descriptors: (hDesc, cDesc), there },
            }),
            lengths: devSeqLengths.address(),
            weights: (weightSpaceSize, weights),
            workspace: (workSpaceSize, workSpace.address()),
            reserve: Some((reserveSpaceSize, reserve)),
        };
        call.launch(&DATA_PASS, &[
            (Role::OutputGradient, dy),
            (Role::InputGradient, dx),
            (Role::HInitial, hx),
            (Role::HFinalGradient, dhy),
            (Role::HInitialGradient, dhx),
            (Role::StatesInitial, cx),
            (Role::StatesFinalGradient, dcy),
            (Role::StatesInitialGradient, dcx),
        ])
    }

    /// The backward pass of the weights, after that of the data with the same reserve space: adds
    /// to the gradients in memory. MCDNN_WGRAD_MODE_SET is not supported, as in cuDNN.
    fn mcdnnRNNBackwardWeights_v8(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        addGrad: WgradMode,
        devSeqLengths: InArray<i32>,
        xDesc: Ref<RnnData>,
        x: Data,
        hDesc: Ref<Tensor>,
        hx: Data,
        yDesc: Ref<RnnData>,
        y: Data,
        weightSpaceSize: usize,
        dweightSpace: DataMut,
        workSpaceSize: usize,
        workSpace: DataMut,
        reserveSpaceSize: usize,
        reserveSpace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        if addGrad.known("addGrad")? == WgradMode::SET {
            return refuse("addGrad is MCDNN_WGRAD_MODE_SET: gradients are added to memory");
        }
        let (x, y) = (x.required("x")?, y.required("y")?);
        let gradients = dweightSpace.required("dweightSpace")?;
        let reserve = reserveSpace.required("reserveSpace")?;
        let hx = hx.address();
        let call = Call {
            handle: &handle,
            description: Description::Live(Descriptors {
                rnn: rnnDesc,
                x: xDesc,
                y: yDesc,
                states: States { descriptors: (hDesc, Ref::NULL), there: (hx != 0, false) },
            }),
            lengths: devSeqLengths.address(),
            weights: (weightSpaceSize, gradients),
            workspace: (workSpaceSize, workSpace.address()),
            reserve: Some((reserveSpaceSize, reserve)),
        };
        call.launch(&WEIGHTS_PASS, &[(Role::Input, x), (Role::Output, y), (Role::HInitial, hx)])
    }
}
