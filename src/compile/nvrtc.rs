//! Binding to an NVRTC library loaded by its full path.
//!
//! cudarc's own loader searches libraries by bare name, panics if there is none, and may pick
//! another one than was located. Types are cudarc's; functions are resolved here.

#![expect(unsafe_code, reason = "NVRTC is a C library")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

use cudarc::nvrtc::sys::nvrtcProgram;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use tracing::debug_span;
use tracing::field::Empty;

use crate::codegen::KernelSource;
use crate::compile::directives::reads_file;
use crate::compile::{Image, Resources, elf, is_allowed, options};
use crate::error::{CompileFailure, Error, Result};
use crate::escape::escaped;

/// An `nvrtcResult`. Not cudarc's enum, because other library versions may return codes it lacks.
type Status = c_int;

const SUCCESS: Status = 0;

/// A loaded NVRTC library; thread-safe.
pub struct Compiler {
    path: PathBuf,
    version: (i32, i32),
    functions: Functions,
    /// Never unloaded, because NVRTC does not survive that.
    _library: std::mem::ManuallyDrop<Library>,
}

struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut nvrtcProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut nvrtcProgram) -> Status,
    compile: unsafe extern "C" fn(nvrtcProgram, c_int, *const *const c_char) -> Status,
    log_size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
    log: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    ptx_size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
    ptx: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version;
        write!(f, "NVRTC {major}.{minor} at {}", self.path.display())
    }
}

impl Compiler {
    /// Loads the library and its builtins.
    ///
    /// # Errors
    /// `NoCompiler` when it cannot be loaded or is older than 12.0.
    pub fn load(path: &Path) -> Result<Compiler> {
        let shown = path.display().to_string();
        let failed = |error: libloading::Error| {
            Error::no_compiler(format!("failed to load NVRTC `{shown}`: {error}"))
        };
        // NVRTC opens its builtins by bare name and ignores run paths; loading them first makes
        // them available whatever the library path.
        for builtins in builtins_beside(path) {
            // SAFETY: loading runs the library's initialisers; these are NVIDIA's.
            let library = unsafe { Library::open(Some(&builtins), RTLD_NOW | RTLD_GLOBAL) };
            // Failure may be due to a leftover of another version; compiling will tell.
            let _kept = library.map(std::mem::forget);
        }
        // SAFETY: as above.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(failed)?;
        // SAFETY: the signatures match nvrtc.h, unchanged since CUDA 11.2.
        let functions = unsafe { Functions::resolve(&library) }.map_err(failed)?;
        let mut version = (0, 0);
        // SAFETY: both pointers are valid for a write.
        let status = unsafe { (functions.version)(&mut version.0, &mut version.1) };
        if status != SUCCESS || version.0 < 12 {
            let (major, minor) = version;
            let text =
                format!("NVRTC `{shown}` has version {major}.{minor}, expected 12.0 or newer");
            return Err(Error::no_compiler(text));
        }
        let library = std::mem::ManuallyDrop::new(library);
        Ok(Compiler { path: path.to_owned(), version, functions, _library: library })
    }

    /// The library file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a source for its architecture.
    ///
    /// # Errors
    /// `Compile` with source, options and log ([`Error::compile_failure`]).
    pub fn compile(&self, source: &KernelSource) -> Result<Image> {
        self.compile_with(source, options(source.arch))
    }

    /// Compiles a foreign source with its own options.
    ///
    /// # Errors
    /// As [`Compiler::compile`]; `BadParam` for an option that [is not allowed](is_allowed) and for
    /// a line that may read a file.
    pub fn compile_foreign(&self, source: &KernelSource, options: Vec<String>) -> Result<Image> {
        let stem = &source.stem;
        if let Some(option) = options.iter().find(|option| !is_allowed(option)) {
            let option = escaped(option);
            return Err(Error::bad_param(format!(
                "failed to compile {stem}: the option `{option}` is not one of code generation"
            )));
        }
        if let Some((line, found)) = reads_file(&source.text) {
            return Err(Error::bad_param(format!(
                "failed to compile {stem}: line {line} may read a file: `{found}`; a dumped kernel \
                 is one text"
            )));
        }
        self.compile_with(source, options)
    }

    /// Compiles a source with options of this crate's.
    pub(crate) fn compile_with(
        &self,
        source: &KernelSource,
        options: Vec<String>,
    ) -> Result<Image> {
        let start = Instant::now();
        let (stem, target) = (source.stem.as_str(), &source.arch);
        let span = debug_span!("compile", stem, target = %target, ns = Empty).entered();
        let image = self.compile_image(source, options);
        span.record("ns", start.elapsed().as_nanos() as u64);
        image
    }

    fn compile_image(&self, source: &KernelSource, mut options: Vec<String>) -> Result<Image> {
        if self.version >= (12, 4) {
            // Skips declarations that kernels do not need, such as those of textures.
            options.push("--minimal".to_owned());
        }
        if self.version >= (12, 9) {
            // A hit in NVRTC's own cache has an empty log, without the spill report.
            options.push("--no-cache".to_owned());
        }
        // A relative name would put the working folder into the line information.
        let name = format!("/kiln/{}.cu", source.stem);
        let output = self.run(&source.text, &name, &options)?;
        let resources = match output.cubin.is_empty() {
            true => Resources::default(),
            false => elf::resources(&output.cubin, &source.entry, &output.log)?,
        };
        Ok(Image { cubin: output.cubin, ptx: output.ptx, log: output.log, resources })
    }

