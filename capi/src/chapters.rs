//! The chapters of the header, in order: everything that the interface declares.

use crate::attention::{AttentionWeightKind, SeqDataAxis};
use crate::declare::{Enumeration, Function};
use crate::rnn::{
    DirectionMode, ForwardMode, RnnAlgorithm, RnnBiasMode, RnnClipMode, RnnDataLayout,
    RnnInputMode, RnnMode,
};
use crate::status::Status;
use crate::values::{DataType, Determinism, MathType, NanPropagation, TensorFormat, WgradMode};
use crate::{
    algorithm, attention, backend, ctc, dropout, extensions, facts, filter, handle, log, memory,
    onednn, rnn, tensor,
};

/// A part of the header.
pub struct Chapter {
    /// What it is about.
    pub title: &'static str,
    /// Macros and their values.
    pub constants: &'static [(&'static str, &'static str)],
    /// Opaque pointers.
    pub pointers: &'static [&'static str],
    /// Enumerations.
    pub enumerations: &'static [Enumeration],
    /// Other types, as they are declared.
    pub declarations: &'static [&'static str],
    /// The names of those.
    pub named: &'static [&'static str],
    /// Tables of functions.
    pub tables: &'static [&'static [Function]],
    /// Whether there are newer functions for all of it.
    pub deprecated: bool,
}

impl Chapter {
    const EMPTY: Chapter = Chapter {
        title: "",
        constants: &[],
        pointers: &[],
        enumerations: &[],
        declarations: &[],
        named: &[],
        tables: &[],
        deprecated: false,
    };

    /// The functions.
    pub fn functions(&self) -> impl Iterator<Item = &'static Function> {
        self.tables.iter().flat_map(|table| table.iter())
    }
}

