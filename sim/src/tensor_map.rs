//! Tensor maps: 128 opaque bytes that describe a tensor in global memory and what a TMA copy moves
//! of it, a box or some pixels. The encoding is specific to this machine.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | mark, type, rank, swizzle, whether the fill is NaN |
//! | 8..16 | address |
//! | 16..111 | of each dimension: extent, stride, extent of the box, step |
//! | 111..124 | whether it is of im2col mode, lower and upper corners |
//!
//! In im2col mode the box is of channels and pixels.

use crate::error::{Error, ErrorKind, Result};
use crate::types::Type;
use crate::unit::MapField;

/// Maximum rank of a tensor.
pub(crate) const RANK_MAX: usize = 5;
/// Maximum number of spatial dimensions.
pub(crate) const SPATIAL_MAX: usize = 3;
/// Maximum extent of a box in elements, and of the channels of a pixel.
pub(crate) const BOX_MAX: u32 = 256;
/// Maximum number of pixels.
pub(crate) const PIXELS_MAX: u32 = 1024;
/// Maximum element stride.
pub(crate) const STEP_MAX: u32 = 8;
pub(crate) const MARK: [u8; 4] = *b"TMap";
/// Where dimensions are, and the bytes of one.
pub(crate) const DIMENSIONS_AT: usize = 16;
pub(crate) const DIMENSION_BYTES: usize = 19;
/// Where the mode is, and the corners.
pub(crate) const MODE_AT: usize = DIMENSIONS_AT + RANK_MAX * DIMENSION_BYTES;
pub(crate) const CORNERS_AT: [usize; 2] = [MODE_AT + 1, MODE_AT + 1 + 2 * SPATIAL_MAX];

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// Unsigned integers of 8 bits; other types of 8 bits are copied as these.
    U8,
    /// Unsigned integers of 16 bits.
    U16,
    /// Unsigned integers of 32 bits.
    U32,
    /// Two's complement, 32 bits.
    S32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Two's complement, 64 bits.
    S64,
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// The upper half of a binary32.
    Bf16,
}

pub(crate) const TYPES: [(TensorType, u8); 10] = [
    (TensorType::U8, 1),
    (TensorType::U16, 2),
    (TensorType::U32, 4),
    (TensorType::S32, 4),
    (TensorType::U64, 8),
    (TensorType::S64, 8),
    (TensorType::F16, 2),
    (TensorType::F32, 4),
    (TensorType::F64, 8),
    (TensorType::Bf16, 2),
];

impl TensorType {
    /// Size of an element in bytes.
    pub fn bytes(self) -> u32 {
        TYPES.iter().find(|(ty, _)| *ty == self).map_or(1, |&(_, bytes)| bytes.into())
    }

    pub(crate) fn element(self) -> Type {
        match self {
            TensorType::U8 => Type::U8,
            TensorType::U16 => Type::U16,
            TensorType::U32 => Type::U32,
            TensorType::S32 => Type::S32,
            TensorType::U64 => Type::U64,
            TensorType::S64 => Type::S64,
            TensorType::F16 => Type::F16,
            TensorType::F32 => Type::F32,
            TensorType::F64 => Type::F64,
            TensorType::Bf16 => Type::Bf16,
        }
    }

    fn floating(self) -> bool {
        matches!(self, TensorType::F16 | TensorType::F32 | TensorType::F64 | TensorType::Bf16)
    }
}

/// Swizzle of 16-byte chunks of a box in shared memory, which avoids bank conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Swizzle {
    /// No swizzle.
    #[default]
    None,
    /// 32-byte swizzle: address bit 4 is XORed with bit 7.
    B32,
    /// 64-byte swizzle: address bits 4 and 5 are XORed with bits 7 and 8.
    B64,
    /// 128-byte swizzle: address bits 4 to 6 are XORed with bits 7 to 9.
    B128,
}

impl Swizzle {
    /// Size of a swizzle row in bytes, the limit of a box's inner dimension.
    pub(crate) fn row_bytes(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }

    /// Swizzled address of a byte of shared memory.
    #[inline(always)]
    pub(crate) fn apply(self, address: u64) -> u64 {
        let bits = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 0x10,
            Swizzle::B64 => 0x30,
            Swizzle::B128 => 0x70,
        };
        address ^ (address >> 3 & bits)
    }
}

