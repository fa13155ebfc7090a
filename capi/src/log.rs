//! What the library tells: to a function of the program, and where `MCDNN_LOGDEST_DBG` says.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::declare::{Parameter, enumeration, functions};
use crate::facts::VERSION;
use crate::pointer::{DataMut, Out};
use crate::status::{Status, bad};

enumeration! {
    /// How grave a message is.
    mcdnnSeverity_t Severity "MCDNN_SEV_" { FATAL = 0, ERROR = 1, WARNING = 2, INFO = 3 }
}

impl Severity {
    /// Its bit in a mask of severities.
    pub const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// `mcdnnDebug_t`: when and by whom a message was sent.
#[repr(C)]
pub struct Debug {
    version: u32,
    status: Status,
    time_sec: u32,
    time_usec: u32,
    time_delta: u32,
    handle: usize,
    stream: usize,
    process: u64,
    thread: u64,
    device: c_int,
    reserved: [c_int; 15],
}

/// Its C declaration.
pub const DEBUG_DECLARATION: &str = "\
typedef struct mcdnnDebugStruct {
    unsigned mcdnn_version;
    mcdnnStatus_t mcdnnStatus;
    unsigned time_sec;
    unsigned time_usec;
    unsigned time_delta;
    mcdnnHandle_t handle;
    cudaStream_t stream;
    unsigned long long pid;
    unsigned long long tid;
    int cudaDeviceId;
    int reserved[15];
} mcdnnDebug_t;

/* Gets a message as texts that end with NUL, one behind the other, the last one empty. */
typedef void (*mcdnnCallback_t)(mcdnnSeverity_t severity, void *userData, const mcdnnDebug_t *debug,
                                const char *message);";

/// `mcdnnCallback_t`: a function of the program that is told messages, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Callback(
    Option<unsafe extern "C" fn(Severity, *mut c_void, *const Debug, *const c_char)>,
);

impl Parameter for Callback {
    fn declare(name: &str) -> String {
        crate::declare::of("mcdnnCallback_t", name)
    }

    fn show(self) -> String {
        self.0.map_or("NULL".to_owned(), |function| format!("{function:p}"))
    }
}

struct Sink {
    mask: u32,
    user: u64,
    function: Callback,
}

static SINK: Mutex<Sink> = Mutex::new(Sink { mask: 0, user: 0, function: Callback(None) });

/// The severities that the program's function is told.
static TOLD: AtomicU32 = AtomicU32::new(0);

enum Destination {
    Stdout,
    Stderr,
    File(Mutex<File>),
}

/// The severities that the environment asks for, and where they go.
static ENVIRONMENT: LazyLock<(u32, Destination)> = LazyLock::new(|| {
    let names = [
        ("MCDNN_LOGINFO_DBG", Severity::INFO),
        ("MCDNN_LOGWARN_DBG", Severity::WARNING),
        ("MCDNN_LOGERR_DBG", Severity::ERROR),
    ];
    let asked = names.into_iter().filter(|(name, _)| {
        std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
    });
    let mask = asked.fold(0, |mask, (_, severity)| mask | severity.bit());
    let file = |path: String| {
        let file = OpenOptions::new().create(true).append(true).open(path).ok()?;
        Some(Destination::File(Mutex::new(file)))
    };
    let destination = match std::env::var("MCDNN_LOGDEST_DBG").ok().filter(|to| !to.is_empty()) {
        None => None,
        Some(to) if to == "stdout" => Some(Destination::Stdout),
        Some(to) if to == "stderr" => Some(Destination::Stderr),
        Some(path) => file(path),
    };
    // As with cuDNN, nothing is written without a destination.
    match destination {
        Some(destination) => (mask, destination),
        None => (0, Destination::Stderr),
    }
});

/// Whether anybody wants messages of a severity.
pub fn wanted(severity: Severity) -> bool {
    (TOLD.load(Ordering::Relaxed) | ENVIRONMENT.0) & severity.bit() != 0
}

/// Sends a message to who wants it. No lock is held while the program's function runs.
pub fn tell(severity: Severity, status: Status, message: &str) {
    if ENVIRONMENT.0 & severity.bit() != 0 {
        let line = format!("mcdnn: {message}\n");
        // A log that cannot be written is no reason to fail.
        let _ = match &ENVIRONMENT.1 {
            Destination::Stdout => io::stdout().write_all(line.as_bytes()),
            Destination::Stderr => io::stderr().write_all(line.as_bytes()),
            Destination::File(file) => {
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
            }
        };
    }
    let (user, function) = {
        let sink = SINK.lock().unwrap_or_else(PoisonError::into_inner);
        match sink.mask & severity.bit() {
            0 => return,
            _ => (sink.user, sink.function),
        }
    };
    let (Callback(Some(function)), Ok(mut text)) =
        (function, CString::new(message.replace('\0', " ")).map(CString::into_bytes_with_nul))
    else {
        return;
    };
    text.push(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let debug = Debug {
        version: VERSION as u32,
        status,
        time_sec: now.as_secs() as u32,
        time_usec: now.subsec_micros(),
        time_delta: 0,
        handle: 0,
        stream: 0,
        process: std::process::id().into(),
        thread: 0,
        device: -1,
        reserved: [0; 15],
    };
    let user = std::ptr::with_exposed_provenance_mut(user as usize);
    // SAFETY: the program set this function to be called in this way.
    unsafe { function(severity, user, &debug, text.as_ptr().cast()) };
}

functions! { FUNCTIONS:
    /// Sets the function that is told messages of the severities in a mask (`MCDNN_SEV_ERROR_EN`
    /// and others); NULL: nobody is told.
    fn mcdnnSetCallback(mask: u32, udata: DataMut, fptr: Callback) {
        let mut sink = SINK.lock().unwrap_or_else(PoisonError::into_inner);
        let mask = if fptr.0.is_none() { 0 } else { mask };
        *sink = Sink { mask, user: udata.address(), function: fptr };
        TOLD.store(mask, Ordering::Relaxed);
        Ok(())
    }

    /// What mcdnnSetCallback has set.
    fn mcdnnGetCallback(mask: Out<u32>, udata: Out<DataMut>, fptr: Out<Callback>) {
        if mask.is_null() && udata.is_null() && fptr.is_null() {
            return bad("mask, udata and fptr are NULL");
        }
        let sink = SINK.lock().unwrap_or_else(PoisonError::into_inner);
        mask.put(sink.mask);
        udata.put(DataMut::of(sink.user));
        fptr.put(sink.function);
        Ok(())
    }
}
