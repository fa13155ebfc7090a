//! Launches: the configuration between `<<<` and `>>>`, and kernels with it.

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};

use crate::code::{Code, Outcome};
use crate::driver::cuLaunchKernelEx;
use crate::last::{finish, runtime};
use crate::layout::{Config, Dim3, DriverConfig};
use crate::own_stream::own;
use crate::place::{address, given, put};
use crate::registry::kernel;

/// What a launch may have at most along each dimension, and threads of a block in all.
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
const THREADS_MAX: u32 = 1024;

/// The attribute of a launch whose blocks are there at once (`cudaLaunchAttributeID`).
const COOPERATIVE: u32 = 2;

/// A configuration that waits for its kernel.
#[derive(Clone, Copy)]
struct Configured {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: u64,
}

thread_local! {
    static CONFIGURED: RefCell<Vec<Configured>> = const { RefCell::new(Vec::new()) };
}

/// `cudaLaunchAttribute` with a value of one word.
#[repr(C, align(8))]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

impl Dim3 {
    fn within(self, most: [u32; 3]) -> bool {
        [self.x, self.y, self.z].iter().zip(most).all(|(&count, most)| (1..=most).contains(&count))
    }
}

/// The driver's configuration of a launch. What no device has is no configuration; what this
/// kernel does not have is for the driver to say.
pub fn driver_config(of: &Config) -> Outcome<DriverConfig> {
    let Dim3 { x, y, z } = of.block;
    let threads = u64::from(x) * u64::from(y) * u64::from(z);
    let fits = of.grid.within(GRID_MAX) && of.block.within(BLOCK_MAX);
    if !fits || threads > u64::from(THREADS_MAX) {
        return Err(Code::INVALID_CONFIGURATION);
    }
    Ok(DriverConfig {
        grid: of.grid,
        block: of.block,
        shared_bytes: u32::try_from(of.shared_bytes).map_err(|_| Code::INVALID_VALUE)?,
        stream: of.stream,
        attributes: of.attributes,
        attribute_count: of.attribute_count,
    })
}

fn launch(function: *const c_void, config: &Config, values: *mut *mut c_void) -> Outcome {
    let config = driver_config(config)?;
    let function = kernel(function)?;
    cuLaunchKernelEx(&config, function, values, null_mut())
}

/// A launch whose stream, if it names none, is the thread's.
pub fn launch_on_own_stream(
    config: *const Config,
    function: *const c_void,
    values: *mut *mut c_void,
) -> Code {
    finish(given(config).and_then(|config| {
        launch(function, &Config { stream: own(config.stream), ..*config }, values)
    }))
}

fn plain(grid: Dim3, block: Dim3, shared_bytes: usize, stream: u64) -> Config {
    Config { grid, block, shared_bytes, stream, attributes: null(), attribute_count: 0 }
}

/// Keeps the configuration of the launch that follows; not 0 if it cannot.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: u64,
) -> c_uint {
    let configured = Configured { grid, block, shared_bytes, stream };
    CONFIGURED.with_borrow_mut(|all| all.push(configured));
    0
}

runtime! {
    fn __cudaPopCallConfiguration(
        grid: *mut Dim3,
        block: *mut Dim3,
        shared_bytes: *mut usize,
        stream: *mut u64,
    ) {
        let last = CONFIGURED.with_borrow_mut(Vec::pop).ok_or(Code::MISSING_CONFIGURATION)?;
        put(grid, last.grid)?;
        put(block, last.block)?;
        put(shared_bytes, last.shared_bytes)?;
        put(stream, last.stream)
    }

    // The handle that programs keep is what they asked with: it is found at each launch, also
    // after the device was reset, and what is wrong with it is told there.
    fn __cudaGetKernel(handle: *mut u64, function: *const c_void) {
        put(handle, address(function))
    }

    fn __cudaLaunchKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        values: *mut *mut c_void,
        shared_bytes: usize,
        stream: u64,
    ) {
        launch(function, &plain(grid, block, shared_bytes, stream), values)
    }

    fn cudaLaunchKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        values: *mut *mut c_void,
        shared_bytes: usize,
        stream: u64,
    ) {
        launch(function, &plain(grid, block, shared_bytes, stream), values)
    }

    fn cudaLaunchCooperativeKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        values: *mut *mut c_void,
        shared_bytes: usize,
        stream: u64,
    ) {
        let mut attribute = Attribute { id: COOPERATIVE, padding: 0, value: [0; 16] };
        attribute.value[0] = 1;
        let attributes = (&raw const attribute).cast();
        let config = plain(grid, block, shared_bytes, stream);
        launch(function, &Config { attributes, attribute_count: 1, ..config }, values)
    }

    fn cudaLaunchKernelExC(
        config: *const Config,
        function: *const c_void,
        values: *mut *mut c_void,
    ) {
        launch(function, given(config)?, values)
    }
}