    /// Build number of this version: `__CUDACC_VER_BUILD__`.
    ///
    /// # Errors
    /// `Compile` when the probe fails.
    pub fn build(&self) -> Result<u32> {
        let text = "extern \"C\" __constant__ const unsigned build = __CUDACC_VER_BUILD__;\n\
                    extern \"C\" __global__ void probe(unsigned* out) { *out = *(volatile const \
                    unsigned*)&build; }\n";
        let options = ["--gpu-architecture=compute_80".to_owned()];
        let output = self.run(text, "build.cu", &options)?;
        let declared = output.ptx.split(" build = ").nth(1);
        let number: Option<u32> = declared
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
            .and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| {
            let shown = self.path.display();
            Error::compile(format!("failed to read the build number of NVRTC `{shown}`"))
        })
    }

    fn run(&self, text: &str, name: &str, options: &[String]) -> Result<Output> {
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| Error::compile(format!("`{name}` contains a NUL byte")))
        };
        let (source, c_name) = (c_string(text)?, c_string(name)?);
        let program = Program::create(self, &source, &c_name)?;
        let texts = options.iter().map(|text| c_string(text)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: the program is live and the option strings outlive the call.
        let status = unsafe {
            (self.functions.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr())
        };
        let log = without_times(&program.text(self.functions.log_size, self.functions.log)?);
        if status != SUCCESS {
            return Err(Error::rejected(CompileFailure {
                name: name.to_owned(),
                source: text.to_owned(),
                options: options.to_vec(),
                reason: self.reason(status),
                log,
            }));
        }
        let ptx = program.text(self.functions.ptx_size, self.functions.ptx)?;
        let cubin = match options.iter().any(|option| option.contains("=sm_")) {
            true => program.bytes(self.functions.cubin_size, self.functions.cubin)?,
            false => Vec::new(),
        };
        Ok(Output { cubin, ptx, log })
    }

    fn reason(&self, status: Status) -> String {
        // SAFETY: the function returns a static string for every status.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        text.to_string_lossy().into_owned()
    }

    fn check(&self, status: Status, attempt: &str) -> Result<()> {
        match status {
            SUCCESS => Ok(()),
            _ => Err(Error::compile(format!("failed to {attempt}: {}", self.reason(status)))),
        }
    }
}

struct Output {
    cubin: Vec<u8>,
    ptx: String,
    log: String,
}

impl Functions {
    /// # Safety
    /// `library` must be NVRTC.
    unsafe fn resolve(library: &Library) -> std::result::Result<Functions, libloading::Error> {
        // SAFETY: the caller guarantees the library, nvrtc.h the signatures.
        unsafe {
            Ok(Functions {
                version: *library.get(b"nvrtcVersion\0")?,
                create: *library.get(b"nvrtcCreateProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
                log: *library.get(b"nvrtcGetProgramLog\0")?,
                ptx_size: *library.get(b"nvrtcGetPTXSize\0")?,
                ptx: *library.get(b"nvrtcGetPTX\0")?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0")?,
                cubin: *library.get(b"nvrtcGetCUBIN\0")?,
                error_string: *library.get(b"nvrtcGetErrorString\0")?,
            })
        }
    }
}

/// A live `nvrtcProgram`.
struct Program<'a> {
    compiler: &'a Compiler,
    handle: nvrtcProgram,
}

impl<'a> Program<'a> {
    fn create(compiler: &'a Compiler, source: &CStr, name: &CStr) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings are NUL-terminated and copied by the call; no headers are passed.
        let status = unsafe {
            (compiler.functions.create)(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        compiler.check(status, "create an NVRTC program")?;
        Ok(Program { compiler, handle })
    }

    fn bytes(
        &self,
        size_of: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
        read: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is live and `size` valid for a write.
        let status = unsafe { size_of(self.handle, &mut size) };
        self.compiler.check(status, "query the size of an NVRTC result")?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size NVRTC asked for.
        let status = unsafe { read(self.handle, bytes.as_mut_ptr().cast()) };
        self.compiler.check(status, "read an NVRTC result")?;
        Ok(bytes)
    }

    /// Reads a result that is a NUL-terminated string.
    fn text(
        &self,
        size_of: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
        read: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    ) -> Result<String> {
        let mut bytes = self.bytes(size_of, read)?;
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was created by this library and is destroyed once.
        unsafe { (self.compiler.functions.destroy)(&mut self.handle) };
    }
}

/// Removes the lines of the log that differ between runs.
fn without_times(log: &str) -> String {
    let lasting = |line: &&str| !line.contains("Compile time");
    log.lines().filter(lasting).map(|line| format!("{line}\n")).collect()
}

/// `libnvrtc-builtins.so.*` in the folder of the library.
fn builtins_beside(path: &Path) -> Vec<PathBuf> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(entries) = real.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return Vec::new();
    };
    let is_builtins = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("libnvrtc-builtins.so"))
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok())
        .map(|entry| entry.path())
        .filter(is_builtins)
        .collect();
    found.sort();
    found
}
