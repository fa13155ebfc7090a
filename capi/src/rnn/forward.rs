//! Forward passes of recurrent networks, and what they need (sections 6.2.1.2, 6.2.1.29 and
//! 6.2.1.36).

use kiln::graph::RowLayout;
use kiln::layers::{ForwardMode as Forward, PersistentRnn, TempSpace};
use kiln::rnn::Role;

use crate::declare::functions;
use crate::handle::Handle;
use crate::kept::workspace_bytes;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray, Out};
use crate::rnn::calls::{Call, Description, Descriptors, Pass, States};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::{Record, RnnNetwork};
use crate::rnn::values::{ForwardMode, PADDED_IO_ENABLED};
use crate::status::{Outcome, bad};
use crate::tensor::Tensor;

/// The forward pass.
pub const FORWARD_PASS: Pass = Pass {
    number: 0,
    steps: PersistentRnn::forward,
    packed: PersistentRnn::forward_packed,
    weights: Role::Weights,
};

/// Sizes of temporary memory for vectors of `x`.
pub fn temp_space(
    handle: &Handle,
    record: &Record,
    x: &RnnData,
    training: bool,
) -> Outcome<TempSpace> {
    x.with("xDesc", |x| {
        let rnn = record.descriptor()?.rnn().layout(x.get().layout);
        handle.network(&rnn, x.extent().batch, |network| network.temp_space(x, training))
    })
}

functions! { FUNCTIONS:
    /// Compiles the kernels of a network for a number of sequences, or finds them in a cache
    /// (6.2.1.2): those of inference for sequences step by step, which without padded input and
    /// output are packed.
    fn mcdnnBuildRNNDynamic(handle: Ref<Handle>, rnnDesc: Ref<RnnNetwork>, miniBatch: i32) {
        let handle = handle.get("handle")?;
        let record = rnnDesc.get("rnnDesc")?.v8()?;
        if miniBatch < 1 {
            return bad(format!("miniBatch is {miniBatch}, expected at least 1"));
        }
        let layout = match record.aux_flags {
            PADDED_IO_ENABLED => RowLayout::SequenceMajor,
            _ => RowLayout::Packed,
        };
        let rnn = record.descriptor()?.rnn().layout(layout);
        handle.network(&rnn, miniBatch.into(), |network| network.prepare())
    }

    /// Bytes of the workspace, and in training of the reserve space, for vectors as described
    /// (6.2.1.29).
    fn mcdnnGetRNNTempSpaceSizes(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        fwdMode: ForwardMode,
        xDesc: Ref<RnnData>,
        workSpaceSize: Out<usize>,
        reserveSpaceSize: Out<usize>,
    ) {
        let handle = handle.get("handle")?;
        let record = rnnDesc.get("rnnDesc")?.v8()?;
        let training = fwdMode.forward()? == Forward::Training;
        let x = xDesc.get("xDesc")?;
        let sizes = temp_space(&handle, &record, &x, training)?;
        workSpaceSize.put(workspace_bytes(sizes.workspace_bytes) as usize);
        reserveSpaceSize.put(sizes.reserve_bytes as usize);
        Ok(())
    }

    /// The forward pass (6.2.1.36), queued on the handle's stream. Initial states that are NULL are
    /// 0, final ones that are NULL are not written. devSeqLengths are the lengths of the sequences
    /// in device memory; with NULL, those of xDesc.
    fn mcdnnRNNForward(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        fwdMode: ForwardMode,
        devSeqLengths: InArray<i32>,
        xDesc: Ref<RnnData>,
        x: Data,
        yDesc: Ref<RnnData>,
        y: DataMut,
        hDesc: Ref<Tensor>,
        hx: Data,
        hy: DataMut,
        cDesc: Ref<Tensor>,
        cx: Data,
        cy: DataMut,
        weightSpaceSize: usize,
        weightSpace: Data,
        workSpaceSize: usize,
        workSpace: DataMut,
        reserveSpaceSize: usize,
        reserveSpace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        let training = fwdMode.forward()? == Forward::Training;
        let (x, y) = (x.required("x")?, y.required("y")?);
        let weights = weightSpace.required("weightSpace")?;
        let reserve = match training {
            true => Some((reserveSpaceSize, reserveSpace.required("reserveSpace")?)),
            false => None,
        };
        let [hx, hy, cx, cy] = [hx.address(), hy.address(), cx.address(), cy.address()];
        let there = (hx | hy != 0, cx | cy != 0);
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
            reserve,
        };
        call.launch(&FORWARD_PASS, &[
            (Role::Input, x),
            (Role::Output, y),
            (Role::HInitial, hx),
            (Role::HFinal, hy),
            (Role::StatesInitial, cx),
            (Role::StatesFinal, cy),
        ])
    }
}
