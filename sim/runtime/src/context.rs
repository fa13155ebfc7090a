//! The device's primary context, which becomes current on a thread with its first call.

use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::code::{Code, Outcome};
use crate::driver::{
    cuCtxGetCurrent, cuCtxSetCurrent, cuDeviceGetCount, cuDevicePrimaryCtxRetain, cuInit,
};

/// The one device that there is.
pub const DEVICE: c_int = 0;

/// The primary context, once it is retained, which it is for as long as the process lives.
static PRIMARY: Mutex<Option<u64>> = Mutex::new(None);

/// Initialises the driver.
pub fn initialised() -> Outcome {
    static INITIALISED: LazyLock<Outcome> = LazyLock::new(|| cuInit(0));
    *INITIALISED
}

/// Makes a context current, unless the caller has done that.
pub fn current() -> Outcome {
    initialised()?;
    let mut context = 0;
    cuCtxGetCurrent(&mut context)?;
    if context == 0 { make_current() } else { Ok(()) }
}

/// Makes the primary context current.
pub fn make_current() -> Outcome {
    initialised()?;
    let mut primary = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let context = match *primary {
        Some(context) => context,
        None => {
            let mut context = 0;
            cuDevicePrimaryCtxRetain(&mut context, DEVICE)?;
            *primary.insert(context)
        }
    };
    cuCtxSetCurrent(context)
}

/// Refuses a device that does not exist.
pub fn known(device: c_int) -> Outcome {
    initialised()?;
    let mut count = 0;
    cuDeviceGetCount(&mut count)?;
    if device == DEVICE && count > 0 { Ok(()) } else { Err(Code::INVALID_DEVICE) }
}
