//! Forward passes of the old interface: of a descriptor for each step, and, extended, of vectors as
//! the live interface describes them.

use kiln::rnn::Role;

use crate::algorithm::{Algorithm, AlgorithmPerformance, put_only};
use crate::declare::functions;
use crate::filter::Filter;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray, Out};
use crate::rnn::calls::{Call, Described, Description, Pass, States};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::RnnNetwork;
use crate::rnn::forward::FORWARD_PASS;
use crate::rnn::legacy_data::Steps;
use crate::status::{Outcome, bad};
use crate::tensor::Tensor;

/// A tensor of states with its descriptor.
#[derive(Clone, Copy)]
pub struct State {
    /// Its descriptor.
    pub descriptor: Ref<Tensor>,
    /// Its address; 0 is NULL.
    pub address: u64,
}

impl State {
    /// One that is read.
    pub fn read(descriptor: Ref<Tensor>, data: Data) -> State {
        State { descriptor, address: data.address() }
    }

    /// One that is written.
    pub fn written(descriptor: Ref<Tensor>, data: DataMut) -> State {
        State { descriptor, address: data.address() }
    }
}

/// How vectors are described.
#[derive(Clone, Copy)]
pub enum Vectors {
    /// By a tensor descriptor for each step.
    Steps(i32, InArray<Ref<Tensor>>),
    /// As in the live interface.
    Data(Ref<RnnData>),
}

/// What a pass of the old interface is given.
pub struct Given {
    /// The handle.
    pub handle: Ref<Handle>,
    /// The network.
    pub rnn: Ref<RnnNetwork>,
    /// Vectors of `x`.
    pub x: Vectors,
    /// Vectors of `y`.
    pub y: Vectors,
    /// Weights, or their gradients, with their descriptor.
    pub weights: (Ref<Filter>, u64),
    /// Size and address.
    pub workspace: (usize, u64),
    /// Size and address; none in inference.
    pub reserve: Option<(usize, u64)>,
}

impl Given {
    /// Launches a pass on tensors, of which those at 0 are left out, with states in pairs of `h`
    /// and `c`.
    pub fn launch(
        self,
        pass: &Pass,
        states: &[(State, State)],
        tensors: &[(Role, u64)],
    ) -> Outcome {
        let handle = self.handle.get("handle")?;
        let rnn = self.rnn.get("rnnDesc")?;
        let weight_bytes = self.weights.0.get("wDesc")?.0.read().bytes();
        if self.weights.1 == 0 {
            return bad("w is NULL");
        }
        if self.reserve.is_some_and(|(_, address)| address == 0) {
            return bad("reserveSpace is NULL");
        }
        let launch = |x: &RnnData, y: &RnnData, (data_type, size)| {
            let record = rnn.with_input(data_type, size)?;
            let states = states.iter().map(|(h, c)| States {
                descriptors: (h.descriptor, c.descriptor),
                there: (h.address != 0, c.address != 0),
            });
            let call = Call {
                handle: &handle,
                description: Description::Old(Described {
                    record,
                    states: &states.collect::<Vec<_>>(),
                    x,
                    y,
                }),
                lengths: 0,
                weights: (weight_bytes, self.weights.1),
                workspace: self.workspace,
                reserve: self.reserve,
            };
            call.launch(pass, tensors)
        };
        match (self.x, self.y) {
            (Vectors::Steps(count, x), Vectors::Steps(_, y)) => {
                let (x, y) = (Steps::read(count, x, "xDesc")?, Steps::read(count, y, "yDesc")?);
                launch(&x.data, &y.data, (x.data_type, x.size))
            }
            (Vectors::Data(x), Vectors::Data(y)) => {
                let (x, y) = (x.get("xDesc")?, y.get("yDesc")?);
                let input = x.input();
                launch(&x, &y, input)
            }
            _ => bad("xDesc and yDesc are described in two ways"),
        }
    }
}

/// Tensors of a forward pass.
struct Forward {
    x: Data,
    y: DataMut,
    hx: State,
    cx: State,
    hy: State,
    cy: State,
}

impl Forward {
    fn launch(self, given: Given) -> Outcome {
        let (x, y) = (self.x.required("x")?, self.y.required("y")?);
        let states = [(self.hx, self.cx), (self.hy, self.cy)];
        given.launch(
            &FORWARD_PASS,
            &states,
            &[
                (Role::Input, x),
                (Role::Output, y),
                (Role::HInitial, self.hx.address),
                (Role::HFinal, self.hy.address),
                (Role::StatesInitial, self.cx.address),
                (Role::StatesFinal, self.cy.address),
            ],
        )
    }
}

