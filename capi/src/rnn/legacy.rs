//! Settings of the old interface: each is a field of what an RNN descriptor says.

use crate::algorithm::{Algorithm, AlgorithmDescriptor};
use crate::declare::functions;
use crate::dropout::Dropout;
use crate::handle::Handle;
use crate::object::{Ref, object};
use crate::pointer::Out;
use crate::rnn::descriptor::{Clip, Record, RnnNetwork, SetBy, get_clip, set_clip};
use crate::rnn::values::{
    DirectionMode, PADDED_IO_ENABLED, RnnAlgorithm, RnnBiasMode, RnnClipMode, RnnInputMode, RnnMode,
};
use crate::status::{Outcome, bad, refuse};
use crate::values::{DataType, MathType, NanPropagation};

/// `mcdnnPersistentRNNPlan_t`: that a network is to be built for a number of sequences.
#[derive(Debug)]
pub struct PersistentPlan;
object!(PersistentPlan: "mcdnnPersistentRNNPlan_t", "persistent RNN plan", 10);

/// Changes what a descriptor says.
fn change(rnn: Ref<RnnNetwork>, change: impl FnOnce(&mut Record)) -> Outcome {
    let rnn = rnn.get("rnnDesc")?;
    rnn.0.change(change);
    Ok(())
}

/// What a descriptor says.
fn said(rnn: Ref<RnnNetwork>) -> Outcome<Record> {
    Ok(*rnn.get("rnnDesc")?.0.read())
}

/// The number of algorithms of a pass: one.
fn one(handle: Ref<Handle>, rnn: Ref<RnnNetwork>, count: Out<i32>) -> Outcome {
    handle.get("handle")?;
    rnn.get("rnnDesc")?;
    count.required("count")?.put(1);
    Ok(())
}

