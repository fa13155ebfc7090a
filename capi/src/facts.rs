//! What the library says of itself.

use std::ffi::{CStr, c_char};

use crate::declare::{Function, Parameter, enumeration, functions};
use crate::handle::Handle;
use crate::object::{Ref, object};
use crate::pointer::Out;
use crate::status::{Outcome, Status, bad, fail};

/// The interface of the documents is that of cuDNN 8.7, and programs choose code by this number.
pub const VERSION: usize = 1000 * MAJOR as usize + 100 * MINOR as usize + PATCH as usize;
/// Its parts.
pub const MAJOR: i32 = 8;
/// As above.
pub const MINOR: i32 = 7;
/// As above.
pub const PATCH: i32 = 0;

/// The version of CUDA whose driver interface the library speaks.
const CUDA: usize = 13_000;

enumeration! {
    /// A part of a library's version, as CUDA declares it.
    libraryPropertyType PropertyType "" { MAJOR_VERSION = 0, MINOR_VERSION = 1, PATCH_LEVEL = 2 }
}

enumeration! {
    /// How mcdnnQueryRuntimeError asks.
    mcdnnErrQueryMode_t ErrQueryMode "MCDNN_ERRQUERY_" {
        RAWCODE = 0, NONBLOCKING = 1, BLOCKING = 2,
    }
}

/// What a runtime error would be told apart by; there is none.
pub struct RuntimeTag;
object!(RuntimeTag: "mcdnnRuntimeTag_t *", "runtime tag", 1);

/// A text that ends with NUL and lasts.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The text, which must be there and be UTF-8.
    pub fn required(self, name: &str) -> Outcome<String> {
        if self.0.is_null() {
            return bad(format!("{name} is NULL"));
        }
        // SAFETY: not null, so it ends with NUL, as the interface asks.
        let bytes = unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec();
        String::from_utf8(bytes).or_else(|_| bad(format!("{name} is not UTF-8")))
    }
}

impl Parameter for Text {
    fn declare(name: &str) -> String {
        format!("const char *{name}")
    }

    fn show(self) -> String {
        format!("{:p}", self.0)
    }
}

/// The texts of all statuses, NUL included.
macro_rules! texts {
    ($($name:ident)*) => {
        &[$((Status::$name, concat!("MCDNN_STATUS_", stringify!($name), "\0"))),*]
    };
}
const TEXTS: &[(Status, &str)] = texts! {
    SUCCESS NOT_INITIALIZED ALLOC_FAILED BAD_PARAM INTERNAL_ERROR INVALID_VALUE ARCH_MISMATCH
    MAPPING_ERROR EXECUTION_FAILED NOT_SUPPORTED LICENSE_ERROR RUNTIME_PREREQUISITE_MISSING
    RUNTIME_IN_PROGRESS RUNTIME_FP_OVERFLOW VERSION_MISMATCH
};

macro_rules! plain {
    ($table:ident: $(
        $(#[doc = $doc:literal])*
        fn $name:ident($($arg:ident: $type:ty)?) -> $result:ty $body:block
    )*) => {
        /// Functions that give no status.
        pub static $table: &[Function] = &[$(Function {
            name: stringify!($name),
            documentation: &[$($doc),*],
            parameters: &[$((stringify!($arg), <$type as Parameter>::declare))?],
            result: <$result as Parameter>::declare,
        }),*];

        $(
            $(#[doc = $doc])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type)?) -> $result $body
        )*
    };
}

plain! { PLAIN:
    /// The version of the interface: 8700.
    fn mcdnnGetVersion() -> usize {
        VERSION
    }

    /// The version of CUDA that the library was built for, such as 13000.
    fn mcdnnGetCudartVersion() -> usize {
        CUDA
    }

    /// The newest architecture that kernels are built for, such as 1200 for sm_120.
    fn mcdnnGetMaxDeviceVersion() -> usize {
        1200
    }

    /// The name of a status.
    fn mcdnnGetErrorString(status: Status) -> Text {
        let known = TEXTS.iter().find(|(known, _)| *known == status);
        Text(known.map_or("MCDNN_UNKNOWN_STATUS\0", |(_, text)| text).as_ptr().cast())
    }
}

functions! { FUNCTIONS:
    /// A part of the version.
    fn mcdnnGetProperty(property: PropertyType, value: Out<i32>) {
        let value = value.required("value")?;
        match property {
            PropertyType::MAJOR_VERSION => value.put(MAJOR),
            PropertyType::MINOR_VERSION => value.put(MINOR),
            PropertyType::PATCH_LEVEL => value.put(PATCH),
            other => {
                return fail(Status::INVALID_VALUE, format!("property is {}", other.0));
            }
        }
        Ok(())
    }

    /// Whether all parts of the library are of one version; they are one library.
    fn mcdnnOpsInferVersionCheck() {
        Ok(())
    }

    /// As mcdnnOpsInferVersionCheck.
    fn mcdnnOpsTrainVersionCheck() {
        Ok(())
    }

    /// As mcdnnOpsInferVersionCheck.
    fn mcdnnAdvInferVersionCheck() {
        Ok(())
    }

    /// As mcdnnOpsInferVersionCheck.
    fn mcdnnAdvTrainVersionCheck() {
        Ok(())
    }

    /// As mcdnnOpsInferVersionCheck.
    fn mcdnnCnnInferVersionCheck() {
        Ok(())
    }

    /// As mcdnnOpsInferVersionCheck.
    fn mcdnnCnnTrainVersionCheck() {
        Ok(())
    }

    /// What kernels found to be wrong while they ran. Ours find nothing that is not told by the
    /// device itself: the answer is always MCDNN_STATUS_SUCCESS.
    fn mcdnnQueryRuntimeError(
        handle: Ref<Handle>,
        rstatus: Out<Status>,
        mode: ErrQueryMode,
        tag: Ref<RuntimeTag>,
    ) {
        let handle = handle.get("handle")?;
        let rstatus = rstatus.required("rstatus")?;
        let _ = tag;
        if mode.known("mode")? == ErrQueryMode::BLOCKING {
            handle.stream().synchronize()?;
        }
        rstatus.put(Status::SUCCESS);
        Ok(())
    }
}

/// The parts of the version are digits of it.
const _: () = assert!(MINOR < 10 && PATCH < 100);