functions! { FUNCTIONS:
    /// The forward pass in inference, with a descriptor for each step.
    fn mcdnnRNNForwardInference(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        wDesc: Ref<Filter>,
        w: Data,
        yDesc: InArray<Ref<Tensor>>,
        y: DataMut,
        hyDesc: Ref<Tensor>,
        hy: DataMut,
        cyDesc: Ref<Tensor>,
        cy: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
    ) {
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Steps(seqLength, xDesc),
            y: Vectors::Steps(seqLength, yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: None,
        };
        let (hx, cx) = (State::read(hxDesc, hx), State::read(cxDesc, cx));
        let (hy, cy) = (State::written(hyDesc, hy), State::written(cyDesc, cy));
        Forward { x, y, hx, cx, hy, cy }.launch(given)
    }

    /// The forward pass in inference. Keys, queries and attention are not used and may be NULL.
    fn mcdnnRNNForwardInferenceEx(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        xDesc: Ref<RnnData>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        wDesc: Ref<Filter>,
        w: Data,
        yDesc: Ref<RnnData>,
        y: DataMut,
        hyDesc: Ref<Tensor>,
        hy: DataMut,
        cyDesc: Ref<Tensor>,
        cy: DataMut,
        kDesc: Ref<RnnData>,
        keys: Data,
        cDesc: Ref<RnnData>,
        cAttn: DataMut,
        iDesc: Ref<RnnData>,
        iAttn: DataMut,
        qDesc: Ref<RnnData>,
        queries: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
    ) {
        let _ = (kDesc, keys, cDesc, cAttn, iDesc, iAttn, qDesc, queries);
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Data(xDesc),
            y: Vectors::Data(yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: None,
        };
        let (hx, cx) = (State::read(hxDesc, hx), State::read(cxDesc, cx));
        let (hy, cy) = (State::written(hyDesc, hy), State::written(cyDesc, cy));
        Forward { x, y, hx, cx, hy, cy }.launch(given)
    }

    /// The forward pass in training, with a descriptor for each step.
    fn mcdnnRNNForwardTraining(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        wDesc: Ref<Filter>,
        w: Data,
        yDesc: InArray<Ref<Tensor>>,
        y: DataMut,
        hyDesc: Ref<Tensor>,
        hy: DataMut,
        cyDesc: Ref<Tensor>,
        cy: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
    ) {
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Steps(seqLength, xDesc),
            y: Vectors::Steps(seqLength, yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        let (hx, cx) = (State::read(hxDesc, hx), State::read(cxDesc, cx));
        let (hy, cy) = (State::written(hyDesc, hy), State::written(cyDesc, cy));
        Forward { x, y, hx, cx, hy, cy }.launch(given)
    }

    /// The forward pass in training. Keys, queries and attention are not used and may be NULL.
    fn mcdnnRNNForwardTrainingEx(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        xDesc: Ref<RnnData>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        wDesc: Ref<Filter>,
        w: Data,
        yDesc: Ref<RnnData>,
        y: DataMut,
        hyDesc: Ref<Tensor>,
        hy: DataMut,
        cyDesc: Ref<Tensor>,
        cy: DataMut,
        kDesc: Ref<RnnData>,
        keys: Data,
        cDesc: Ref<RnnData>,
        cAttn: DataMut,
        iDesc: Ref<RnnData>,
        iAttn: DataMut,
        qDesc: Ref<RnnData>,
        queries: DataMut,
        workSpace: DataMut,
        workSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
    ) {
        let _ = (kDesc, keys, cDesc, cAttn, iDesc, iAttn, qDesc, queries);
        let given = Given {
            handle,
            rnn: rnnDesc,
            x: Vectors::Data(xDesc),
            y: Vectors::Data(yDesc),
            weights: (wDesc, w.address()),
            workspace: (workSpaceSizeInBytes, workSpace.address()),
            reserve: Some((reserveSpaceSizeInBytes, reserveSpace.address())),
        };
        let (hx, cx) = (State::read(hxDesc, hx), State::read(cxDesc, cx));
        let (hy, cy) = (State::written(hyDesc, hy), State::written(cyDesc, cy));
        Forward { x, y, hx, cx, hy, cy }.launch(given)
    }

    /// The algorithms of the forward pass: the one of the network. Nothing is run.
    fn mcdnnFindRNNForwardInferenceAlgorithmEx(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        x: Data,
        hxDesc: Ref<Tensor>,
        hx: Data,
        cxDesc: Ref<Tensor>,
        cx: Data,
        wDesc: Ref<Filter>,
        w: Data,
        yDesc: InArray<Ref<Tensor>>,
        y: DataMut,
        hyDesc: Ref<Tensor>,
        hy: DataMut,
        cyDesc: Ref<Tensor>,
        cy: DataMut,
        findIntensity: f32,
        requestedAlgoCount: i32,
        returnedAlgoCount: Out<i32>,
        perfResults: Out<Ref<AlgorithmPerformance>>,
        workspace: DataMut,
        workSpaceSizeInBytes: usize,
    ) {
        let _ = (x, hxDesc, hx, cxDesc, cx, w, y, hyDesc, hy, cyDesc, cy, findIntensity);
        let _ = (workspace, workSpaceSizeInBytes);
        handle.get("handle")?;
        let rnn = rnnDesc.get("rnnDesc")?;
        let x = Steps::read(seqLength, xDesc, "xDesc")?;
        Steps::read(seqLength, yDesc, "yDesc")?;
        wDesc.get("wDesc")?;
        let record = rnn.with_input(x.data_type, x.size)?;
        let returned = returnedAlgoCount.required("returnedAlgoCount")?;
        let results = perfResults.required("perfResults")?;
        returned.put(put_only(results, Algorithm(record.algo.0), requestedAlgoCount)?);
        Ok(())
    }
}
