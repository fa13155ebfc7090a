//! What a TMA copy moves of a tensor, as its tensor map says: a box, rows of a matrix, or pixels.

use crate::tensor_map::{
    BOX_MAX, CORNERS_AT, DIMENSION_BYTES, DIMENSIONS_AT, MARK, MODE_AT, OFFSET_BITS, PIXELS_MAX,
    RANK_MAX, SPATIAL_MAX, STEP_MAX, Swizzle, TYPES, TensorType,
};
use crate::types::Type;

/// A decoded tensor map with the coordinates of a box.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    pub element_bytes: u64,
    pub element: Type,
    pub rank: usize,
    pub swizzle: Swizzle,
    /// Bytes of an out-of-bounds element.
    pub fill: [u8; 8],
    address: u64,
    dims: [i64; RANK_MAX],
    strides: [u64; RANK_MAX],
    /// Elements traversed along each dimension, and their strides.
    counts: [u64; RANK_MAX],
    steps: [i64; RANK_MAX],
    start: [i64; RANK_MAX],
    path: Path,
}

/// The order of a tile's rows.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// A box of rows that follow each other.
    Box,
    /// These rows of a matrix.
    Rows([i64; 4]),
    /// Pixels: positions from the lower to the upper corner, both included, with offsets added.
    Pixels { lower: [i64; SPATIAL_MAX], upper: [i64; SPATIAL_MAX], offsets: [i64; SPATIAL_MAX] },
}

/// The in-bounds part of a row of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TileRow {
    /// Offset of the row in the box, in bytes.
    pub at: u64,
    /// Bytes of the row before the tensor, and inside it.
    pub before: u64,
    pub inside: u64,
    /// Global address of the in-bounds part.
    pub address: u64,
}

