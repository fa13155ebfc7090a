//! Modules, and libraries, which are modules that belong to no context.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::cudaError_enum::*;

use crate::image;
use crate::jit::Options;
use crate::launch::{Function, SHARED_BYTES_DEFAULT};
use crate::machine::{MACHINE, State, driver};
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out, Text};

/// Loads PTX and returns its handle.
fn load(text: &str, options: &Options) -> Outcome<u64> {
    match image::load(text, options.max_registers) {
        Ok(loaded) => {
            options.tell("", "")?;
            let mut state = MACHINE.state();
            let handle = state.handle();
            state.modules.insert(handle, loaded);
            Ok(handle)
        }
        Err((code, why)) => {
            options.tell("", &why)?;
            Err(code)
        }
    }
}

fn none() -> Outcome<Options> {
    Options::read(0, In::null(), Out::null())
}

fn file(path: Text) -> Outcome<String> {
    let path = path.str()?;
    let data = std::fs::read(path).map_err(|error| {
        eprintln!("kiln-sim-driver: failed to read `{path}`: {error}");
        CUDA_ERROR_FILE_NOT_FOUND
    })?;
    image::sized(&data)
}

/// A module is loaded into a context; loading waits for the device.
fn in_context() -> Outcome {
    MACHINE.current()?.streams.unsafe_call()
}

fn unload(module: u64) -> Outcome {
    let mut state = MACHINE.ready()?;
    state.streams.unsafe_call()?;
    state.modules.remove(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    state.functions.retain(|_, function| function.module != module);
    Ok(())
}

/// The handle of a kernel, which is the same whenever it is asked for.
fn kernel(state: &mut State, module: u64, name: &str) -> Outcome<u64> {
    let loaded = state.modules.get(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let mut known = state.functions.iter();
    if let Some((&handle, _)) =
        known.find(|(_, of)| of.module == module && of.kernel.name() == name)
    {
        return Ok(handle);
    }
    let kernel = loaded.module.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
    let max_registers = loaded.max_registers;
    let shared_bytes_max = SHARED_BYTES_DEFAULT.saturating_sub(kernel.shared_bytes());
    let handle = state.handle();
    let hints = Vec::new();
    let function = Function { module, kernel, shared_bytes_max, hints, max_registers };
    state.functions.insert(handle, function);
    Ok(handle)
}

fn kernels(state: &mut State, module: u64, to: Out<u64>, count: c_uint) -> Outcome {
    let loaded = state.modules.get(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let names: Vec<String> = loaded.module.kernels().map(str::to_owned).collect();
    for (index, name) in names.iter().take(count as usize).enumerate() {
        to.at(index).put(kernel(state, module, name)?)?;
    }
    Ok(())
}

fn count(module: u64) -> Outcome<c_uint> {
    let state = MACHINE.ready()?;
    let loaded = state.modules.get(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    Ok(loaded.module.kernels().count() as c_uint)
}

fn global(address: Out<u64>, bytes: Out<usize>, module: u64, name: Text) -> Outcome {
    let state = MACHINE.ready()?;
    let loaded = state.modules.get(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
    drop(state);
    let found = MACHINE.device.variable(&loaded.module, name.str()?);
    let found = found.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let (start, size) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
    address.offer(start);
    bytes.offer(size as usize);
    Ok(())
}

driver! {
    fn cuModuleLoad(module: Out<u64>, path: Text) {
        in_context()?;
        module.put(load(&file(path)?, &none()?)?)
    }

    fn cuModuleLoadData(module: Out<u64>, image: Host) {
        in_context()?;
        module.put(load(&image::text(image)?, &none()?)?)
    }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: Host,
        count: c_uint,
        names: In<c_uint>,
        values: Out<u64>,
    ) {
        in_context()?;
        let options = Options::read(count, names, values)?;
        module.put(load(&image::text(image)?, &options)?)
    }

    fn cuModuleLoadFatBinary(module: Out<u64>, image: Host) {
        in_context()?;
        module.put(load(&image::text(image)?, &none()?)?)
    }

    fn cuModuleUnload(module: u64) {
        let _state = MACHINE.current()?;
        drop(_state);
        unload(module)
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) {
        let mut state = MACHINE.current()?;
        function.put(kernel(&mut state, module, name.str()?)?)
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: u64, name: Text) {
        drop(MACHINE.current()?);
        global(address, bytes, module, name)
    }

    fn cuModuleGetFunctionCount(functions: Out<c_uint>, module: u64) {
        functions.put(count(module)?)
    }

    fn cuModuleEnumerateFunctions(functions: Out<u64>, most: c_uint, module: u64) {
        kernels(&mut *MACHINE.current()?, module, functions, most)
    }

    fn cuModuleGetLoadingMode(mode: Out<c_uint>) {
        // Eager: a module is checked as a whole when it is loaded.
        mode.put(1)
    }

    fn cuLibraryLoadData(
        library: Out<u64>,
        image: Host,
        names: In<c_uint>,
        values: Out<u64>,
        count: c_uint,
        _library_names: In<c_uint>,
        _library_values: Out<u64>,
        _library_count: c_uint,
    ) {
        MACHINE.ready()?.streams.unsafe_call()?;
        let options = Options::read(count, names, values)?;
        library.put(load(&image::text(image)?, &options)?)
    }

    fn cuLibraryLoadFromFile(
        library: Out<u64>,
        path: Text,
        names: In<c_uint>,
        values: Out<u64>,
        count: c_uint,
        _library_names: In<c_uint>,
        _library_values: Out<u64>,
        _library_count: c_uint,
    ) {
        MACHINE.ready()?.streams.unsafe_call()?;
        let options = Options::read(count, names, values)?;
        library.put(load(&file(path)?, &options)?)
    }

    fn cuLibraryUnload(library: u64) {
        unload(library)
    }

    fn cuLibraryGetKernel(to: Out<u64>, library: u64, name: Text) {
        let mut state = MACHINE.ready()?;
        to.put(kernel(&mut state, library, name.str()?)?)
    }

    fn cuLibraryGetKernelCount(to: Out<c_uint>, library: u64) {
        to.put(count(library)?)
    }

    fn cuLibraryEnumerateKernels(to: Out<u64>, most: c_uint, library: u64) {
        kernels(&mut *MACHINE.ready()?, library, to, most)
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        let state = MACHINE.current()?;
        state.modules.get(&library).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        module.put(library)
    }

    fn cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: u64, name: Text) {
        drop(MACHINE.current()?);
        global(address, bytes, library, name)
    }

    fn cuLibraryGetManaged(address: Out<u64>, bytes: Out<usize>, library: u64, name: Text) {
        let state = MACHINE.ready()?;
        let of = state.modules.get(&library).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if !of.module.is_managed(name.str()?) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        drop(state);
        global(address, bytes, library, name)
    }

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        let state = MACHINE.current()?;
        state.functions.get(&kernel).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        function.put(kernel)
    }

    fn cuKernelGetLibrary(library: Out<u64>, kernel: u64) {
        let state = MACHINE.ready()?;
        let of = state.functions.get(&kernel).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        library.put(of.module)
    }

    fn cuFuncGetModule(module: Out<u64>, function: u64) {
        let state = MACHINE.current()?;
        let of = state.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        module.put(of.module)
    }

    fn cuFuncLoad(function: u64) {
        let state = MACHINE.current()?;
        state.functions.get(&function).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn cuFuncIsLoaded(loaded: Out<c_int>, function: u64) {
        let state = MACHINE.current()?;
        state.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        loaded.put(1)
    }
}
