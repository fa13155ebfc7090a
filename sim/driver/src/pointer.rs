//! Pointers as callers give them. A value of these types comes from a caller of the C interface
//! only, who keeps its rules: what the document says a pointer refers to is there.

use std::ffi::{CStr, c_char, c_void};

use cudarc::driver::sys::cudaError_enum::*;

use crate::outcome::Outcome;

/// A place for a result, or null.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub fn null() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place as a pointer to bytes.
    pub fn bytes(self) -> Host {
        Host(self.0.cast())
    }

    /// A place `index` elements further on.
    pub fn at(self, index: usize) -> Out<T> {
        if self.0.is_null() { self } else { Out(self.0.wrapping_add(index)) }
    }

    /// What is there, for a value that is both given and returned.
    pub fn get(self) -> Outcome<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// Writes a result that the caller must have asked for.
    pub fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so it is valid for a write, as the interface asks.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a result that the caller may leave out.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so it is valid for a write, as the interface asks.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// Values to read, or null.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    pub fn null() -> In<T> {
        In(std::ptr::null())
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so it is valid for a read, as the interface asks.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The values from `index` on.
    pub fn at(self, index: usize) -> In<T> {
        if self.0.is_null() { self } else { In(self.0.wrapping_add(index)) }
    }

    /// `count` values, of which none need be there if there are none.
    pub fn all(self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index).get()).collect()
    }
}

/// A text that ends with NUL, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// A text in memory of the host.
    pub fn of(place: Host) -> Text {
        Text(place.0.cast())
    }

    pub fn bytes<'a>(self) -> Outcome<&'a [u8]> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so it ends with NUL, as the interface asks.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// The text; one that is not UTF-8 names nothing.
    pub fn str<'a>(self) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CUDA_ERROR_NOT_FOUND)
    }
}

/// Memory of the host.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Host(*mut c_void);

// SAFETY: an address; who reads or writes there is ordered by the caller, as with any stream.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    pub fn of(address: u64) -> Host {
        Host(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    pub fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    pub fn pointer(self) -> *mut c_void {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// A place further on.
    pub fn add(self, bytes: u64) -> Host {
        Host(self.0.wrapping_byte_add(bytes as usize))
    }

    pub fn read(self, bytes: u64) -> Outcome<Vec<u8>> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so there are as many bytes as the caller says.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), bytes as usize) }.to_vec())
    }

    pub fn write(self, data: &[u8]) -> Outcome {
        if data.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so there is room for as many bytes as the caller says; `data` is the
        // driver's own, so the two do not overlap.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }
}

/// A function of the caller with the value it is called with.
#[derive(Clone, Copy)]
pub struct Call {
    pub function: Option<unsafe extern "C" fn(*mut c_void)>,
    pub value: Host,
}

impl Call {
    pub fn run(self) {
        if let Some(function) = self.function {
            // SAFETY: the caller asked for this call with this value.
            unsafe { function(self.value.0) };
        }
    }
}
