//! mcDNN's RNN descriptor (`mcdnnSetRNNDescriptor_v8`, section 6.2.1.49) with its checks.
//!
//! The document's limits are enforced here because programs written for mcDNN rely on them. The
//! [`Rnn`] built from a descriptor does not have the limits that Kiln does not need.

use crate::dropout::DropoutDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{NanPropagation, Real};
use crate::graph::{Direction, Quantization, RowLayout};
use crate::rnn::cells::{CellClip, CellKind, ClipPoint};
use crate::rnn::data::RnnDataDescriptor;
use crate::rnn::mode::{BiasMode, InputMode};
use crate::rnn::network::Rnn;

/// `mcdnnRNNAlgo_t`: only its restrictions are enforced; engines are chosen as for any graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RnnAlgo {
    /// `MCDNN_RNN_ALGO_STANDARD`.
    #[default]
    Standard,
    /// `MCDNN_RNN_ALGO_PERSIST_STATIC`: no projection, no f64, equal sequence lengths.
    PersistStatic,
    /// `MCDNN_RNN_ALGO_PERSIST_DYNAMIC`: no projection, equal sequence lengths.
    PersistDynamic,
}

/// `mcdnnMathType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MathType {
    /// `MCDNN_DEFAULT_MATH`.
    #[default]
    Default,
    /// `MCDNN_TENSOR_OP_MATH`: tensor cores.
    TensorOp,
    /// `MCDNN_TENSOR_OP_MATH_ALLOW_CONVERSION`: tensor cores with f32 operands rounded to tf32. The
    /// document rounds to f16, which has a smaller range.
    TensorOpAllowConversion,
}

/// `auxFlags`: whether inputs and outputs may be padded (`mcdnnRNNPaddingMode_t`, 6.1.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PaddedIo {
    /// Only the packed layout is allowed.
    #[default]
    Disabled,
    /// Unpacked layouts are allowed too.
    Enabled,
}

/// Arguments of `mcdnnSetRNNDescriptor_v8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnnSettings {
    /// Algorithm.
    pub algo: RnnAlgo,
    /// `MCDNN_RNN_RELU`, `MCDNN_RNN_TANH`, `MCDNN_LSTM` or `MCDNN_GRU`.
    pub cell_mode: CellKind,
    /// Biases.
    pub bias_mode: BiasMode,
    /// `MCDNN_UNIDIRECTIONAL` is [`Direction::Forward`], `MCDNN_BIDIRECTIONAL`
    /// [`Direction::Both`].
    pub dir_mode: Direction,
    /// Input mode of the first layer.
    pub input_mode: InputMode,
    /// Type of weights, inputs and outputs: f16, f32, f64, or bf16, which the document does not
    /// list.
    pub data_type: DType,
    /// Math precision: f16 or f32 for f16, f32 for bf16 and f32, f64 for f64. f16 is computed in
    /// f32 either way.
    pub math_prec: DType,
    /// Use of tensor cores.
    pub math_type: MathType,
    /// Elements of an input vector.
    pub input_size: i32,
    /// Hidden size.
    pub hidden_size: i32,
    /// Elements of the projected `h`; `hidden_size` means no projection.
    pub proj_size: i32,
    /// Number of layers.
    pub num_layers: i32,
    /// Dropout between layers in training; ignored in inference.
    pub dropout: DropoutDescriptor,
    /// Whether padding is allowed.
    pub aux_flags: PaddedIo,
}

/// A valid RNN descriptor with its cell state clip, its quantization and its activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnnDescriptor {
    settings: RnnSettings,
    clip: Option<CellClip>,
    quantization: Option<(DType, Quantization)>,
    fast_activations: bool,
}

impl RnnDescriptor {
    /// Validates the arguments (`mcdnnSetRNNDescriptor_v8`). The cell state is not clipped, nothing
    /// is quantised, and activations are not fast.
    ///
    /// # Errors
    /// `BadParam` for a size below 1, or a skipped input whose size is
    /// not the hidden size; `NotSupported` for a cell or type that the document does not list, a
    /// precision or math type incompatible with the data type, a projection that is larger than the
    /// hidden size, of a cell other than LSTM or with a persistent algorithm, f64 with the static
    /// algorithm, or a persistent algorithm without both biases.
    pub fn set(settings: RnnSettings) -> Result<RnnDescriptor> {
        settings.check_sizes()?;
        settings.check_modes()?;
        settings.check_types()?;
        Ok(RnnDescriptor { settings, clip: None, quantization: None, fast_activations: false })
    }

    /// The arguments (`mcdnnGetRNNDescriptor_v8`, section 6.2.1.21).
    pub fn get(&self) -> &RnnSettings {
        &self.settings
    }

