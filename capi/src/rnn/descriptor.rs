//! Descriptors of recurrent networks (sections 6.2.1.21, 6.2.1.40 to 42 and 6.2.1.49).

use kiln::DType;
use kiln::graph::Quantization;
use kiln::rnn::{InputMode, PaddedIo, RnnDescriptor, RnnSettings};

use crate::declare::functions;
use crate::dropout::Dropout;
use crate::object::{Ref, Settable, object};
use crate::pointer::Out;
use crate::rnn::values::{
    DirectionMode, PADDED_IO_ENABLED, RnnAlgorithm, RnnBiasMode, RnnClipMode, RnnInputMode, RnnMode,
};
use crate::status::{Outcome, Status, bad, fail};
use crate::values::{DataType, MathType, NanPropagation};

/// `mcdnnRNNDescriptor_t`.
#[derive(Debug, Default)]
pub struct RnnNetwork(pub Settable<Record>);
object!(RnnNetwork: "mcdnnRNNDescriptor_t", "RNN descriptor", 8);

/// Which function has set a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetBy {
    /// None.
    #[default]
    Nothing,
    /// `mcdnnSetRNNDescriptor_v6`, whose networks learn the size of their input when they are used.
    V6,
    /// `mcdnnSetRNNDescriptor_v8`.
    V8,
}

/// What a descriptor says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Who said it.
    pub set_by: SetBy,
    /// `algo`.
    pub algo: RnnAlgorithm,
    /// `cellMode`.
    pub cell: RnnMode,
    /// `biasMode`.
    pub bias: RnnBiasMode,
    /// `dirMode`.
    pub direction: DirectionMode,
    /// `inputMode`.
    pub input: RnnInputMode,
    /// `dataType`.
    pub data_type: DataType,
    /// `mathPrec`.
    pub math_prec: DataType,
    /// `mathType`.
    pub math_type: MathType,
    /// `inputSize`.
    pub input_size: i32,
    /// `hiddenSize`.
    pub hidden_size: i32,
    /// `projSize`.
    pub proj_size: i32,
    /// `numLayers`.
    pub layers: i32,
    /// `dropoutDesc`.
    pub dropout: Ref<Dropout>,
    /// `auxFlags`.
    pub aux_flags: u32,
    /// The clip of the cell state.
    pub clip: Clip,
    /// The type of 8-bit integers, and what they stand for.
    pub quantization: Option<(DType, Quantization)>,
    /// Whether sigmoid and tanh are fast.
    pub fast_activations: bool,
}

/// A clip of the cell state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// `clipMode`.
    pub mode: RnnClipMode,
    /// `clipNanOpt`.
    pub nan: NanPropagation,
    /// `lclip`.
    pub left: f64,
    /// `rclip`.
    pub right: f64,
}

/// No clip.
const UNCLIPPED: Clip =
    Clip { mode: RnnClipMode::NONE, nan: NanPropagation::NOT_PROPAGATE_NAN, left: 0.0, right: 0.0 };

impl Default for Record {
    fn default() -> Record {
        Record {
            set_by: SetBy::Nothing,
            algo: RnnAlgorithm::STANDARD,
            cell: RnnMode::RNN_RELU,
            bias: RnnBiasMode::DOUBLE_BIAS,
            direction: DirectionMode::UNIDIRECTIONAL,
            input: RnnInputMode::LINEAR_INPUT,
            data_type: DataType::FLOAT,
            math_prec: DataType::FLOAT,
            math_type: MathType::DEFAULT_MATH,
            input_size: 0,
            hidden_size: 0,
            proj_size: 0,
            layers: 0,
            dropout: Ref::NULL,
            aux_flags: 0,
            clip: UNCLIPPED,
            quantization: None,
            fast_activations: false,
        }
    }
}

impl Record {
    /// Refuses what no descriptor may say. Sizes of a skipped input are looked at when they are
    /// used.
    pub fn check(&self) -> Outcome {
        let input = InputMode::Linear;
        RnnDescriptor::set(RnnSettings { input_mode: input, ..self.settings()? })?;
        Ok(())
    }

