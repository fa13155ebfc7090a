//! Backward passes of the old interface.

use kiln::rnn::Role;

use crate::declare::functions;
use crate::filter::Filter;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray};
use crate::rnn::backward::{DATA_PASS, WEIGHTS_PASS};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::RnnNetwork;
use crate::rnn::legacy_forward::{Given, State, Vectors};
use crate::status::Outcome;
use crate::tensor::Tensor;

/// States of a backward pass of the data, in pairs of `h` and `c`.
struct States {
    initial: (State, State),
    final_gradients: (State, State),
    initial_gradients: (State, State),
}

fn data(given: Given, dy: Data, dx: DataMut, states: States) -> Outcome {
    let (dy, dx) = (dy.required("dy")?, dx.required("dx")?);
    let States { initial, final_gradients, initial_gradients } = states;
    given.launch(
        &DATA_PASS,
        &[initial, final_gradients, initial_gradients],
        &[
            (Role::OutputGradient, dy),
            (Role::InputGradient, dx),
            (Role::HInitial, initial.0.address),
            (Role::StatesInitial, initial.1.address),
            (Role::HFinalGradient, final_gradients.0.address),
            (Role::StatesFinalGradient, final_gradients.1.address),
            (Role::HInitialGradient, initial_gradients.0.address),
            (Role::StatesInitialGradient, initial_gradients.1.address),
        ],
    )
}

fn weights(given: Given, x: Data, hx: State, y: Data) -> Outcome {
    let (x, y) = (x.required("x")?, y.required("y")?);
    let none = State { descriptor: Ref::NULL, address: 0 };
    given.launch(
        &WEIGHTS_PASS,
        &[(hx, none)],
        &[(Role::Input, x), (Role::Output, y), (Role::HInitial, hx.address)],
    )
}

functions! { FUNCTIONS:
    /// The backward pass of the data, with a descriptor for each step.
    fn mcdnnRNNBackwardData(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        yDesc: InArray<Ref<Tensor>>,
        y: Data,
        dyDesc: InArray<Ref<Tensor>>,
        dy: Data,
        dhyDesc: Ref<Tensor>,
        dhy: Data,
        dcyDesc: Ref<Tensor>,
        dcy: Data,
        wDesc: Ref<Filter>,
        w: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        dxDesc: InArray<Ref<Tensor>>,
        dx: DataMut,
        dhxDesc: Ref<Tensor>,
        dhx: DataMut,
        dcxDesc: Ref<Tensor>,
        dcx: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
    ) {
        let _ = (dyDesc, y);
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Steps(seqLength, dxDesc),
            y: Vectors::Steps(seqLength, yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        data(given, dy, dx, States {
            initial: (State::read(hxDesc, hx), State::read(cxDesc, cx)),
            final_gradients: (State::read(dhyDesc, dhy), State::read(dcyDesc, dcy)),
            initial_gradients: (State::written(dhxDesc, dhx), State::written(dcxDesc, dcx)),
        })
    }

    /// The backward pass of the data. Keys and attention are not used and may be NULL.
    fn mcdnnRNNBackwardDataEx(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        yDesc: Ref<RnnData>,
        y: Data,
        dyDesc: Ref<RnnData>,
        dy: Data,
        dcDesc: Ref<RnnData>,
        dcAttn: Data,
        dhyDesc: Ref<Tensor>,
        dhy: Data,
        dcyDesc: Ref<Tensor>,
        dcy: Data,
        wDesc: Ref<Filter>,
        w: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        dxDesc: Ref<RnnData>,
        dx: DataMut,
        dhxDesc: Ref<Tensor>,
        dhx: DataMut,
        dcxDesc: Ref<Tensor>,
        dcx: DataMut,
        dkDesc: Ref<RnnData>,
        dkeys: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
    ) {
        let _ = (dyDesc, y, dcDesc, dcAttn, dkDesc, dkeys);
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Data(dxDesc),
            y: Vectors::Data(yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        data(given, dy, dx, States {
            initial: (State::read(hxDesc, hx), State::read(cxDesc, cx)),
            final_gradients: (State::read(dhyDesc, dhy), State::read(dcyDesc, dcy)),
            initial_gradients: (State::written(dhxDesc, dhx), State::written(dcxDesc, dcx)),
        })
    }

    /// The backward pass of the weights, with a descriptor for each step: adds to those in memory.
    fn mcdnnRNNBackwardWeights(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        yDesc: InArray<Ref<Tensor>>,
        y: Data,
        workSpace: Data,
        workSpaceSizeInBytes: usize,
        dwDesc: Ref<Filter>,
        dw: DataMut,
        reserveSpace: Data,
        reserveSpaceSizeInBytes: usize,
    ) {
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Steps(seqLength, xDesc),
            y: Vectors::Steps(seqLength, yDesc),
            weights: (dwDesc, dw.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        weights(given, x, State::read(hxDesc, hx), y)
    }

    /// The backward pass of the weights: adds to those in memory.
    fn mcdnnRNNBackwardWeightsEx(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        xDesc: Ref<RnnData>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        yDesc: Ref<RnnData>,
        y: Data,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
        dwDesc: Ref<Filter>,
        dw: DataMut,
        reserveSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
    ) {
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Data(xDesc),
            y: Vectors::Data(yDesc),
            weights: (dwDesc, dw.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        weights(given, x, State::read(hxDesc, hx), y)
    }
}
