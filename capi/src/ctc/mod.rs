//! CTC losses: descriptors are complete, the loss itself is refused.

use crate::algorithm::CtcLossAlgorithm;
use crate::declare::{enumeration, functions};
use crate::handle::Handle;
use crate::object::{Ref, Settable, object};
use crate::pointer::{Data, DataMut, InArray, Out};
use crate::status::{Outcome, bad, refuse};
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

#[derive(Debug, Clone, Copy)]
struct Loss {
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

/// The longest label of a sequence.
const LABELS_MAX: i32 = 255;

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

/// Checks what a loss is of, and refuses it.
fn unable(
    handle: Ref<Handle>,
    algo: CtcLossAlgorithm,
    loss: Ref<CtcLoss>,
    probs: Ref<Tensor>,
) -> Outcome {
    handle.get("handle")?;
    algo.known("algo")?;
    loss.get("ctcLossDesc")?;
    probs.get("probsDesc")?;
    refuse("CTC loss: no engine runs it yet")
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

    /// Bytes of the workspace of a loss. Not supported yet.
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
        let _ = (gradientsDesc, labels, labelLengths, inputLengths, sizeInBytes);
        unable(handle, algo, ctcLossDesc, probsDesc)
    }

    /// As mcdnnGetCTCLossWorkspaceSize. Not supported yet.
    fn mcdnnGetCTCLossWorkspaceSize_v8(
        handle: Ref<Handle>,
        algo: CtcLossAlgorithm,
        ctcLossDesc: Ref<CtcLoss>,
        probsDesc: Ref<Tensor>,
        gradientsDesc: Ref<Tensor>,
        sizeInBytes: Out<usize>,
    ) {
        let _ = (gradientsDesc, sizeInBytes);
        unable(handle, algo, ctcLossDesc, probsDesc)
    }

    /// A loss and its gradient. Not supported yet.
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
        let _ = (probs, hostLabels, hostLabelLengths, hostInputLengths, costs, gradientsDesc);
        let _ = (gradients, workspace, workSpaceSizeInBytes);
        unable(handle, algo, ctcLossDesc, probsDesc)
    }

    /// As mcdnnCTCLoss, with labels and lengths in device memory. Not supported yet.
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
        let _ = (probs, labels, labelLengths, inputLengths, costs, gradientsDesc);
        let _ = (gradients, workspace, workSpaceSizeInBytes);
        unable(handle, algo, ctcLossDesc, probsDesc)
    }
}
