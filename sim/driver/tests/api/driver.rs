//! The library, and calls of its functions.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;

/// The driver for one test at a time, with the primary context current.
pub struct Driver {
    library: &'static Library,
    _alone: MutexGuard<'static, ()>,
}

/// Calls a function of the driver: `call!(driver, cuInit(0_u32))`. Arguments have the types that
/// they are passed with.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $driver.function(stringify!($name));
        $crate::driver::Call::call(($($argument,)*), function)
    }};
}
pub(crate) use call;

/// Arguments of a call.
pub trait Call {
    fn call(self, function: *const c_void) -> i32;
}

macro_rules! calls {
    ($($($name:ident)*;)*) => {$(
        impl<$($name),*> Call for ($($name,)*) {
            #[allow(non_snake_case)]
            fn call(self, function: *const c_void) -> i32 {
                type Function<$($name),*> = extern "C" fn($($name),*) -> i32;
                let ($($name,)*) = self;
                let function: Function<$($name),*> = unsafe { std::mem::transmute(function) };
                function($($name),*)
            }
        }
    )*};
}
calls! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
    A B C D E F G H I J K L M N O;
}

impl Call for () {
    fn call(self, function: *const c_void) -> i32 {
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(function) };
        function()
    }
}

impl Driver {
    pub fn open() -> Driver {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        static ALONE: Mutex<()> = Mutex::new(());
        let library = LIBRARY.get_or_init(|| {
            let test = std::env::current_exe().unwrap();
            unsafe { Library::new(test.with_file_name("libkiln_sim_driver.so")) }.unwrap()
        });
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = Driver { library, _alone: alone };
        let mut context = 0_u64;
        assert_eq!(call!(driver, cuInit(0_u32)), 0);
        assert_eq!(call!(driver, cuDevicePrimaryCtxRetain(&mut context, 0_i32)), 0);
        assert_eq!(call!(driver, cuCtxSetCurrent(context)), 0);
        driver
    }

    pub fn function(&self, name: &str) -> *const c_void {
        let found = unsafe { self.library.get::<*const c_void>(name) };
        *found.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0_u64;
        assert_eq!(call!(self, cuMemAlloc_v2(&mut address, bytes)), 0);
        address
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        assert_eq!(call!(self, cuMemcpyHtoD_v2(address, data.as_ptr(), data.len())), 0);
    }

    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0_u8; bytes];
        assert_eq!(call!(self, cuMemcpyDtoH_v2(data.as_mut_ptr(), address, bytes)), 0);
        data
    }

    pub fn words(&self, address: u64, count: usize) -> Vec<u32> {
        let data = self.read(address, 4 * count);
        data.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    pub fn load(&self, ptx: &str) -> u64 {
        let (mut module, text) = (0_u64, CString::new(ptx).unwrap());
        assert_eq!(call!(self, cuModuleLoadData(&mut module, text.as_ptr())), 0);
        module
    }

    pub fn kernel(&self, module: u64, name: &str) -> u64 {
        let (mut function, name) = (0_u64, CString::new(name).unwrap());
        assert_eq!(call!(self, cuModuleGetFunction(&mut function, module, name.as_ptr())), 0);
        function
    }

    /// Launches one block of threads.
    pub fn launch(&self, function: u64, threads: u32, stream: u64, values: &[u64]) -> i32 {
        let pointers: Vec<*const u64> = values.iter().map(ptr::from_ref).collect();
        let none: *const c_void = ptr::null();
        let all = pointers.as_ptr();
        call!(
            self,
            cuLaunchKernel(
                function, 1_u32, 1_u32, 1_u32, threads, 1_u32, 1_u32, 0_u32, stream, all, none
            )
        )
    }

    pub fn stream(&self) -> u64 {
        let mut stream = 0_u64;
        assert_eq!(call!(self, cuStreamCreate(&mut stream, 0_u32)), 0);
        stream
    }
}

/// Adds 1 to as many words as there are threads; a word of its own in each memory.
pub const ADD_ONE: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter[4] = {7, 8, 9, 10};
.visible .const .align 4 .u32 offset = 5;
.visible .entry add_one(.param .u64 values) {
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [values];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%rd3], %r3;
    ret;
}
.visible .entry scale(.param .u64 values, .param .u32 factor, .param .u16 extra)
    .maxntid 64, 1, 1 {
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    .shared .align 4 .b8 room[512];
    ld.param.u64 %rd1, [values];
    ld.param.u32 %r1, [factor];
    ld.global.u32 %r2, [%rd1];
    mul.lo.u32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
";
