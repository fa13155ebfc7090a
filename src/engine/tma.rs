//! A tensor as TMA copies it: the dimensions of its tensor map, and the rules they obey (CUDA
//! driver API, `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`).

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Im2col, Mapped, Swizzle, TensorMap};
use crate::tensor::TensorDesc;

/// Dimensions of a tensor map, at most.
const RANK_MAX: usize = 5;

/// Alignment of addresses and strides of a tensor map, in bytes.
const ALIGNMENT: i64 = 16;

/// Bytes of a line of a box: the widest swizzle.
const LINE_BYTES: i64 = 128;

/// Strides of a tensor map are smaller.
const STRIDE_BYTES_MAX: i64 = 1 << 40;

/// A tensor as TMA sees it: the dimensions of its map.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TmaTensor {
    /// The map without its box.
    map: TensorMap,
}

/// A dimension: its extent and stride, in elements.
pub(super) type Dimension = (i64, i64);

/// A spatial dimension of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PixelDimension {
    /// The position of the first pixel.
    pub(super) first: i64,
    /// Pixels, and the step from one to the next.
    pub(super) count: i64,
    pub(super) step: i64,
    /// The largest offset.
    pub(super) offset_max: i64,
}

/// Steps of pixels are at most this.
pub(super) const STEP_MAX: i64 = 8;

/// Bits of the corners of the bounding box, and of offsets, by spatial dimensions.
const PIXEL_BITS: [u32; 3] = [16, 8, 5];

/// Elements of a line of 128 bytes.
pub(super) fn line_elements(dtype: DType) -> i64 {
    LINE_BYTES / dtype.bytes() as i64
}

impl TmaTensor {
    /// The tensor at a canonical position: the dimensions of its matrices, the packed one first,
    /// and those of its batches, the innermost first.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn of(
        at: usize,
        tensor: &TensorDesc,
        [inner, outer]: [Dimension; 2],
        batches: &[Dimension],
    ) -> Result<TmaTensor> {
        let name = &tensor.name;
        let refuse = |rule: String| Err(Error::not_supported(rule));
        if (tensor.alignment as i64) < ALIGNMENT {
            let alignment = tensor.alignment;
            return refuse(format!(
                "`{name}` is aligned to {alignment} bytes, a TMA copy needs {ALIGNMENT}"
            ));
        }
        if inner.0 > 1 && inner.1 != 1 || outer.0 > 1 && outer.1 == 0 {
            return refuse(format!("no dimension of `{name}` is packed"));
        }
        if batches.len() + 2 > RANK_MAX {
            let count = batches.len();
            return refuse(format!("`{name}` has {count} dimensions of batches, a TMA copy 3"));
        }
        let size = tensor.dtype.bytes() as i64;
        let dims: Vec<Dimension> = [inner, outer].iter().chain(batches).copied().collect();
        // Nothing steps along a dimension of one element.
        let bytes = |(extent, stride): &Dimension| match extent {
            1 => ALIGNMENT,
            _ => stride.saturating_mul(size),
        };
        let strides: Vec<i64> = dims[1..].iter().map(bytes).collect();
        if let Some(bytes) = strides.iter().find(|bytes| *bytes % ALIGNMENT != 0) {
            return refuse(format!(
                "a stride of `{name}` is {bytes} bytes, a TMA copy needs multiples of {ALIGNMENT}"
            ));
        }
        if let Some(bytes) = strides.iter().find(|bytes| **bytes >= STRIDE_BYTES_MAX) {
            return refuse(format!("a stride of `{name}` is {bytes} bytes, more than 2^40"));
        }
        // Coordinates are of 32 bits, those of tiles beyond the end too.
        if let Some((extent, _)) = dims.iter().find(|(extent, _)| *extent >= 1 << 30) {
            return refuse(format!("an extent of `{name}` is {extent}, more than 2^30"));
        }
        let map = TensorMap {
            memory: Mapped::Tensor(at as i64),
            dtype: tensor.dtype,
            dims: dims.iter().map(|(extent, _)| *extent as u64).collect(),
            strides: strides.iter().map(|bytes| *bytes as u64).collect(),
            box_dims: Vec::new(),
            swizzle: Swizzle::B128,
            im2col: None,
        };
        Ok(TmaTensor { map })
    }

    /// The tensor in im2col mode: channels, these spatial dimensions, images; `name` in refusals.
    ///
    /// # Errors
    /// `NotSupported` with the rule that refused.
    pub(super) fn pixels(self, name: &str, spatial: &[PixelDimension]) -> Result<TmaTensor> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        let bits = PIXEL_BITS[spatial.len().clamp(1, PIXEL_BITS.len()) - 1];
        let mut im2col =
            Im2col { lower_corner: Vec::new(), upper_corner: Vec::new(), steps: Vec::new() };
        for (dimension, extent) in spatial.iter().zip(&self.map.dims[1..]) {
            let PixelDimension { first, count, step, offset_max } = *dimension;
            if !(1..=STEP_MAX).contains(&step) {
                return refuse(format!(
                    "pixels of `{name}` are {step} apart, those of a TMA copy 1 to {STEP_MAX}"
                ));
            }
            if offset_max >= 1 << bits {
                return refuse(format!(
                    "taps of `{name}` reach over {offset_max} elements, a TMA copy has {bits} bits"
                ));
            }
            let last = first.saturating_add(step.saturating_mul(count - 1));
            let corners = [first, last.saturating_sub(*extent as i64 - 1)];
            let reach = 1 << (bits - 1);
            if let Some(corner) = corners.iter().find(|corner| !(-reach..reach).contains(*corner)) {
                return refuse(format!(
                    "pixels of `{name}` end {corner} elements from its own, a TMA copy has {bits} \
                     bits"
                ));
            }
            im2col.lower_corner.push(corners[0] as i32);
            im2col.upper_corner.push(corners[1] as i32);
            im2col.steps.push(step as u32);
        }
        Ok(TmaTensor { map: TensorMap { im2col: Some(im2col), ..self.map } })
    }

    /// Whether copies are in im2col mode.
    pub(super) fn is_im2col(&self) -> bool {
        self.map.im2col.is_some()
    }

    /// Dimensions of the map.
    pub(super) fn rank(&self) -> usize {
        self.map.dims.len()
    }

    /// The map for boxes of this many lines of 128 bytes, swizzled.
    pub(super) fn map(&self, lines: i64) -> TensorMap {
        self.boxes([line_elements(self.map.dtype), lines], Swizzle::B128)
    }

    /// The map for boxes of this many bytes, multiples of 16, and lines, not swizzled.
    pub(super) fn plain_map(&self, [bytes, lines]: [i64; 2]) -> TensorMap {
        self.boxes([bytes / self.map.dtype.bytes() as i64, lines], Swizzle::None)
    }

    fn boxes(&self, [elements, lines]: [i64; 2], swizzle: Swizzle) -> TensorMap {
        let mut box_dims = vec![elements as u32, lines as u32];
        if !self.is_im2col() {
            box_dims.resize(self.rank(), 1);
        }
        TensorMap { box_dims, swizzle, ..self.map.clone() }
    }
}
