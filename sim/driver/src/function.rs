//! Functions and kernels: attributes, parameters, launches. A kernel of a library and the function
//! it has in a context are one.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::Mutex;

use cudarc::driver::sys::CUfunction_attribute_enum::*;
use cudarc::driver::sys::cudaError_enum::*;

use crate::capability::capability;
use crate::capture::PER_THREAD;
use crate::constant_bank::places;
use crate::launch::{Config, Function, Work};
use crate::machine::{MACHINE, State, driver};
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};
use crate::task::Task;

/// Most registers that a thread may have.
const REGISTERS_MAX: usize = 255;

impl Function {
    /// Registers of a thread. None are assigned where nothing is assembled: what the simulator's
    /// own assignment takes, within what an assembler would be held to.
    pub fn registers(&self) -> u32 {
        const LANES: usize = 32;
        let own = (self.kernel.warp_bytes() / (4 * LANES)).clamp(8, REGISTERS_MAX) as u32;
        self.max_registers.map_or(own, |most| own.min(most.max(8)))
    }

    pub fn threads_max(&self) -> u32 {
        let own = self.kernel.block_threads_max().unwrap_or(1024);
        self.kernel.block().map_or(own, |[x, y, z]| x.saturating_mul(y).saturating_mul(z))
    }

    fn attribute(&self, which: c_uint) -> Outcome<c_int> {
        let set = self.hints.iter().find(|(known, _)| *known == which).map(|(_, value)| *value);
        let is = |known: cudarc::driver::sys::CUfunction_attribute_enum| which == known as c_uint;
        let cluster = self.kernel.cluster().unwrap_or([0; 3]);
        let (major, minor) = capability(self.target());
        Ok(match () {
            () if is(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) => self.threads_max() as c_int,
            () if is(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) => self.kernel.shared_bytes() as c_int,
            () if is(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) => self.kernel.const_bytes() as c_int,
            () if is(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) => self.kernel.local_bytes() as c_int,
            () if is(CU_FUNC_ATTRIBUTE_NUM_REGS) => self.registers() as c_int,
            () if is(CU_FUNC_ATTRIBUTE_PTX_VERSION) || is(CU_FUNC_ATTRIBUTE_BINARY_VERSION) => {
                (10 * major + minor) as c_int
            }
            () if is(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) => {
                self.shared_bytes_max as c_int
            }
            () if is(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) => 0,
            () if is(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) => cluster[0] as c_int,
            () if is(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) => cluster[1] as c_int,
            () if is(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH) => cluster[2] as c_int,
            () if is(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) => set.unwrap_or(-1),
            () if which <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE as c_uint => {
                set.unwrap_or(0)
            }
            () => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Whether clusters of more than 8 blocks were asked for.
    pub fn has_wide_clusters(&self) -> bool {
        let asked = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as c_uint;
        self.hints.iter().any(|(which, value)| *which == asked && *value != 0)
    }

    fn set(&mut self, which: c_uint, value: c_int) -> Outcome {
        let is = |known: cudarc::driver::sys::CUfunction_attribute_enum| which == known as c_uint;
        let hint = [
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
            CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        ]
        .into_iter()
        .any(is);
        if hint {
            if is(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
                && !(-1..=100).contains(&value)
            {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            self.hints.retain(|(known, _)| *known != which);
            self.hints.push((which, value));
            return Ok(());
        }
        if !is(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let all = MACHINE.device.config().shared_bytes_max;
        let most = all.saturating_sub(self.kernel.shared_bytes());
        let bytes = u32::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if bytes > most {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.shared_bytes_max = bytes;
        Ok(())
    }

    fn target(&self) -> &str {
        self.kernel.target()
    }
}

/// Calls `f` with a function.
fn with<T>(state: &mut State, handle: u64, f: impl FnOnce(&mut Function) -> T) -> Outcome<T> {
    state.functions.get_mut(&handle).map(f).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Texts that were given out, which stay for as long as the process lives.
static NAMES: Mutex<Vec<CString>> = Mutex::new(Vec::new());

/// The name of a function as C has it, one for each.
fn name(state: &mut State, handle: u64) -> Outcome<u64> {
    let name = with(state, handle, |of| CString::new(of.kernel.name()))?;
    let name = name.map_err(|_| CUDA_ERROR_INVALID_HANDLE)?;
    let mut names = NAMES.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    if !names.contains(&name) {
        names.push(name.clone());
    }
    let known = names.iter().find(|known| **known == name);
    let pointer = known.map_or(std::ptr::null::<c_char>(), |known| known.as_ptr());
    Ok(pointer.expose_provenance() as u64)
}

fn param(state: &mut State, handle: u64, index: usize) -> Outcome<(usize, usize)> {
    let found = with(state, handle, |of| {
        let param = of.kernel.params().get(index)?;
        Some((places(&of.kernel).0[index], param.bytes))
    })?;
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn launch(config: &Config, function: u64, values: In<Host>, extra: In<Host>) -> Outcome {
    let state = MACHINE.current()?;
    let found = state.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let work = Work::read(found, config, values, extra)?;
    drop(state);
    MACHINE.submit(config.stream, Task::Kernel(Box::new(work)))
}

driver! {
    fn cuFuncGetAttribute(value: Out<c_int>, which: c_uint, function: u64) {
        let found = with(&mut *MACHINE.current()?, function, |of| of.attribute(which))??;
        value.put(found)
    }

    fn cuFuncSetAttribute(function: u64, which: c_uint, value: c_int) {
        with(&mut *MACHINE.current()?, function, |of| of.set(which, value))?
    }

    fn cuKernelGetAttribute(value: Out<c_int>, which: c_uint, kernel: u64, device: c_int) {
        if device != 0 {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let found = with(&mut *MACHINE.ready()?, kernel, |of| of.attribute(which))??;
        value.put(found)
    }

    fn cuKernelSetAttribute(which: c_uint, value: c_int, kernel: u64, device: c_int) {
        if device != 0 {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        with(&mut *MACHINE.ready()?, kernel, |of| of.set(which, value))?
    }

    fn cuFuncSetCacheConfig(function: u64, config: c_uint) {
        with(&mut *MACHINE.current()?, function, |_| ())?;
        if config <= 3 { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    fn cuKernelSetCacheConfig(kernel: u64, config: c_uint, device: c_int) {
        with(&mut *MACHINE.ready()?, kernel, |_| ())?;
        match (config, device) {
            (0..=3, 0) => Ok(()),
            (_, 0) => Err(CUDA_ERROR_INVALID_VALUE),
            _ => Err(CUDA_ERROR_INVALID_DEVICE),
        }
    }

    fn cuFuncSetSharedMemConfig(function: u64, config: c_uint) {
        with(&mut *MACHINE.current()?, function, |_| ())?;
        if config <= 2 { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    fn cuFuncGetName(text: Out<u64>, function: u64) {
        text.put(name(&mut *MACHINE.current()?, function)?)
    }

    fn cuKernelGetName(text: Out<u64>, kernel: u64) {
        text.put(name(&mut *MACHINE.ready()?, kernel)?)
    }

    fn cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        let (at, size) = param(&mut *MACHINE.current()?, function, index)?;
        bytes.offer(size);
        offset.put(at)
    }

    fn cuKernelGetParamInfo(kernel: u64, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        let (at, size) = param(&mut *MACHINE.ready()?, kernel, index)?;
        bytes.offer(size);
        offset.put(at)
    }

    fn cuFuncGetParamCount(function: u64, count: Out<usize>) {
        count.put(with(&mut *MACHINE.current()?, function, |of| of.kernel.params().len())?)
    }

    fn cuKernelGetParamCount(kernel: u64, count: Out<usize>) {
        count.put(with(&mut *MACHINE.ready()?, kernel, |of| of.kernel.params().len())?)
    }

    fn cuLaunchKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: u64,
        values: In<Host>,
        extra: In<Host>,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        let config = Config::of(grid, [block_x, block_y, block_z], shared_bytes, stream);
        launch(&config, function, values, extra)
    }

    fn cuLaunchCooperativeKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: u64,
        values: In<Host>,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        let config = Config::of(grid, [block_x, block_y, block_z], shared_bytes, stream);
        let state = MACHINE.current()?;
        let found = state.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let work = Work::read(found, &config, values, In::null())?.cooperative();
        drop(state);
        MACHINE.submit(stream, Task::Kernel(Box::new(work)))
    }

    fn cuLaunchKernelEx(config: In<Config>, function: u64, values: In<Host>, extra: In<Host>) {
        launch(&config.get()?, function, values, extra)
    }

    fn cuLaunchKernelEx_ptsz(
        config: In<Config>,
        function: u64,
        values: In<Host>,
        extra: In<Host>,
    ) {
        let mut config = config.get()?;
        if config.stream == 0 {
            config.stream = PER_THREAD;
        }
        launch(&config, function, values, extra)
    }
}
