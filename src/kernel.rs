//! Output of an engine: the kernels to generate and their launches.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::progression::Progression;
use crate::target::Arch;

/// Everything that determines a kernel's source: template, parameters, architecture.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelSpec {
    /// `{sm}_{op}_{dtype}_{variant}`: shared by template, golden file, case and bench. Must be a
    /// word ([`is_word`](crate::escape::is_word)), as must the kernel name.
    pub stem: String,
    /// Path of the template below `templates/`, without `.tera`.
    pub template: &'static str,
    /// Name of the kernel function in the source.
    pub entry: &'static str,
    /// Architecture it is generated for.
    pub arch: Arch,
    /// Variables of the template besides `stem`, `entry` and `arch`, a JSON object; launches of one
    /// kernel share it.
    pub parameters: Arc<serde_json::Value>,
}

/// A kernel and its launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelPlan {
    /// Kernel to generate.
    pub spec: KernelSpec,
    /// Its launch.
    pub launch: LaunchPlan,
}

/// The kernels that execute a graph in sequence, and their shared scratch memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lowering {
    /// Kernels in launch order.
    pub kernels: Vec<KernelPlan>,
    /// Sizes in bytes of the scratch buffers between kernels ([`Argument::Scratch`]), whose initial
    /// contents are undefined.
    pub scratch: Vec<u64>,
}

impl From<KernelPlan> for Lowering {
    /// A single kernel without scratch memory.
    fn from(kernel: KernelPlan) -> Lowering {
        Lowering { kernels: vec![kernel], scratch: Vec::new() }
    }
}

/// A number of blocks: so many for every tile of items that is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Number of items.
    pub items: i64,
    /// Items of a tile, from 1.
    pub tile: i64,
    /// Blocks of a tile.
    pub each: i64,
}

impl Blocks {
    /// The number of blocks; engines see to it that a grid may have as many.
    pub fn count(&self) -> u32 {
        ((self.items + self.tile - 1) / self.tile * self.each) as u32
    }
}

impl From<u32> for Blocks {
    fn from(count: u32) -> Blocks {
        Blocks { items: count.into(), tile: 1, each: 1 }
    }
}

impl Progression for Blocks {
    fn term(first: &Blocks, second: &Blocks, at: i64) -> Option<Blocks> {
        let alike = (first.tile, first.each) == (second.tile, second.each);
        let items = alike.then(|| i64::term(&first.items, &second.items, at))??;
        Some(Blocks { items, ..*first })
    }
}

/// Number of blocks of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grid {
    /// Exactly this number; 0 launches nothing.
    Fixed(Blocks),
    /// As many blocks as fit on the device at once, up to `blocks_max`.
    Resident {
        /// Number of blocks that have work.
        blocks_max: Blocks,
        /// Granularity: the count is a positive multiple of this.
        multiple_of: u32,
    },
}

impl Grid {
    /// Exactly this number of blocks.
    pub fn fixed(count: u32) -> Grid {
        Grid::Fixed(Blocks::from(count))
    }
}

impl Progression for Grid {
    fn term(first: &Grid, second: &Grid, at: i64) -> Option<Grid> {
        match (first, second) {
            (Grid::Fixed(first), Grid::Fixed(second)) => {
                Blocks::term(first, second, at).map(Grid::Fixed)
            }
            (
                Grid::Resident { blocks_max: first, multiple_of },
                Grid::Resident { blocks_max: second, multiple_of: other },
            ) if multiple_of == other => {
                let blocks_max = Blocks::term(first, second, at)?;
                Some(Grid::Resident { blocks_max, multiple_of: *multiple_of })
            }
            _ => None,
        }
    }
}

/// Shape and arguments of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchPlan {
    /// Grid size along x.
    pub grid: Grid,
    /// Threads per block, along x.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be co-resident (cooperative launch).
    pub cooperative: bool,
    /// Kernel parameters: 8 bytes each, tensor maps 128 bytes aligned to 64.
    pub arguments: Vec<Argument>,
    /// Tensor maps that [`Argument::Map`] refers to.
    pub maps: Vec<TensorMap>,
    /// Integers passed after the arguments, 8 bytes each, such as the extents and strides of a
    /// dynamic-shape kernel.
    pub numbers: Vec<i64>,
}

