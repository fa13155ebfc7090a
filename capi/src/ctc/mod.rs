//! CTC losses.
//!
//! mcDNN's document names them. What they mean here, as torch and others call cuDNN's:
//!
//! * `cudnnLossNormalizationMode_t`: without normalisation probabilities are given, and gradients
//!   are by the activations of the softmax that gave them; with `SOFTMAX` activations are given.
//! * `cudnnSetCTCLossDescriptorEx`, `gradMode`: of a label that with its repeats is longer than
//!   its input, `NOT_PROPAGATE_NAN` sets cost and gradient to 0; with `PROPAGATE_NAN` the cost is
//!   infinite and the gradient is not written.
//! * `cudnnCTCLoss`: labels lie one behind the other, are at most 255, and are no blank, class 0;
//!   labels and lengths are in host memory, for `cudnnCTCLoss_v8` in device memory.
//! * `cudnnGetCTCLossWorkspaceSize`: without `gradientsDesc` there are costs alone.
//! * `cudnnCTCLossAlgo_t`: one algorithm is deterministic; here it is both.
//!
//! Computed is in `MCDNN_DATA_FLOAT` alone, of probabilities and gradients that may have 16 bits.
//! A sequence whose lengths or labels in device memory break a rule has NaN.

mod loss;

pub use loss::PlannedLoss;

use crate::algorithm::CtcLossAlgorithm;
use crate::ctc::loss::{Call, HostLabels, LABELS_MAX, Shape};
use crate::declare::{enumeration, functions};
use crate::handle::Handle;
use crate::object::{Ref, Settable, object};
use crate::pointer::{Data, DataMut, InArray, Out};
use crate::status::{Outcome, bad};
use crate::tensor::Tensor;
use crate::values::{DataType, NanPropagation};

enumeration! {
    /// Whether probabilities are normalised first.
    mcdnnLossNormalizationMode_t LossNormalizationMode "MCDNN_LOSS_NORMALIZATION_" {
        NONE = 0, SOFTMAX = 1,
    }
}

/// `mcdnnCTCLossDescriptor_t`.
#[derive(Debug, Default)]
pub struct CtcLoss(Settable<Loss>);
object!(CtcLoss: "mcdnnCTCLossDescriptor_t", "CTC loss descriptor", 14);

/// What a descriptor says.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    data_type: DataType,
    normalization: LossNormalizationMode,
    gradient: NanPropagation,
    label_length_max: i32,
}

impl Default for Loss {
    fn default() -> Loss {
        Loss {
            data_type: DataType::FLOAT,
            normalization: LossNormalizationMode::NONE,
            gradient: NanPropagation::NOT_PROPAGATE_NAN,
            label_length_max: 0,
        }
    }
}

fn set(descriptor: Ref<CtcLoss>, loss: Loss) -> Outcome {
    let descriptor = descriptor.get("ctcLossDesc")?;
    if loss.data_type != DataType::FLOAT {
        return bad("compType is not MCDNN_DATA_FLOAT");
    }
    loss.normalization.known("normMode")?;
    loss.gradient.known("gradMode")?;
    if !(0..=LABELS_MAX).contains(&loss.label_length_max) {
        let given = loss.label_length_max;
        return bad(format!("maxLabelLength is {given}, expected at most {LABELS_MAX}"));
    }
    descriptor.0.set(loss);
    Ok(())
}

/// The longest label of a descriptor that says none.
fn label_length_max(loss: &Loss) -> i32 {
    if loss.label_length_max == 0 { LABELS_MAX } else { loss.label_length_max }
}

/// The loss of a descriptor, and the labels of a call in host memory.
fn of_host(
    descriptor: Ref<CtcLoss>,
    (probs, gradients): (Ref<Tensor>, Ref<Tensor>),
    labels: InArray<i32>,
    label_lengths: InArray<i32>,
    input_lengths: InArray<i32>,
) -> Outcome<(Shape, HostLabels)> {
    let loss = *descriptor.get("ctcLossDesc")?.0.read();
    let sequences = Shape::of(&loss, LABELS_MAX, probs, gradients)?.sequences();
    let host = HostLabels::new(
        |count| labels.all(count, "labels"),
        label_lengths.all(sequences, "labelLengths")?,
        input_lengths.all(sequences, "inputLengths")?,
    )?;
    let shape = Shape::of(&loss, host.label_length_max(), probs, gradients)?;
    shape.check(&host)?;
    Ok((shape, host))
}