    /// Clips the cell state of all layers to `[lclip, rclip]`, or disables the clip with `None`
    /// (`mcdnnRNNSetClip_v8`, section 6.2.1.42). Buffer sizes do not change.
    ///
    /// # Errors
    /// `BadParam` where a limit is NaN or the left exceeds the right; `NotSupported` for a cell
    /// without a cell state.
    pub fn set_clip(&mut self, clip: Option<(NanPropagation, f64, f64)>) -> Result<()> {
        let clip = clip.map(|(nan, lclip, rclip)| CellClip {
            min: Real::new(lclip),
            max: Real::new(rclip),
            nan,
            point: ClipPoint::Read,
        });
        if let Some(clip) = &clip {
            clip.validate()?;
            if !self.settings.cell_mode.has_cell_state() {
                let name = self.settings.cell_mode.name();
                let text = format!("rnn descriptor: a clipped state of cell {name}");
                return Err(Error::not_supported(text));
            }
        }
        self.clip = clip;
        Ok(())
    }

    /// The clip (`mcdnnRNNGetClip_v8`, section 6.2.1.40); `None` is `MCDNN_RNN_CLIP_NONE`.
    pub fn clip(&self) -> Option<(NanPropagation, f64, f64)> {
        self.clip.map(|clip| (clip.nan, clip.min.get(), clip.max.get()))
    }

    /// Makes inputs, `h` and outputs 8-bit integers of a type, i8 or u8, as in [`Rnn::quantised`],
    /// or those of the arguments' type with `None`. The document does not have it.
    ///
    /// # Errors
    /// `NotSupported` for a network that is not of f32; as [`Rnn::validate`].
    pub fn set_quantization(&mut self, quantization: Option<(DType, Quantization)>) -> Result<()> {
        let own = self.settings.data_type;
        if quantization.is_some() && own != DType::F32 {
            return refuse(format!("8-bit integers of a network of {own}, expected f32"));
        }
        let quantised = RnnDescriptor { quantization, ..*self };
        quantised.rnn().validate()?;
        *self = quantised;
        Ok(())
    }

    /// Whether sigmoid and tanh are fast, as in [`Rnn::fast_activations`]. The document does not
    /// have it.
    ///
    /// # Errors
    /// `NotSupported` for a network of f64.
    pub fn set_fast_activations(&mut self, fast_activations: bool) -> Result<()> {
        let set = RnnDescriptor { fast_activations, ..*self };
        set.rnn().validate()?;
        *self = set;
        Ok(())
    }

    /// The type of inputs, `h` and outputs.
    pub fn data_type(&self) -> DType {
        self.quantization.map_or(self.settings.data_type, |(dtype, _)| dtype)
    }

    /// Builds the network for inputs and outputs as described by `x` and `y` (section 6.2.1.36).
    ///
    /// # Errors
    /// `BadParam` where they have the wrong type or vector size, differ in anything but vector size
    /// and fill, or are unpacked without padded I/O; `NotSupported` for unequal sequence lengths
    /// with a persistent algorithm.
    pub fn network(&self, x: &RnnDataDescriptor, y: &RnnDataDescriptor) -> Result<Rnn> {
        let settings = &self.settings;
        let (input, output) = (x.get(), y.get());
        let bad = |rule: String| Err(Error::bad_param(format!("rnn forward: {rule}")));
        let (is, wanted) = (input.data_type, self.data_type());
        if is != wanted {
            return bad(format!("x is of {is}, the network of {wanted}"));
        }
        if !x.matches(y) {
            return bad("x and y differ in type, layout, batch or lengths".to_owned());
        }
        if input.layout != RowLayout::Packed && settings.aux_flags == PaddedIo::Disabled {
            let layout = input.layout.name();
            return bad(format!("layout {layout} needs padded I/O, which is disabled"));
        }
        if settings.algo != RnnAlgo::Standard && x.is_ragged() {
            let text = format!("rnn forward: sequences of different lengths: {:?}", settings.algo);
            return Err(Error::not_supported(text));
        }
        let fill = match (output.padding_fill.map(Real::get), self.quantization) {
            (None, _) => 0.0,
            (Some(fill), None) => fill,
            // What the integer stands for.
            (Some(fill), Some((_, own))) => (fill - own.shift as f64) / own.scale.get(),
        };
        let rnn = self.rnn().layout(input.layout).fill(fill);
        let vectors = [
            ("x", input.vector_size, rnn.input_size),
            ("y", output.vector_size, rnn.output_size()),
        ];
        for (name, is, wanted) in vectors {
            if i64::from(is) != wanted {
                return bad(format!("vectors of {name} have {is} elements, expected {wanted}"));
            }
        }
        Ok(rnn)
    }