    /// The descriptor that a network is made from.
    pub fn descriptor(&self) -> Outcome<RnnDescriptor> {
        let dropout = self.dropout.descriptor()?;
        self.described(RnnSettings { dropout, ..self.settings()? })
    }

    /// The same network, of 8-bit integers of a type.
    pub fn quantised(self, dtype: DType, quantization: Quantization) -> Outcome<Record> {
        let record = Record { quantization: Some((dtype, quantization)), ..self };
        record.described(record.settings()?)?;
        Ok(record)
    }

    /// The same network, whose sigmoid and tanh are fast or not.
    pub fn with_fast_activations(self, fast_activations: bool) -> Outcome<Record> {
        let record = Record { fast_activations, ..self };
        record.described(record.settings()?)?;
        Ok(record)
    }

    /// The type of `x`, `y` and `h`.
    pub fn vector_type(&self) -> DataType {
        self.quantization.map_or(self.data_type, |(dtype, _)| DataType::of(dtype))
    }

    fn described(&self, settings: RnnSettings) -> Outcome<RnnDescriptor> {
        let clips = self.clip.mode == RnnClipMode::MINMAX && self.cell == RnnMode::LSTM;
        let mut descriptor = RnnDescriptor::set(settings)?;
        descriptor
            .set_clip(clips.then(|| (self.clip.nan.rule(), self.clip.left, self.clip.right)))?;
        descriptor.set_quantization(self.quantization)?;
        descriptor.set_fast_activations(self.fast_activations)?;
        Ok(descriptor)
    }

    fn settings(&self) -> Outcome<RnnSettings> {
        let algo = self.algo.algorithm()?;
        let cell_mode = self.cell.cell()?;
        let bias_mode = self.bias.bias()?;
        let dir_mode = self.direction.direction()?;
        let input_mode = self.input.input()?;
        let data_type = self.data_type.dtype("dataType")?;
        let math_prec = self.math_prec.dtype("mathPrec")?;
        let math_type = self.math_type.hint(data_type)?;
        let aux_flags = match self.aux_flags {
            0 => PaddedIo::Disabled,
            PADDED_IO_ENABLED => PaddedIo::Enabled,
            other => return bad(format!("auxFlags is {other:#x}, expected 0 or 1")),
        };
        Ok(RnnSettings {
            algo,
            bias_mode,
            dir_mode,
            input_mode,
            data_type,
            math_prec,
            math_type,
            proj_size: self.proj_size,
            num_layers: self.layers,
            aux_flags,
            ..RnnSettings::new(cell_mode, self.input_size, self.hidden_size)
        })
    }
}

impl RnnNetwork {
    /// What it says, for a function of the live interface.
    pub fn v8(&self) -> Outcome<Record> {
        let record = *self.0.read();
        match record.set_by {
            SetBy::V8 => Ok(record),
            SetBy::V6 => {
                fail(Status::NOT_INITIALIZED, "rnnDesc was set by mcdnnSetRNNDescriptor_v6")
            }
            SetBy::Nothing => fail(Status::NOT_INITIALIZED, "rnnDesc was never set"),
        }
    }
}

/// Sets the clip of a descriptor.
pub fn set_clip(rnn: Ref<RnnNetwork>, clip: Clip) -> Outcome {
    let rnn = rnn.get("rnnDesc")?;
    if clip.left.is_nan() || clip.right.is_nan() || clip.left > clip.right {
        let Clip { left, right, .. } = clip;
        return bad(format!("lclip is {left}, rclip {right}: expected lclip <= rclip"));
    }
    rnn.0.change(|record| record.clip = clip);
    Ok(())
}

/// Gives the clip of a descriptor.
pub fn get_clip(
    rnn: Ref<RnnNetwork>,
    mode: Out<RnnClipMode>,
    nan: Out<NanPropagation>,
    (left, right): (Out<f64>, Out<f64>),
) -> Outcome {
    let clip = rnn.get("rnnDesc")?.0.read().clip;
    mode.put(clip.mode);
    nan.put(clip.nan);
    left.put(clip.left);
    right.put(clip.right);
    Ok(())
}