functions! { FUNCTIONS:
    /// Describes a network but for the size of its input, which it learns when it is used.
    fn mcdnnSetRNNDescriptor_v6(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        hiddenSize: i32,
        numLayers: i32,
        dropoutDesc: Ref<Dropout>,
        inputMode: RnnInputMode,
        direction: DirectionMode,
        cellMode: RnnMode,
        algo: RnnAlgorithm,
        mathPrec: DataType,
    ) {
        handle.get("handle")?;
        let rnn = rnnDesc.get("rnnDesc")?;
        for (name, size) in [("hiddenSize", hiddenSize), ("numLayers", numLayers)] {
            if size < 1 {
                return bad(format!("{name} is {size}, expected at least 1"));
            }
        }
        inputMode.input()?;
        direction.direction()?;
        cellMode.cell()?;
        algo.algorithm()?;
        mathPrec.known("mathPrec")?.dtype("mathPrec")?;
        rnn.0.change(|record| {
            *record = Record {
                set_by: SetBy::V6,
                hidden_size: hiddenSize,
                proj_size: hiddenSize,
                layers: numLayers,
                dropout: dropoutDesc,
                input: inputMode,
                direction,
                cell: cellMode,
                algo,
                math_prec: mathPrec,
                quantization: None,
                ..*record
            };
        });
        Ok(())
    }

    /// What mcdnnSetRNNDescriptor_v6 has set.
    fn mcdnnGetRNNDescriptor_v6(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        hiddenSize: Out<i32>,
        numLayers: Out<i32>,
        dropoutDesc: Out<Ref<Dropout>>,
        inputMode: Out<RnnInputMode>,
        direction: Out<DirectionMode>,
        cellMode: Out<RnnMode>,
        algo: Out<RnnAlgorithm>,
        mathPrec: Out<DataType>,
    ) {
        handle.get("handle")?;
        let record = said(rnnDesc)?;
        let hiddenSize = hiddenSize.required("hiddenSize")?;
        let numLayers = numLayers.required("numLayers")?;
        let dropoutDesc = dropoutDesc.required("dropoutDesc")?;
        let inputMode = inputMode.required("inputMode")?;
        let direction = direction.required("direction")?;
        let cellMode = cellMode.required("cellMode")?;
        let algo = algo.required("algo")?;
        mathPrec.required("mathPrec")?.put(record.math_prec);
        hiddenSize.put(record.hidden_size);
        numLayers.put(record.layers);
        dropoutDesc.put(record.dropout);
        inputMode.put(record.input);
        direction.put(record.direction);
        cellMode.put(record.cell);
        algo.put(record.algo);
        Ok(())
    }

    /// Sets the biases.
    fn mcdnnSetRNNBiasMode(rnnDesc: Ref<RnnNetwork>, biasMode: RnnBiasMode) {
        biasMode.known("biasMode")?;
        change(rnnDesc, |record| record.bias = biasMode)
    }

    /// The biases.
    fn mcdnnGetRNNBiasMode(rnnDesc: Ref<RnnNetwork>, biasMode: Out<RnnBiasMode>) {
        let record = said(rnnDesc)?;
        biasMode.required("biasMode")?.put(record.bias);
        Ok(())
    }

    /// Sets whether tensor cores may be used.
    fn mcdnnSetRNNMatrixMathType(rnnDesc: Ref<RnnNetwork>, mType: MathType) {
        mType.known("mType")?;
        change(rnnDesc, |record| record.math_type = mType)
    }

    /// Whether tensor cores may be used.
    fn mcdnnGetRNNMatrixMathType(rnnDesc: Ref<RnnNetwork>, mType: Out<MathType>) {
        let record = said(rnnDesc)?;
        mType.required("mType")?.put(record.math_type);
        Ok(())
    }

    /// Sets whether inputs and outputs may be padded, of type mcdnnRNNPaddingMode_t.
    fn mcdnnSetRNNPaddingMode(rnnDesc: Ref<RnnNetwork>, paddingMode: u32) {
        if paddingMode > PADDED_IO_ENABLED {
            return bad(format!("paddingMode is {paddingMode}, expected 0 or 1"));
        }
        change(rnnDesc, |record| record.aux_flags = paddingMode)
    }

    /// Whether inputs and outputs may be padded, of type mcdnnRNNPaddingMode_t.
    fn mcdnnGetRNNPaddingMode(rnnDesc: Ref<RnnNetwork>, paddingMode: Out<u32>) {
        let record = said(rnnDesc)?;
        paddingMode.required("paddingMode")?.put(record.aux_flags & PADDED_IO_ENABLED);
        Ok(())
    }

    /// Sets the size of the projected h; outProjSize must be 0.
    fn mcdnnSetRNNProjectionLayers(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        recProjSize: i32,
        outProjSize: i32,
    ) {
        handle.get("handle")?;
        let record = said(rnnDesc)?;
        if recProjSize < 0 || outProjSize < 0 {
            return bad(format!("recProjSize is {recProjSize}, outProjSize {outProjSize}"));
        }
        if outProjSize != 0 {
            return refuse(format!("outProjSize is {outProjSize}, expected 0"));
        }
        if recProjSize > record.hidden_size {
            let hidden = record.hidden_size;
            return refuse(format!("recProjSize is {recProjSize}, hiddenSize {hidden}"));
        }
        let size = if recProjSize == 0 { record.hidden_size } else { recProjSize };
        change(rnnDesc, |record| record.proj_size = size)
    }

    /// The size of the projected h, which without a projection is hiddenSize; outProjSize is 0.
    fn mcdnnGetRNNProjectionLayers(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        recProjSize: Out<i32>,
        outProjSize: Out<i32>,
    ) {
        handle.get("handle")?;
        let record = said(rnnDesc)?;
        let recProjSize = recProjSize.required("recProjSize")?;
        outProjSize.required("outProjSize")?.put(0);
        recProjSize.put(record.proj_size);
        Ok(())
    }

    /// As mcdnnRNNSetClip_v8.
    fn mcdnnRNNSetClip(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        clipMode: RnnClipMode,
        clipNanOpt: NanPropagation,
        lclip: f64,
        rclip: f64,
    ) {
        handle.get("handle")?;
        set_clip(rnnDesc, Clip { mode: clipMode, nan: clipNanOpt, left: lclip, right: rclip })
    }

    /// As mcdnnRNNGetClip_v8.
    fn mcdnnRNNGetClip(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        clipMode: Out<RnnClipMode>,
        clipNanOpt: Out<NanPropagation>,
        lclip: Out<f64>,
        rclip: Out<f64>,
    ) {
        handle.get("handle")?;
        get_clip(rnnDesc, clipMode, clipNanOpt, (lclip, rclip))
    }

    /// Sets the algorithm.
    fn mcdnnSetRNNAlgorithmDescriptor(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        algoDesc: Ref<AlgorithmDescriptor>,
    ) {
        handle.get("handle")?;
        let Algorithm(number) = algoDesc.get("algoDesc")?.algorithm();
        RnnAlgorithm(number).algorithm()?;
        change(rnnDesc, |record| record.algo = RnnAlgorithm(number))
    }

    /// The number of algorithms of the forward pass.
    fn mcdnnGetRNNForwardInferenceAlgorithmMaxCount(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        count: Out<i32>,
    ) {
        one(handle, rnnDesc, count)
    }

    /// The number of algorithms of the backward pass of the weights.
    fn mcdnnGetRNNBackwardWeightsAlgorithmMaxCount(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        count: Out<i32>,
    ) {
        one(handle, rnnDesc, count)
    }

    /// Plans a network of the dynamic algorithm for a number of sequences. Its kernels are built by
    /// the first call, as its input is not known.
    fn mcdnnCreatePersistentRNNPlan(
        rnnDesc: Ref<RnnNetwork>,
        minibatch: i32,
        dataType: DataType,
        plan: Out<Ref<PersistentPlan>>,
    ) {
        let record = said(rnnDesc)?;
        dataType.known("dataType")?.dtype("dataType")?;
        if minibatch < 1 {
            return bad(format!("minibatch is {minibatch}, expected at least 1"));
        }
        if record.algo != RnnAlgorithm::PERSIST_DYNAMIC {
            return refuse("rnnDesc is not of MCDNN_RNN_ALGO_PERSIST_DYNAMIC");
        }
        plan.required("plan")?.put(Ref::new(PersistentPlan)?);
        Ok(())
    }

    /// Gives a network a plan.
    fn mcdnnSetPersistentRNNPlan(rnnDesc: Ref<RnnNetwork>, plan: Ref<PersistentPlan>) {
        said(rnnDesc)?;
        plan.get("plan")?;
        Ok(())
    }

    /// Destroys a plan; NULL is none.
    fn mcdnnDestroyPersistentRNNPlan(plan: Ref<PersistentPlan>) {
        plan.destroy("plan")
    }
}