/// Interleaving of channels in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Interleave {
    /// Channels are not interleaved.
    #[default]
    None,
    /// 16 bytes of channels lie side by side.
    B16,
    /// 32 bytes of channels lie side by side.
    B32,
}

/// L2 promotion hint; has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum L2Promotion {
    /// The sectors that are asked for.
    #[default]
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
    /// 256 bytes.
    B256,
}

/// Value of out-of-bounds elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OutOfBoundsFill {
    /// Zero.
    #[default]
    Zero,
    /// NaN, for floating-point types only.
    Nan,
}

/// Arguments of `cuTensorMapEncodeTiled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiled<'a> {
    /// Element type.
    pub data_type: TensorType,
    /// Address of the tensor in global memory, a multiple of 16.
    pub address: u64,
    /// Extents of 1 to 5 dimensions, the contiguous one first, each 1 to 2^32.
    pub dims: &'a [u64],
    /// Strides in bytes of all dimensions but the first, multiples of 16 below 2^40.
    pub strides: &'a [u64],
    /// Box extents in elements, 1 to 256; in im2col mode channels and pixels.
    pub box_dims: &'a [u32],
    /// Element strides of the traversal, 1 to 8; the first is ignored.
    pub element_strides: &'a [u32],
    /// Only [`Interleave::None`] is supported.
    pub interleave: Interleave,
    /// Swizzle of the box in shared memory.
    pub swizzle: Swizzle,
    /// L2 promotion hint.
    pub l2_promotion: L2Promotion,
    /// Value of out-of-bounds elements.
    pub fill: OutOfBoundsFill,
}

/// A tensor map; pass its bytes as a 64-byte aligned kernel parameter, or copy them to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap([u8; 128]);

fn check(holds: bool, why: impl FnOnce() -> String) -> Result<()> {
    if holds {
        return Ok(());
    }
    let text = format!("failed to encode a tensor map: {}", why());
    Err(Error::new(ErrorKind::BadLaunch, text))
}

impl TensorMap {
    /// Encodes a tiled tensor map, as `cuTensorMapEncodeTiled`.
    ///
    /// # Errors
    ///
    /// [`BadLaunch`](ErrorKind::BadLaunch) for arguments that the driver rejects, and
    /// [`Unsupported`](ErrorKind::Unsupported) for an interleaved layout.
    pub fn encode_tiled(tiled: &Tiled<'_>) -> Result<TensorMap> {
        check_tiled(tiled)?;
        Ok(TensorMap(encode(tiled)))
    }

    /// Encodes a tensor map of im2col mode, as `cuTensorMapEncodeIm2col`: of images, whose
    /// dimensions are channels, width, height, depth (up to 3 spatial ones) and images.
    ///
    /// The box is of channels, 1 to 256, and pixels, 1 to 1024. A copy walks over the positions
    /// within a bounding box, along the width first, then over the next images, and moves the
    /// channels at each position with the copy's offsets added. Along the width, height and depth
    /// the lower corner is the least position, the upper corner the greatest one from the last
    /// element on, and the element strides are the steps of the walk.
    ///
    /// # Errors
    ///
    /// As [`encode_tiled`](Self::encode_tiled).
    pub fn encode_im2col(images: &Tiled<'_>, corners: [&[i32]; 2]) -> Result<TensorMap> {
        check_im2col(images, corners)?;
        let mut bytes = encode(images);
        bytes[MODE_AT] = 1;
        for (at, corner) in CORNERS_AT.into_iter().zip(corners) {
            for (axis, position) in corner.iter().enumerate() {
                let bound = (*position as i16).to_le_bytes();
                bytes[at + 2 * axis..at + 2 * axis + 2].copy_from_slice(&bound);
            }
        }
        Ok(TensorMap(bytes))
    }

    /// The opaque bytes.
    pub fn bytes(&self) -> &[u8; 128] {
        &self.0
    }

    /// The opaque bytes as the little-endian words of `CUtensorMap`.
    pub fn words(&self) -> [u64; 16] {
        let (words, _) = self.0.as_chunks();
        std::array::from_fn(|at| u64::from_le_bytes(words[at]))
    }
}