/// Of `mcdnn.h`.
pub static MCDNN: &[Chapter] = &[
    Chapter {
        title: "Versions, statuses, messages",
        constants: &[
            ("MCDNN_MAJOR", "8"),
            ("MCDNN_MINOR", "7"),
            ("MCDNN_PATCHLEVEL", "0"),
            ("MCDNN_VERSION", "(MCDNN_MAJOR * 1000 + MCDNN_MINOR * 100 + MCDNN_PATCHLEVEL)"),
            ("MCDNN_SEV_ERROR_EN", "(1U << 1)"),
            ("MCDNN_SEV_WARNING_EN", "(1U << 2)"),
            ("MCDNN_SEV_INFO_EN", "(1U << 3)"),
        ],
        pointers: &["mcdnnHandle_t"],
        enumerations: &[
            Status::TABLE,
            log::Severity::TABLE,
            facts::ErrQueryMode::TABLE,
            facts::PropertyType::TABLE,
        ],
        declarations: &[
            "typedef struct mcdnnRuntimeTagStruct mcdnnRuntimeTag_t;",
            log::DEBUG_DECLARATION,
        ],
        named: &["mcdnnRuntimeTag_t", "mcdnnDebug_t", "mcdnnCallback_t"],
        tables: &[facts::PLAIN, facts::FUNCTIONS, log::FUNCTIONS, handle::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Tensors and filters",
        constants: &[("MCDNN_DIM_MAX", "8")],
        pointers: &["mcdnnTensorDescriptor_t", "mcdnnFilterDescriptor_t"],
        enumerations: &[
            DataType::TABLE,
            MathType::TABLE,
            NanPropagation::TABLE,
            Determinism::TABLE,
            TensorFormat::TABLE,
        ],
        tables: &[tensor::FUNCTIONS, filter::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Dropout",
        pointers: &["mcdnnDropoutDescriptor_t"],
        tables: &[dropout::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Recurrent networks",
        constants: &[
            ("MCDNN_RNN_PADDED_IO_DISABLED", "0"),
            ("MCDNN_RNN_PADDED_IO_ENABLED", "(1U << 0)"),
        ],
        pointers: &["mcdnnRNNDescriptor_t", "mcdnnRNNDataDescriptor_t"],
        enumerations: &[
            RnnMode::TABLE,
            RnnBiasMode::TABLE,
            RnnAlgorithm::TABLE,
            DirectionMode::TABLE,
            RnnInputMode::TABLE,
            RnnClipMode::TABLE,
            RnnDataLayout::TABLE,
            ForwardMode::TABLE,
            WgradMode::TABLE,
        ],
        declarations: &["typedef unsigned mcdnnRNNPaddingMode_t;"],
        named: &["mcdnnRNNPaddingMode_t"],
        tables: &[rnn::DESCRIPTOR, rnn::DATA, rnn::WEIGHTS, rnn::FORWARD, rnn::BACKWARD],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Multi-head attention",
        constants: &[
            ("MCDNN_SEQDATA_DIM_COUNT", "4"),
            ("MCDNN_ATTN_WKIND_COUNT", "8"),
            ("MCDNN_ATTN_QUERYMAP_ALL_TO_ONE", "0"),
            ("MCDNN_ATTN_QUERYMAP_ONE_TO_ONE", "(1U << 0)"),
            ("MCDNN_ATTN_DISABLE_PROJ_BIASES", "0"),
            ("MCDNN_ATTN_ENABLE_PROJ_BIASES", "(1U << 1)"),
        ],
        pointers: &["mcdnnSeqDataDescriptor_t", "mcdnnAttnDescriptor_t"],
        enumerations: &[SeqDataAxis::TABLE, AttentionWeightKind::TABLE],
        tables: &[attention::DATA, attention::DESCRIPTOR, attention::WEIGHTS, attention::PASSES],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Graphs of operations",
        pointers: &[],
        enumerations: &[
            backend::ConvolutionMode::TABLE,
            backend::PointwiseMode::TABLE,
            backend::ReduceTensorOp::TABLE,
            backend::ResampleMode::TABLE,
            backend::PaddingMode::TABLE,
            backend::GenStatsMode::TABLE,
            backend::BnFinalizeStatsMode::TABLE,
            backend::RngDistribution::TABLE,
            backend::SignalMode::TABLE,
            backend::NormMode::TABLE,
            backend::NormFwdPhase::TABLE,
            backend::TensorReordering::TABLE,
            backend::HeurMode::TABLE,
            backend::KnobType::TABLE,
            backend::LayoutType::TABLE,
            backend::NumericalNote::TABLE,
            backend::BehaviorNote::TABLE,
            backend::DescriptorType::TABLE,
            backend::AttributeName::TABLE,
            backend::AttributeType::TABLE,
        ],
        declarations: &["typedef void *mcdnnBackendDescriptor_t;", backend::FRACTION_DECLARATION],
        named: &["mcdnnBackendDescriptor_t", "mcdnnFraction_t"],
        tables: &[backend::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "CTC losses",
        pointers: &["mcdnnCTCLossDescriptor_t"],
        enumerations: &[algorithm::CtcLossAlgorithm::TABLE, ctc::LossNormalizationMode::TABLE],
        tables: &[ctc::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Algorithms, of the old interface",
        pointers: &["mcdnnAlgorithmDescriptor_t", "mcdnnAlgorithmPerformance_t"],
        declarations: &[algorithm::ALGORITHM_DECLARATION],
        named: &["mcdnnAlgorithm_t"],
        tables: &[algorithm::FUNCTIONS],
        deprecated: true,
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Recurrent networks, of the old interface",
        pointers: &["mcdnnPersistentRNNPlan_t"],
        tables: &[rnn::LEGACY, rnn::LEGACY_DATA, rnn::LEGACY_FORWARD, rnn::LEGACY_BACKWARD],
        deprecated: true,
        ..Chapter::EMPTY
    },
];

/// Of `mcdnn_kiln.h`.
pub static KILN: &[Chapter] = &[
    Chapter {
        title: "Failures and facts",
        tables: &[extensions::PLAIN, extensions::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Recurrent networks: 8-bit integers, fast activations",
        tables: &[rnn::QUANTIZATION, rnn::ACTIVATIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "Memory, for programs without CUDA",
        tables: &[memory::FUNCTIONS],
        ..Chapter::EMPTY
    },
    Chapter {
        title: "oneDNN's primitives, for kiln/dnnl_rnn.hpp",
        constants: &[("MCDNN_KILN_DIFF_WEIGHTS_OVERWRITE", "(1U << 0)")],
        pointers: &["mcdnnKilnPrimitive_t"],
        enumerations: &[onednn::Prop::TABLE, onednn::RnnCell::TABLE, onednn::Way::TABLE],
        tables: &[onednn::FUNCTIONS],
        ..Chapter::EMPTY
    },
];
