//! Output of an engine: the kernels to generate and their launches.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
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

/// Number of blocks of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grid {
    /// Exactly this number; 0 launches nothing.
    Fixed(u32),
    /// As many blocks as fit on the device at once, up to `blocks_max`.
    Resident {
        /// Number of blocks that have work.
        blocks_max: u32,
        /// Granularity: the count is a positive multiple of this.
        multiple_of: u32,
    },
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
    /// Canonical uid of the tensor.
    pub tensor: i64,
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