    /// The network, for sequence-major vectors.
    pub fn rnn(&self) -> Rnn {
        let settings = &self.settings;
        let (input, hidden) = (i64::from(settings.input_size), i64::from(settings.hidden_size));
        let projected = settings.proj_size < settings.hidden_size;
        let rnn = Rnn {
            projection_size: projected.then_some(i64::from(settings.proj_size)),
            layers: i64::from(settings.num_layers),
            direction: settings.dir_mode,
            bias: settings.bias_mode,
            input_mode: settings.input_mode,
            dtype: settings.data_type,
            tf32: settings.data_type == DType::F32
                && settings.math_type == MathType::TensorOpAllowConversion,
            dropout: settings.dropout,
            fast_activations: self.fast_activations,
            ..Rnn::new(settings.cell_mode, input, hidden)
        };
        let rnn = match self.clip {
            Some(clip) => rnn.cell_clip(clip),
            None => rnn,
        };
        match self.quantization {
            // Its GEMMs have no operands that could be tf32.
            Some((dtype, own)) => Rnn { tf32: false, ..rnn.quantised(dtype, own) },
            None => rnn,
        }
    }
}

fn bad<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("rnn descriptor: {rule}")))
}

fn refuse<T>(rule: String) -> Result<T> {
    Err(Error::not_supported(format!("rnn descriptor: {rule}")))
}

impl RnnSettings {
    /// One forward layer in f32 with both biases, linear input and padding allowed.
    pub fn new(cell_mode: CellKind, input_size: i32, hidden_size: i32) -> RnnSettings {
        RnnSettings {
            algo: RnnAlgo::Standard,
            cell_mode,
            bias_mode: BiasMode::Double,
            dir_mode: Direction::Forward,
            input_mode: InputMode::Linear,
            data_type: DType::F32,
            math_prec: DType::F32,
            math_type: MathType::Default,
            input_size,
            hidden_size,
            proj_size: hidden_size,
            num_layers: 1,
            dropout: DropoutDescriptor::NONE,
            aux_flags: PaddedIo::Enabled,
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let sizes = [
            ("input size", self.input_size),
            ("hidden size", self.hidden_size),
            ("projection size", self.proj_size),
            ("number of layers", self.num_layers),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size < 1) {
            return bad(format!("the {name} is {size}, expected at least 1"));
        }
        let (input, hidden) = (self.input_size, self.hidden_size);
        if self.input_mode == InputMode::Skip && input != hidden {
            return bad(format!("skip input: the input size is {input}, the hidden size {hidden}"));
        }
        if self.proj_size > hidden {
            let size = self.proj_size;
            return refuse(format!("the projection size {size} exceeds the hidden size {hidden}"));
        }
        Ok(())
    }

    fn check_modes(&self) -> Result<()> {
        let (cell, algo) = (self.cell_mode, self.algo);
        let known = [CellKind::Relu, CellKind::Tanh, CellKind::Lstm, CellKind::Gru];
        if !known.contains(&cell) {
            return refuse(format!("cell {}, expected relu, tanh, lstm or gru", cell.name()));
        }
        if self.dir_mode == Direction::Reverse {
            return refuse("direction reverse, expected forward or both".to_owned());
        }
        let projected = self.proj_size < self.hidden_size;
        if projected && cell != CellKind::Lstm {
            return refuse(format!("a projection of cell {}, expected lstm", cell.name()));
        }
        if projected && algo != RnnAlgo::Standard {
            return refuse(format!("a projection with {algo:?}, expected Standard"));
        }
        // Section 6.2.1.46.
        if self.bias_mode != BiasMode::Double && algo != RnnAlgo::Standard {
            let bias = self.bias_mode.name();
            return refuse(format!("bias mode {bias} with {algo:?}, expected Standard"));
        }
        Ok(())
    }

    fn check_types(&self) -> Result<()> {
        use MathType::{Default, TensorOp, TensorOpAllowConversion};
        let (precisions, types): (&[DType], &[MathType]) = match self.data_type {
            DType::F16 => {
                (&[DType::F16, DType::F32], &[Default, TensorOp, TensorOpAllowConversion])
            }
            DType::Bf16 => (&[DType::F32], &[Default, TensorOp, TensorOpAllowConversion]),
            DType::F32 => (&[DType::F32], &[Default, TensorOpAllowConversion]),
            DType::F64 => (&[DType::F64], &[Default]),
            other => return refuse(format!("data of {other}, expected f16, bf16, f32 or f64")),
        };
        let data = self.data_type;
        if !precisions.contains(&self.math_prec) {
            return refuse(format!("precision {} of data of {data}", self.math_prec));
        }
        if !types.contains(&self.math_type) {
            return refuse(format!("math type {:?} of data of {data}", self.math_type));
        }
        if data == DType::F64 && self.algo == RnnAlgo::PersistStatic {
            return refuse("data of f64 with PersistStatic".to_owned());
        }
        Ok(())
    }
}
