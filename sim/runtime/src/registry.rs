//! What a program registers before `main`: fat binaries, with the kernels and variables in them by
//! the address of what stands for each on the host. A binary is loaded when something of it is
//! first used, so that registering does nothing that needs a device.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::{
    cuKernelGetFunction, cuLibraryGetGlobal, cuLibraryGetKernel, cuLibraryGetManaged,
    cuLibraryLoadData,
};
use crate::place::address;

#[derive(Default)]
struct Binary {
    /// Where the program has it.
    image: u64,
    library: Option<u64>,
}

struct Kernel {
    binary: u64,
    name: CString,
    function: Option<u64>,
}

struct Variable {
    binary: u64,
    name: CString,
    /// Whether the host has a pointer to it, which is set once it is loaded.
    managed: bool,
}

#[derive(Default)]
struct Registry {
    last: u64,
    binaries: HashMap<u64, Binary>,
    kernels: HashMap<u64, Kernel>,
    variables: HashMap<u64, Variable>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// A binary's library, loaded if it is not yet.
    fn library(&mut self, handle: u64) -> Outcome<u64> {
        let binary = self.binaries.get_mut(&handle).ok_or(Code::INVALID_DEVICE_FUNCTION)?;
        if let Some(library) = binary.library {
            return Ok(library);
        }
        let mut library = 0;
        let image = std::ptr::with_exposed_provenance(binary.image as usize);
        let (options, values) = (std::ptr::null(), std::ptr::null_mut());
        cuLibraryLoadData(&mut library, image, options, values, 0, options, values, 0)?;
        binary.library = Some(library);
        for (&host, variable) in &self.variables {
            if variable.binary == handle && variable.managed {
                let pointer = std::ptr::with_exposed_provenance_mut::<u64>(host as usize);
                let (mut at, mut bytes) = (0, 0);
                cuLibraryGetManaged(&mut at, &mut bytes, library, variable.name.as_ptr())?;
                // SAFETY: the program registered the pointer that it has for the variable.
                unsafe { pointer.write(at) };
            }
        }
        Ok(library)
    }

    fn kernel(&mut self, host: u64) -> Outcome<u64> {
        let Some(known) = self.kernels.get(&host) else {
            // A handle of the driver's stands for a kernel as well.
            let mut function = 0;
            return match cuKernelGetFunction(&mut function, host) {
                Ok(()) => Ok(function),
                Err(code) if code.is_sticky() => Err(code),
                Err(_) => Err(Code::INVALID_DEVICE_FUNCTION),
            };
        };
        if let Some(function) = known.function {
            return Ok(function);
        }
        let (binary, name) = (known.binary, known.name.clone());
        let library = self.library(binary)?;
        let (mut kernel, mut function) = (0, 0);
        cuLibraryGetKernel(&mut kernel, library, name.as_ptr())?;
        cuKernelGetFunction(&mut function, kernel)?;
        if let Some(known) = self.kernels.get_mut(&host) {
            known.function = Some(function);
        }
        Ok(function)
    }

    fn variable(&mut self, host: u64) -> Outcome<(u64, usize)> {
        let known = self.variables.get(&host).ok_or(Code::INVALID_SYMBOL)?;
        let (binary, name) = (known.binary, known.name.clone());
        let library = self.library(binary)?;
        let (mut at, mut bytes) = (0, 0);
        cuLibraryGetGlobal(&mut at, &mut bytes, library, name.as_ptr())?;
        Ok((at, bytes))
    }
}

/// The function, in the current context, that an address on the host or a handle stands for.
pub fn kernel(of: *const c_void) -> Outcome<u64> {
    current()?;
    registry().kernel(address(of))
}

/// Address and size of the variable that an address on the host stands for.
pub fn variable(of: *const c_void) -> Outcome<(u64, usize)> {
    current()?;
    registry().variable(address(of))
}

/// Forgets what was loaded: a device that is reset has it no more.
pub fn forget() {
    let mut registry = registry();
    registry.binaries.values_mut().for_each(|binary| binary.library = None);
    registry.kernels.values_mut().for_each(|kernel| kernel.function = None);
}

/// A name as the program's image has it.
fn named(name: *const c_char) -> CString {
    match name.is_null() {
        true => CString::default(),
        // SAFETY: not null, so it ends with NUL, as compilers have it.
        false => unsafe { CStr::from_ptr(name) }.to_owned(),
    }
}

/// Registers the fat binary of a translation unit, and returns its handle.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(image: *mut c_void) -> u64 {
    let mut registry = registry();
    registry.last += 1;
    let handle = registry.last;
    registry.binaries.insert(handle, Binary { image: address(image), library: None });
    handle
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_handle: u64) {}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(handle: u64) {
    let mut registry = registry();
    registry.binaries.remove(&handle);
    registry.kernels.retain(|_, kernel| kernel.binary != handle);
    registry.variables.retain(|_, variable| variable.binary != handle);
}

/// Registers a kernel; what else compilers say of it is of no use any more.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFunction(
    binary: u64,
    host: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp_size: *mut c_int,
) {
    let kernel = Kernel { binary, name: named(name), function: None };
    registry().kernels.insert(address(host), kernel);
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterVar(
    binary: u64,
    host: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    let variable = Variable { binary, name: named(name), managed: false };
    registry().variables.insert(address(host), variable);
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterManagedVar(
    binary: u64,
    pointer: *const c_void,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    let variable = Variable { binary, name: named(name), managed: true };
    registry().variables.insert(address(pointer), variable);
}

/// Loads a binary before the host uses a managed variable of it; whether that went well.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(binary: u64) -> c_char {
    let loaded = current().and_then(|()| registry().library(binary));
    c_char::from(loaded.is_ok())
}
