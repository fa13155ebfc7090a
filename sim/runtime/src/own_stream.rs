//! The default stream of the calling thread, for programs that are compiled to use it: `_ptds`
//! where a function takes no stream, `_ptsz` where it takes one.

/// The stream of the thread (`cudaStreamPerThread`).
pub const PER_THREAD: u64 = 2;

/// The stream that is meant by a handle.
pub fn own(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

/// Declares functions as calls of others.
macro_rules! per_thread {
    ($(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $call:ident($($given:expr),*);
    )*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> crate::code::Code {
            $call($($given),*)
        }
    )*};
}
pub(crate) use per_thread;
