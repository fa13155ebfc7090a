//! Codes by number, as `cuda.h` has them.

pub const SUCCESS: i32 = 0;
pub const INVALID_VALUE: i32 = 1;
pub const INVALID_DEVICE: i32 = 101;
pub const INVALID_IMAGE: i32 = 200;
pub const INVALID_CONTEXT: i32 = 201;
pub const NO_BINARY_FOR_GPU: i32 = 209;
pub const UNSUPPORTED_LIMIT: i32 = 215;
pub const INVALID_PTX: i32 = 218;
pub const FILE_NOT_FOUND: i32 = 301;
pub const INVALID_HANDLE: i32 = 400;
pub const ILLEGAL_STATE: i32 = 401;
pub const NOT_FOUND: i32 = 500;
pub const ALREADY_REGISTERED: i32 = 712;
pub const NOT_REGISTERED: i32 = 713;
pub const COOPERATIVE_LAUNCH_TOO_LARGE: i32 = 720;
pub const NOT_SUPPORTED: i32 = 801;
pub const CAPTURE_UNSUPPORTED: i32 = 900;
pub const CAPTURE_INVALIDATED: i32 = 901;
pub const CAPTURE_UNMATCHED: i32 = 903;
pub const CAPTURE_IMPLICIT: i32 = 906;