impl Tile {
    /// Decodes a tensor map; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8; 128]) -> Option<Tile> {
        let rest = bytes.strip_prefix(&MARK)?;
        let &[code, rank, swizzle, nan, ..] = rest else { return None };
        let (ty, element_bytes) = *TYPES.get(usize::from(code))?;
        let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let wide = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let mut tile = Tile {
            element_bytes: element_bytes.into(),
            element: ty.element(),
            rank: rank.into(),
            swizzle: *swizzles.get(usize::from(swizzle))?,
            fill: [0; 8],
            address: wide(8),
            dims: [1; RANK_MAX],
            strides: [0; RANK_MAX],
            counts: [1; RANK_MAX],
            steps: [1; RANK_MAX],
            start: [0; RANK_MAX],
            path: Path::Box,
        };
        let pixels = bytes[MODE_AT] == 1;
        if !(if pixels { 3 } else { 1 }..=RANK_MAX).contains(&tile.rank) {
            return None;
        }
        for axis in 0..tile.rank {
            let at = DIMENSIONS_AT + DIMENSION_BYTES * axis;
            tile.dims[axis] = wide(at) as i64;
            tile.strides[axis] = wide(at + 8);
            let boxed = u32::from(u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]));
            let step = u32::from(bytes[at + 18]);
            let boxed_max = if pixels && axis == 1 { PIXELS_MAX } else { BOX_MAX };
            if !(1..=boxed_max).contains(&boxed) || !(1..=STEP_MAX).contains(&step) {
                return None;
            }
            tile.steps[axis] = step.into();
            tile.counts[axis] = if pixels { boxed } else { boxed.div_ceil(step) }.into();
        }
        if pixels {
            let corner = |at: usize, axis: usize| {
                i64::from(i16::from_le_bytes([bytes[at + 2 * axis], bytes[at + 2 * axis + 1]]))
            };
            let [lower_at, upper_at] = CORNERS_AT;
            let lower = std::array::from_fn(|axis| corner(lower_at, axis));
            let last = |axis: usize| tile.dims[axis + 1] - 1 + corner(upper_at, axis);
            let upper = std::array::from_fn(last);
            tile.path = Path::Pixels { lower, upper, offsets: [0; SPATIAL_MAX] };
        }
        let (inner, row) = (tile.row_bytes(), tile.swizzle.row_bytes().unwrap_or(u64::MAX));
        if !inner.is_multiple_of(16) || inner > row {
            return None;
        }
        if nan != 0 {
            tile.fill = match ty {
                TensorType::F16 | TensorType::Bf16 => {
                    [0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0x7f]
                }
                TensorType::F32 => [0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f],
                _ => f64::NAN.to_le_bytes(),
            };
        }
        Some(tile)
    }

    /// Takes the box at these coordinates.
    ///
    /// # Errors
    ///
    /// Why the map has none.
    pub fn take_box(&mut self, start: [i64; RANK_MAX]) -> Result<(), String> {
        self.start = start;
        match self.path {
            Path::Pixels { .. } => Err("a tensor map of im2col mode, not of boxes".to_owned()),
            _ => Ok(()),
        }
    }

    /// Takes four rows from a column on.
    ///
    /// # Errors
    ///
    /// Why the map has none.
    pub fn take_rows(&mut self, [column, rows @ ..]: [i64; RANK_MAX]) -> Result<(), String> {
        let single = self.counts[1] == 1;
        self.take_box([column, 0, 0, 0, 0])?;
        self.counts[1] = rows.len() as u64;
        self.path = Path::Rows(rows);
        match single {
            true => Ok(()),
            false => Err("rows of a tensor map whose box has more than one row".to_owned()),
        }
    }

    /// Takes the pixels from these coordinates on, with offsets.
    ///
    /// # Errors
    ///
    /// Why the map has none.
    pub fn take_pixels(
        &mut self,
        start: [i64; RANK_MAX],
        taken: [i64; SPATIAL_MAX],
    ) -> Result<(), String> {
        self.start = start;
        let Path::Pixels { lower, upper, offsets } = &mut self.path else {
            return Err("a tensor map of boxes, not of im2col mode".to_owned());
        };
        *offsets = taken;
        let spatial = self.rank - 2;
        for axis in 0..spatial {
            let (at, [first, last]) = (start[axis + 1], [lower[axis], upper[axis]]);
            if !(first..=last).contains(&at) {
                let axis = axis + 1;
                return Err(format!(
                    "coordinate {at} of dimension {axis} outside the bounding box, {first} to \
                     {last}"
                ));
            }
            let (offset, bits) = (taken[axis], OFFSET_BITS[spatial - 1]);
            if offset >> bits != 0 {
                return Err(format!("an im2col offset {offset}, more than {bits} bits"));
            }
        }
        Ok(())
    }

    /// Whether its pixels may lie outside the tensor, where only loads reach.
    pub fn leaves(&self) -> bool {
        let Path::Pixels { lower, upper, .. } = self.path else { return false };
        let outside = |axis: usize| lower[axis] < 0 || upper[axis] >= self.dims[axis + 1];
        self.start.iter().any(|start| *start < 0) || (0..self.rank - 2).any(outside)
    }

    /// Size of the box in bytes.
    pub fn bytes(&self) -> u64 {
        self.counts.iter().product::<u64>() * self.element_bytes
    }

    /// Size of a row of the box in bytes.
    pub fn row_bytes(&self) -> u64 {
        self.counts[0] * self.element_bytes
    }

    /// Rows of the box, in order.
    pub fn rows(&self) -> impl Iterator<Item = TileRow> + '_ {
        let rows: u64 = self.counts[1..].iter().product();
        let mut pixel = self.start;
        (0..rows).map(move |row| {
            let at = match &self.path {
                Path::Box => self.boxed(row),
                Path::Rows(rows) => [self.start[0], rows[row as usize % rows.len()], 0, 0, 0],
                Path::Pixels { lower, upper, offsets } => {
                    let mut at = pixel;
                    for (at, offset) in at[1..self.rank - 1].iter_mut().zip(offsets) {
                        *at += offset;
                    }
                    self.advance(&mut pixel, lower, upper);
                    at
                }
            };
            let (mut address, mut inside) = (self.address, true);
            for (at, (dim, stride)) in at.iter().zip(self.dims.iter().zip(&self.strides)).skip(1) {
                inside &= (0..*dim).contains(at);
                address = address.wrapping_add((*at as u64).wrapping_mul(*stride));
            }
            let (first, count) = (self.start[0], self.counts[0] as i64);
            let before = (-first).clamp(0, count);
            let end = (self.dims[0] - first).clamp(before, count);
            let taken = if inside { (end - before) as u64 } else { 0 };
            TileRow {
                at: row * self.row_bytes(),
                before: before as u64 * self.element_bytes,
                inside: taken * self.element_bytes,
                address: address
                    .wrapping_add(((first + before) as u64).wrapping_mul(self.element_bytes)),
            }
        })
    }

    /// Coordinates of a row of a box.
    fn boxed(&self, row: u64) -> [i64; RANK_MAX] {
        let (mut at, mut rest) = (self.start, row);
        for (at, (count, step)) in at.iter_mut().zip(self.counts.iter().zip(&self.steps)).skip(1) {
            *at += (rest % count) as i64 * step;
            rest /= count;
        }
        at
    }

    /// The pixel behind another: along the width first, in the next image at the end of one.
    fn advance(
        &self,
        pixel: &mut [i64; RANK_MAX],
        lower: &[i64; SPATIAL_MAX],
        upper: &[i64; SPATIAL_MAX],
    ) {
        for axis in 0..self.rank - 2 {
            pixel[axis + 1] += self.steps[axis + 1];
            if pixel[axis + 1] <= upper[axis] {
                return;
            }
            pixel[axis + 1] = lower[axis];
        }
        pixel[self.rank - 1] += 1;
    }
}
