//! What an engine hands on: the kernel to generate and the way to launch it.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::target::Arch;

/// All that a kernel's source depends on: a template, its parameters, an architecture.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelSpec {
    /// `{sm}_{op}_{dtype}_{variant}`: shared by template, golden file, case and bench. A word
    /// ([`is_word`](crate::escape::is_word)), as the kernel's name is.
    pub stem: String,
    /// Path of the template below `templates/`, without `.tera`.
    pub template: &'static str,
    /// The kernel's name in the source.
    pub entry: &'static str,
    /// What it is generated for.
    pub arch: Arch,
    /// The template's variables, a JSON object.
    pub parameters: serde_json::Value,
}

/// A kernel and its launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelPlan {
    /// What to generate.
    pub spec: KernelSpec,
    /// How to launch it.
    pub launch: LaunchPlan,
}

/// The kernels that run a graph one after the other, and the memory they share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lowering {
    /// In the order of their launches.
    pub kernels: Vec<KernelPlan>,
    /// Bytes of each piece of memory that a kernel leaves to a later one
    /// ([`Argument::Scratch`]); its content is undefined before the first.
    pub scratch: Vec<u64>,
}

impl From<KernelPlan> for Lowering {
    /// One kernel that needs no other.
    fn from(kernel: KernelPlan) -> Lowering {
        Lowering { kernels: vec![kernel], scratch: Vec::new() }
    }
}

/// How many blocks a launch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grid {
    /// Exactly so many; 0 launches nothing.
    Fixed(u32),
    /// As many as the device holds at once, but not more than there is work for.
    Resident {
        /// Blocks that have work.
        blocks_max: u32,
        /// The count is a multiple of this, at least one of it.
        multiple_of: u32,
    },
}

/// Shape and arguments of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchPlan {
    /// Blocks, along x.
    pub grid: Grid,
    /// Threads of a block, along x.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be resident together.
    pub cooperative: bool,
    /// The kernel's parameters: 8 bytes each, a tensor map 128 at a multiple of 64.
    pub arguments: Vec<Argument>,
    /// What [`Argument::Map`] refers to.
    pub maps: Vec<TensorMap>,
    /// Parameters behind those: numbers that are known now, 8 bytes each, such as the extents and
    /// strides of a kernel that serves any shape.
    pub numbers: Vec<i64>,
}

/// One kernel parameter; tensors are named by their canonical uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Argument {
    /// The tensor's device address.
    Address(i64),
    /// The tensor's single element, passed as a `double`.
    Value(i64, DType),
    /// The address of the scratch memory at this position of [`Lowering::scratch`], aligned to 256
    /// bytes.
    Scratch(usize),
    /// The tensor map at this position of [`LaunchPlan::maps`], a `__grid_constant__` parameter.
    Map(usize),
}

/// A tensor in global memory and the box of it that a bulk tensor copy moves (TMA, from sm_90 on):
/// the arguments of `cuTensorMapEncodeTiled`. Elements outside the tensor read as zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMap {
    /// The tensor's canonical uid.
    pub tensor: i64,
    /// The type of its elements.
    pub dtype: DType,
    /// Elements along each dimension, the contiguous one first: 1 to 5 of them.
    pub dims: Vec<u64>,
    /// Bytes between neighbours along each dimension but the first, multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of the box along each dimension, 1 to 256.
    pub box_dims: Vec<u32>,
    /// The pattern of the box in shared memory.
    pub swizzle: Swizzle,
}

/// How 16-byte chunks of a box are spread over the banks of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Swizzle {
    /// In order.
    #[default]
    None,
    /// In patterns of 32 bytes.
    B32,
    /// In patterns of 64 bytes.
    B64,
    /// In patterns of 128 bytes.
    B128,
}