fn encode(tiled: &Tiled<'_>) -> [u8; 128] {
    let mut bytes = [0; 128];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&MARK);
    let code = TYPES.iter().position(|(ty, _)| *ty == tiled.data_type).unwrap_or_default();
    let nan = tiled.fill == OutOfBoundsFill::Nan;
    put(&[code as u8, tiled.dims.len() as u8, tiled.swizzle as u8, nan.into()]);
    put(&tiled.address.to_le_bytes());
    for axis in 0..RANK_MAX {
        let dim = tiled.dims.get(axis).copied().unwrap_or(1);
        put(&dim.to_le_bytes());
        let stride = if axis == 0 { 0 } else { *tiled.strides.get(axis - 1).unwrap_or(&0) };
        put(&stride.to_le_bytes());
        let boxed = tiled.box_dims.get(axis).copied().unwrap_or(1);
        put(&(boxed as u16).to_le_bytes());
        let step = if axis == 0 { 1 } else { *tiled.element_strides.get(axis).unwrap_or(&1) };
        put(&[step as u8]);
    }
    bytes
}

/// Replaces a field of an encoded tensor map. One of zeros becomes a map whose other fields have
/// their defaults.
pub(crate) fn replace(
    bytes: &mut [u8; 128],
    field: MapField,
    axis: usize,
    value: u64,
) -> std::result::Result<(), String> {
    if bytes.iter().all(|&byte| byte == 0) {
        bytes[..MARK.len()].copy_from_slice(&MARK);
        bytes[5] = 1;
        for axis in 0..RANK_MAX {
            let at = DIMENSIONS_AT + DIMENSION_BYTES * axis;
            bytes[at] = 1;
            (bytes[at + 16], bytes[at + 18]) = (1, 1);
        }
    }
    let within = |holds: bool| match holds {
        true => Ok(()),
        false => Err(format!("{value} is not a valid {field:?} of dimension {axis}")),
    };
    within(bytes.starts_with(&MARK))?;
    let at = DIMENSIONS_AT + DIMENSION_BYTES * axis;
    match field {
        MapField::Address => {
            within(value.is_multiple_of(16))?;
            bytes[8..16].copy_from_slice(&value.to_le_bytes());
        }
        MapField::Rank => {
            within(value < RANK_MAX as u64)?;
            bytes[5] = value as u8 + 1;
        }
        MapField::Dim => {
            within((1..=1 << 32).contains(&value))?;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        MapField::Stride => {
            within(axis + 1 < RANK_MAX && value.is_multiple_of(16) && value < 1 << 40)?;
            bytes[at + DIMENSION_BYTES + 8..at + DIMENSION_BYTES + 16]
                .copy_from_slice(&value.to_le_bytes());
        }
        MapField::BoxDim => {
            within((1..=BOX_MAX.into()).contains(&value))?;
            bytes[at + 16..at + 18].copy_from_slice(&(value as u16).to_le_bytes());
        }
        MapField::ElementStride => {
            within((1..=STEP_MAX.into()).contains(&value))?;
            bytes[at + 18] = if axis == 0 { 1 } else { value as u8 };
        }
        MapField::ElementType => {
            let ty = ELEMENT_TYPES.get(value as usize).copied().flatten();
            let code = TYPES.iter().position(|(known, _)| Some(*known) == ty);
            within(code.is_some())?;
            bytes[4] = code.unwrap_or_default() as u8;
        }
        MapField::Interleave => within(value == 0)?,
        MapField::Swizzle => {
            within(value < 4)?;
            bytes[6] = value as u8;
        }
        MapField::Fill => {
            within(value < 2)?;
            bytes[7] = value as u8;
        }
    }
    Ok(())
}

/// Types by the numbers of `tensormap.replace`; those that flush, round or are packed are not
/// supported.
const ELEMENT_TYPES: [Option<TensorType>; 13] = [
    Some(TensorType::U8),
    Some(TensorType::U16),
    Some(TensorType::U32),
    Some(TensorType::S32),
    Some(TensorType::U64),
    Some(TensorType::S64),
    Some(TensorType::F16),
    Some(TensorType::F32),
    None,
    Some(TensorType::F64),
    Some(TensorType::Bf16),
    None,
    None,
];

fn check_tiled(tiled: &Tiled<'_>) -> Result<()> {
    check_tensor(tiled, tiled.dims.len())?;
    for (axis, &boxed) in tiled.box_dims.iter().enumerate() {
        check((1..=BOX_MAX).contains(&boxed), || {
            format!("box dimension {axis} of {boxed} elements is not within 1 and {BOX_MAX}")
        })?;
    }
    Ok(())
}

fn check_im2col(images: &Tiled<'_>, [lower, upper]: [&[i32]; 2]) -> Result<()> {
    let rank = images.dims.len();
    check((3..=RANK_MAX).contains(&rank), || format!("rank {rank} is not within 3 and 5"))?;
    check_tensor(images, 2)?;
    let [channels, pixels] = [0, 1].map(|axis| images.box_dims[axis]);
    check((1..=BOX_MAX).contains(&channels), || {
        format!("{channels} channels of a pixel are not within 1 and {BOX_MAX}")
    })?;
    check((1..=PIXELS_MAX).contains(&pixels), || {
        format!("{pixels} pixels are not within 1 and {PIXELS_MAX}")
    })?;
    let spatial = rank - 2;
    let bits = CORNER_BITS[spatial - 1];
    for (name, corner) in [("lower", lower), ("upper", upper)] {
        let count = corner.len();
        check(count == spatial, || format!("{count} positions of a corner for rank {rank}"))?;
        let reach = 1 << (bits - 1);
        let outside = corner.iter().find(|position| !(-reach..reach).contains(*position));
        check(outside.is_none(), || {
            let position = outside.unwrap_or(&0);
            format!("{position} of the {name} corner is not of {bits} bits, for rank {rank}")
        })?;
    }
    for axis in 0..spatial {
        let (first, dim) = (i64::from(lower[axis]), images.dims[axis + 1] as i64);
        let last = dim - 1 + i64::from(upper[axis]);
        check(first <= last, || {
            format!("the bounding box from {first} to {last} of dimension {} is empty", axis + 1)
        })?;
    }
    Ok(())
}

/// Bits of a corner's positions with one, two and three spatial dimensions.
const CORNER_BITS: [u32; SPATIAL_MAX] = [16, 8, 5];

/// Bits of a copy's offset with one, two and three spatial dimensions.
pub(crate) const OFFSET_BITS: [u32; SPATIAL_MAX] = [16, 8, 5];

/// Checks what maps of both modes have; their boxes have so many dimensions.
fn check_tensor(tiled: &Tiled<'_>, boxed: usize) -> Result<()> {
    let Tiled { data_type, address, dims, strides, box_dims, element_strides, .. } = *tiled;
    if tiled.interleave != Interleave::None {
        let text = "failed to encode a tensor map: an interleaved layout is not supported";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let rank = dims.len();
    check((1..=RANK_MAX).contains(&rank), || format!("rank {rank} is not within 1 and 5"))?;
    let lengths = [strides.len() + 1, box_dims.len(), element_strides.len()];
    check(lengths == [rank, boxed, rank], || {
        let [strides, boxes, steps] = [lengths[0] - 1, lengths[1], lengths[2]];
        format!("{strides} strides, {boxes} box dimensions, {steps} steps for rank {rank}")
    })?;
    check(address.is_multiple_of(16), || format!("address {address:#x} is not a multiple of 16"))?;
    for (axis, &dim) in dims.iter().enumerate() {
        check((1..=1 << 32).contains(&dim), || {
            format!("dimension {axis} of {dim} elements is not within 1 and 4294967296")
        })?;
    }
    for (axis, &stride) in strides.iter().enumerate() {
        check(stride.is_multiple_of(16) && stride < 1 << 40, || {
            format!("stride {axis} of {stride} bytes is not a multiple of 16 below 1099511627776")
        })?;
    }
    for (axis, &step) in element_strides.iter().enumerate().skip(1) {
        check((1..=STEP_MAX).contains(&step), || {
            format!("step {step} of dimension {axis} is not within 1 and {STEP_MAX}")
        })?;
    }
    let inner = u64::from(box_dims[0]) * u64::from(data_type.bytes());
    check(inner.is_multiple_of(16), || {
        format!("the box's inner dimension of {inner} bytes is not a multiple of 16")
    })?;
    let row = tiled.swizzle.row_bytes().unwrap_or(u64::MAX);
    check(inner <= row, || {
        format!("the box's inner dimension of {inner} bytes exceeds the swizzle's {row}")
    })?;
    check(tiled.fill == OutOfBoundsFill::Zero || data_type.floating(), || {
        "a NaN fill of an integer type".to_string()
    })
}
