//! The last error of each thread.

use std::cell::Cell;

use crate::code::{Code, Outcome};

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(Code::SUCCESS) };
}

/// The code of a call, kept if it is an error.
pub fn finish(outcome: Outcome) -> Code {
    match outcome {
        Ok(()) => Code::SUCCESS,
        Err(code) => {
            LAST.set(code);
            code
        }
    }
}

/// Functions of the runtime, whose bodies give nothing or a code.
macro_rules! runtime {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> crate::code::Code {
            let body = || -> crate::code::Outcome { $body };
            crate::last::finish(body())
        }
    )*};
}
pub(crate) use runtime;

/// The last error, which is forgotten unless the device is lost.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> Code {
    let last = LAST.get();
    if !last.is_sticky() {
        LAST.set(Code::SUCCESS);
    }
    last
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> Code {
    LAST.get()
}