/// The addresses of a call's other arguments.
fn call(
    shape: &Shape,
    probs: Data,
    (costs, gradients): (DataMut, DataMut),
    workspace: (DataMut, usize),
) -> Outcome<Call> {
    let gradients = match shape.has_gradients() {
        true => gradients.required("gradients")?,
        false => 0,
    };
    let (probs, costs) = (probs.required("probs")?, costs.required("costs")?);
    Ok(Call { probs, costs, gradients, workspace: (workspace.0.address(), workspace.1) })
}

functions! { FUNCTIONS:
    /// Makes a CTC loss descriptor.
    fn mcdnnCreateCTCLossDescriptor(ctcLossDesc: Out<Ref<CtcLoss>>) {
        let place = ctcLossDesc.required("ctcLossDesc")?;
        place.put(Ref::new(CtcLoss::default())?);
        Ok(())
    }

    /// Destroys a CTC loss descriptor; NULL is none.
    fn mcdnnDestroyCTCLossDescriptor(ctcLossDesc: Ref<CtcLoss>) {
        ctcLossDesc.destroy("ctcLossDesc")
    }

    /// Sets the type of the computation: MCDNN_DATA_FLOAT.
    fn mcdnnSetCTCLossDescriptor(ctcLossDesc: Ref<CtcLoss>, compType: DataType) {
        set(ctcLossDesc, Loss { data_type: compType, ..Loss::default() })
    }

    /// As mcdnnSetCTCLossDescriptor, with what is done to probabilities and to NaN in gradients.
    fn mcdnnSetCTCLossDescriptorEx(
        ctcLossDesc: Ref<CtcLoss>,
        compType: DataType,
        normMode: LossNormalizationMode,
        gradMode: NanPropagation,
    ) {
        let loss = Loss { data_type: compType, ..Loss::default() };
        set(ctcLossDesc, Loss { normalization: normMode, gradient: gradMode, ..loss })
    }

    /// As mcdnnSetCTCLossDescriptorEx, with the longest label of a sequence.
    fn mcdnnSetCTCLossDescriptor_v8(
        ctcLossDesc: Ref<CtcLoss>,
        compType: DataType,
        normMode: LossNormalizationMode,
        gradMode: NanPropagation,
        maxLabelLength: i32,
    ) {
        set(ctcLossDesc, Loss {
            data_type: compType,
            normalization: normMode,
            gradient: gradMode,
            label_length_max: maxLabelLength,
        })
    }

    /// The type of the computation.
    fn mcdnnGetCTCLossDescriptor(ctcLossDesc: Ref<CtcLoss>, compType: Out<DataType>) {
        compType.put(ctcLossDesc.get("ctcLossDesc")?.0.read().data_type);
        Ok(())
    }

    /// What mcdnnSetCTCLossDescriptorEx has set.
    fn mcdnnGetCTCLossDescriptorEx(
        ctcLossDesc: Ref<CtcLoss>,
        compType: Out<DataType>,
        normMode: Out<LossNormalizationMode>,
        gradMode: Out<NanPropagation>,
    ) {
        let own = *ctcLossDesc.get("ctcLossDesc")?.0.read();
        compType.put(own.data_type);
        normMode.put(own.normalization);
        gradMode.put(own.gradient);
        Ok(())
    }

    /// What mcdnnSetCTCLossDescriptor_v8 has set.
    fn mcdnnGetCTCLossDescriptor_v8(
        ctcLossDesc: Ref<CtcLoss>,
        compType: Out<DataType>,
        normMode: Out<LossNormalizationMode>,
        gradMode: Out<NanPropagation>,
        maxLabelLength: Out<i32>,
    ) {
        let own = *ctcLossDesc.get("ctcLossDesc")?.0.read();
        compType.put(own.data_type);
        normMode.put(own.normalization);
        gradMode.put(own.gradient);
        maxLabelLength.put(own.label_length_max);
        Ok(())
    }

    /// Bytes of the workspace of a loss; nothing is compiled. Without gradientsDesc it is that of
    /// costs alone.
    fn mcdnnGetCTCLossWorkspaceSize(
        handle: Ref<Handle>,
        probsDesc: Ref<Tensor>,
        gradientsDesc: Ref<Tensor>,
        labels: InArray<i32>,
        labelLengths: InArray<i32>,
        inputLengths: InArray<i32>,
        algo: CtcLossAlgorithm,
        ctcLossDesc: Ref<CtcLoss>,
        sizeInBytes: Out<usize>,
    ) {
        let handle = handle.get("handle")?;
        algo.known("algo")?;
        let place = sizeInBytes.required("sizeInBytes")?;
        let descriptors = (probsDesc, gradientsDesc);
        let (shape, _) = of_host(ctcLossDesc, descriptors, labels, labelLengths, inputLengths)?;
        place.put(handle.loss(&shape, |loss| Ok(loss.workspace_bytes()))?);
        Ok(())
    }

    /// As mcdnnGetCTCLossWorkspaceSize, for labels in device memory.
    fn mcdnnGetCTCLossWorkspaceSize_v8(
        handle: Ref<Handle>,
        algo: CtcLossAlgorithm,
        ctcLossDesc: Ref<CtcLoss>,
        probsDesc: Ref<Tensor>,
        gradientsDesc: Ref<Tensor>,
        sizeInBytes: Out<usize>,
    ) {
        let handle = handle.get("handle")?;
        algo.known("algo")?;
        let place = sizeInBytes.required("sizeInBytes")?;
        let loss = *ctcLossDesc.get("ctcLossDesc")?.0.read();
        let shape = Shape::of(&loss, label_length_max(&loss), probsDesc, gradientsDesc)?;
        place.put(handle.loss(&shape, |loss| Ok(loss.workspace_bytes()))?);
        Ok(())
    }

    /// The costs of sequences and their gradients, queued on the handle's stream. Labels, one
    /// sequence's behind the other's, and lengths are in host memory and are copied; costs are in
    /// device memory.
    fn mcdnnCTCLoss(
        handle: Ref<Handle>,
        probsDesc: Ref<Tensor>,
        probs: Data,
        hostLabels: InArray<i32>,
        hostLabelLengths: InArray<i32>,
        hostInputLengths: InArray<i32>,
        costs: DataMut,
        gradientsDesc: Ref<Tensor>,
        gradients: DataMut,
        algo: CtcLossAlgorithm,
        ctcLossDesc: Ref<CtcLoss>,
        workspace: DataMut,
        workSpaceSizeInBytes: usize,
    ) {
        let handle = handle.get("handle")?;
        algo.known("algo")?;
        let descriptors = (probsDesc, gradientsDesc);
        let (shape, host) = of_host(
            ctcLossDesc,
            descriptors,
            hostLabels,
            hostLabelLengths,
            hostInputLengths,
        )?;
        let call = call(&shape, probs, (costs, gradients), (workspace, workSpaceSizeInBytes))?;
        handle.loss(&shape, |loss| {
            let labels = loss.upload(&handle.gpu().kiln, &host)?;
            loss.launch(&handle, labels, &call)
        })
    }

    /// As mcdnnCTCLoss, with labels and lengths in device memory.
    fn mcdnnCTCLoss_v8(
        handle: Ref<Handle>,
        algo: CtcLossAlgorithm,
        ctcLossDesc: Ref<CtcLoss>,
        probsDesc: Ref<Tensor>,
        probs: Data,
        labels: InArray<i32>,
        labelLengths: InArray<i32>,
        inputLengths: InArray<i32>,
        costs: DataMut,
        gradientsDesc: Ref<Tensor>,
        gradients: DataMut,
        workSpaceSizeInBytes: usize,
        workspace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        algo.known("algo")?;
        let loss = *ctcLossDesc.get("ctcLossDesc")?.0.read();
        let shape = Shape::of(&loss, label_length_max(&loss), probsDesc, gradientsDesc)?;
        let call = call(&shape, probs, (costs, gradients), (workspace, workSpaceSizeInBytes))?;
        let lengths = [("labelLengths", labelLengths), ("inputLengths", inputLengths)];
        if let Some((name, _)) = lengths.into_iter().find(|(_, array)| array.is_null()) {
            return bad(format!("{name} is NULL"));
        }
        // Without labels there may be no memory.
        let labels = [labels, labelLengths, inputLengths].map(InArray::address);
        handle.loss(&shape, |loss| loss.launch(&handle, labels, &call))
    }
}