/// Grids, numbers and extents of maps grow.
impl Progression for LaunchPlan {
    fn term(first: &LaunchPlan, second: &LaunchPlan, at: i64) -> Option<LaunchPlan> {
        Some(LaunchPlan {
            grid: Grid::term(&first.grid, &second.grid, at)?,
            maps: Vec::term(&first.maps, &second.maps, at)?,
            numbers: Vec::term(&first.numbers, &second.numbers, at)?,
            arguments: first.arguments.clone(),
            ..*first
        })
    }
}

/// A kernel parameter; tensors are identified by canonical uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// Device address of the tensor.
    Address(i64),
    /// The by-value tensor's element, passed as a `double`.
    Value(i64, DType),
    /// Address of the scratch buffer at this index of [`Lowering::scratch`], aligned to 256 bytes.
    Scratch(usize),
    /// Address of the 8 bytes, zero at first, in which a kernel that waits reports that it has not
    /// seen what it waits for ([`Wait`]).
    Report(Wait),
    /// The tensor map at this index of [`LaunchPlan::maps`], a `__grid_constant__` parameter.
    Map(usize),
}

/// What a kernel waits for, and how long.
///
/// Its report is a word that is not 0 where the wait has ended by its time, and a word with what it
/// has seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Canonical uid of the flag.
    pub flag: i64,
    /// The value that it is to have.
    pub value: i32,
    /// After which the wait ends, in milliseconds.
    pub timeout_ms: u32,
}

/// A tensor in global memory and the box that a TMA copy moves (sm_90 and later): the arguments of
/// `cuTensorMapEncodeTiled`, or of `cuTensorMapEncodeIm2col`. Out-of-bounds elements read as zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMap {
    /// What has the tensor.
    #[serde(flatten)]
    pub memory: Mapped,
    /// Element type.
    pub dtype: DType,
    /// Extents of 1 to 5 dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    /// Strides in bytes of all dimensions but the first, multiples of 16.
    pub strides: Vec<u64>,
    /// Box extents in elements, 1 to 256 each; with `im2col` channels and pixels (up to 1024).
    pub box_dims: Vec<u32>,
    /// Shared-memory swizzle of the box.
    pub swizzle: Swizzle,
    /// The walk over pixels of a map in im2col mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub im2col: Option<Im2col>,
}

/// The memory of a map's tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapped {
    /// That of the tensor with this canonical uid.
    Tensor(i64),
    /// The scratch buffer at this index of [`Lowering::scratch`].
    Scratch(usize),
}

impl From<Mapped> for Argument {
    fn from(memory: Mapped) -> Argument {
        match memory {
            Mapped::Tensor(uid) => Argument::Address(uid),
            Mapped::Scratch(at) => Argument::Scratch(at),
        }
    }
}

/// The bounding box that a map in im2col mode walks over, along 1 to 3 spatial dimensions, the
/// innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Im2col {
    /// The least position.
    pub lower_corner: Vec<i32>,
    /// The greatest position, from the tensor's last element on.
    pub upper_corner: Vec<i32>,
    /// Steps, 1 to 8.
    pub steps: Vec<u32>,
}

impl TensorMap {
    /// Steps along every dimension.
    pub(crate) fn element_strides(&self) -> Vec<u32> {
        let mut strides = vec![1; self.dims.len()];
        for (stride, step) in
            strides.iter_mut().skip(1).zip(self.im2col.iter().flat_map(|of| &of.steps))
        {
            *stride = *step;
        }
        strides
    }
}

/// Extents and strides grow.
impl Progression for TensorMap {
    fn term(first: &TensorMap, second: &TensorMap, at: i64) -> Option<TensorMap> {
        let dims = Vec::term(&first.dims, &second.dims, at)?;
        let strides = Vec::term(&first.strides, &second.strides, at)?;
        Some(TensorMap { dims, strides, ..first.clone() })
    }
}

/// Swizzle of 16-byte chunks in shared memory, which avoids bank conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Swizzle {
    /// No swizzle.
    #[default]
    None,
    /// 32-byte swizzle atom.
    B32,
    /// 64-byte swizzle atom.
    B64,
    /// 128-byte swizzle atom.
    B128,
}
