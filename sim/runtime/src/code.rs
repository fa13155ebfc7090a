//! Codes of the runtime (`cudaError_t`), most of which are the driver's by number.

use std::ffi::c_uint;

/// A code: of an error, or [`Code::SUCCESS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub c_uint);

/// What a call gives: nothing but its results, or the code of an error.
pub type Outcome<T = ()> = Result<T, Code>;

impl Code {
    pub const SUCCESS: Code = Code(0);
    pub const INVALID_VALUE: Code = Code(1);
    pub const INVALID_CONFIGURATION: Code = Code(9);
    pub const INVALID_PITCH_VALUE: Code = Code(12);
    pub const INVALID_SYMBOL: Code = Code(13);
    pub const INVALID_MEMCPY_DIRECTION: Code = Code(21);
    pub const INSUFFICIENT_DRIVER: Code = Code(35);
    pub const CALL_REQUIRES_NEWER_DRIVER: Code = Code(36);
    pub const MISSING_CONFIGURATION: Code = Code(52);
    pub const INVALID_DEVICE_FUNCTION: Code = Code(98);
    pub const INVALID_DEVICE: Code = Code(101);
    pub const SYMBOL_NOT_FOUND: Code = Code(500);
    pub const NOT_SUPPORTED: Code = Code(801);

    /// Whether the device is lost: the error stays until the process ends.
    pub fn is_sticky(self) -> bool {
        matches!(self.0, 700 | 702 | 709 | 710 | 714..=719)
    }
}