functions! { FUNCTIONS:
    /// Makes an RNN descriptor (6.2.1.6).
    fn mcdnnCreateRNNDescriptor(rnnDesc: Out<Ref<RnnNetwork>>) {
        let place = rnnDesc.required("rnnDesc")?;
        place.put(Ref::new(RnnNetwork::default())?);
        Ok(())
    }

    /// Destroys an RNN descriptor; NULL is none (6.2.1.11).
    fn mcdnnDestroyRNNDescriptor(rnnDesc: Ref<RnnNetwork>) {
        rnnDesc.destroy("rnnDesc")
    }

    /// Describes a network (6.2.1.49). The cell state is not clipped until mcdnnRNNSetClip_v8, and
    /// there are no 8-bit integers until mcdnnKilnSetRNNQuantization.
    fn mcdnnSetRNNDescriptor_v8(
        rnnDesc: Ref<RnnNetwork>,
        algo: RnnAlgorithm,
        cellMode: RnnMode,
        biasMode: RnnBiasMode,
        dirMode: DirectionMode,
        inputMode: RnnInputMode,
        dataType: DataType,
        mathPrec: DataType,
        mathType: MathType,
        inputSize: i32,
        hiddenSize: i32,
        projSize: i32,
        numLayers: i32,
        dropoutDesc: Ref<Dropout>,
        auxFlags: u32,
    ) {
        let rnn = rnnDesc.get("rnnDesc")?;
        let record = Record {
            set_by: SetBy::V8,
            algo,
            cell: cellMode,
            bias: biasMode,
            direction: dirMode,
            input: inputMode,
            data_type: dataType,
            math_prec: mathPrec,
            math_type: mathType,
            input_size: inputSize,
            hidden_size: hiddenSize,
            proj_size: projSize,
            layers: numLayers,
            dropout: dropoutDesc,
            aux_flags: auxFlags,
            clip: UNCLIPPED,
            quantization: None,
            fast_activations: false,
        };
        record.check()?;
        rnn.0.set(record);
        Ok(())
    }

    /// What an RNN descriptor says (6.2.1.21). Places of what is not wanted are NULL.
    fn mcdnnGetRNNDescriptor_v8(
        rnnDesc: Ref<RnnNetwork>,
        algo: Out<RnnAlgorithm>,
        cellMode: Out<RnnMode>,
        biasMode: Out<RnnBiasMode>,
        dirMode: Out<DirectionMode>,
        inputMode: Out<RnnInputMode>,
        dataType: Out<DataType>,
        mathPrec: Out<DataType>,
        mathType: Out<MathType>,
        inputSize: Out<i32>,
        hiddenSize: Out<i32>,
        projSize: Out<i32>,
        numLayers: Out<i32>,
        dropoutDesc: Out<Ref<Dropout>>,
        auxFlags: Out<u32>,
    ) {
        let record = rnnDesc.get("rnnDesc")?.v8()?;
        algo.put(record.algo);
        cellMode.put(record.cell);
        biasMode.put(record.bias);
        dirMode.put(record.direction);
        inputMode.put(record.input);
        dataType.put(record.data_type);
        mathPrec.put(record.math_prec);
        mathType.put(record.math_type);
        inputSize.put(record.input_size);
        hiddenSize.put(record.hidden_size);
        projSize.put(record.proj_size);
        numLayers.put(record.layers);
        dropoutDesc.put(record.dropout);
        auxFlags.put(record.aux_flags);
        Ok(())
    }

    /// Sets the clip of the cell state (6.2.1.42); it has no effect on cells without one.
    fn mcdnnRNNSetClip_v8(
        rnnDesc: Ref<RnnNetwork>,
        clipMode: RnnClipMode,
        clipNanOpt: NanPropagation,
        lclip: f64,
        rclip: f64,
    ) {
        let clip = Clip { mode: clipMode, nan: clipNanOpt, left: lclip, right: rclip };
        set_clip(rnnDesc, clip)
    }

    /// The clip of the cell state (6.2.1.40).
    fn mcdnnRNNGetClip_v8(
        rnnDesc: Ref<RnnNetwork>,
        clipMode: Out<RnnClipMode>,
        clipNanOpt: Out<NanPropagation>,
        lclip: Out<f64>,
        rclip: Out<f64>,
    ) {
        get_clip(rnnDesc, clipMode, clipNanOpt, (lclip, rclip))
    }
}
