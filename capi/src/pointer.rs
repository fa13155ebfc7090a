//! Pointers as callers give them. A value of these types comes from a caller of the C interface
//! only, who keeps its rules: what the document says a pointer refers to is there.

use std::borrow::Cow;
use std::slice;

use crate::declare::Parameter;
use crate::status::{Outcome, bad};

/// A place for a result, or NULL.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// Values to read, or NULL, declared as an array.
#[repr(transparent)]
pub struct InArray<T>(*const T);

/// Places for results, or NULL, declared as an array.
#[repr(transparent)]
pub struct OutArray<T>(*mut T);

macro_rules! copied {
    ($($type:ident)*) => {$(
        impl<T> Clone for $type<T> {
            fn clone(&self) -> $type<T> {
                *self
            }
        }

        impl<T> Copy for $type<T> {}
    )*};
}
copied!(Out InArray OutArray);

impl<T> Out<T> {
    /// Whether there is no place.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The place as the first of several.
    pub fn array(self) -> OutArray<T> {
        OutArray(self.0)
    }

    /// Refuses a place of this name that is NULL.
    pub fn required(self, name: &str) -> Outcome<Out<T>> {
        if self.is_null() { bad(format!("{name} is NULL")) } else { Ok(self) }
    }

    /// Writes a result, unless the caller has left it out.
    pub fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so it is valid for a write, as the interface asks.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T: Copy> InArray<T> {
    /// Whether there is no array.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address, which may be one of device memory; 0 is NULL.
    pub fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// So many values where they are, or, where no value of the type could be, a copy; an array of
    /// this name that is NULL has none.
    pub fn seen<'a>(self, count: usize, name: &str) -> Outcome<Cow<'a, [T]>> {
        if count == 0 || self.is_null() || !self.0.is_aligned() {
            return self.all(count, name).map(Cow::Owned);
        }
        // SAFETY: there are as many values as the interface says, which the program leaves as they
        // are as long as the call lasts.
        Ok(Cow::Borrowed(unsafe { slice::from_raw_parts(self.0, count) }))
    }

    /// So many values; an array of this name that is NULL has none.
    pub fn all(self, count: usize, name: &str) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.is_null() {
            return bad(format!("{name} is NULL"));
        }
        let at = |index| self.0.wrapping_add(index);
        // SAFETY: not null, so there are as many values as the interface says.
        Ok((0..count).map(|index| unsafe { at(index).read_unaligned() }).collect())
    }
}

impl<T: Copy> OutArray<T> {
    /// Whether there is no array.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The places as values, for what is given and returned.
    pub fn array(self) -> InArray<T> {
        InArray(self.0)
    }

    /// Refuses an array of this name that is NULL although results are asked for.
    pub fn required(self, asked: usize, name: &str) -> Outcome<OutArray<T>> {
        if asked > 0 && self.is_null() { bad(format!("{name} is NULL")) } else { Ok(self) }
    }

    /// Writes results, unless the caller has left them out.
    pub fn put(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            Out(if self.is_null() { self.0 } else { self.0.wrapping_add(index) }).put(value);
        }
    }
}

/// An address in device memory that is read, or NULL; in places of the host as well.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Data(*const u8);

/// An address in device memory that is written, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct DataMut(*mut u8);

impl Data {
    /// The address; 0 is NULL.
    pub fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The address; refuses NULL.
    pub fn required(self, name: &str) -> Outcome<u64> {
        DataMut(self.0.cast_mut()).required(name)
    }
}

impl DataMut {
    /// NULL.
    pub const NULL: DataMut = DataMut(std::ptr::null_mut());

    /// An address further on in the same memory.
    pub fn of(address: u64) -> DataMut {
        DataMut(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// The address; 0 is NULL.
    pub fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The address; refuses NULL.
    pub fn required(self, name: &str) -> Outcome<u64> {
        match self.address() {
            0 => bad(format!("{name} is NULL")),
            address => Ok(address),
        }
    }

    /// The place as one of the host, for values of a type.
    pub fn host<T>(self) -> OutArray<T> {
        OutArray(self.0.cast())
    }
}

impl Data {
    /// The place as one of the host, with values of a type.
    pub fn host<T>(self) -> InArray<T> {
        InArray(self.0.cast())
    }
}

macro_rules! pointers {
    ($($type:ident: $declare:expr;)*) => {$(
        impl<T: Parameter> Parameter for $type<T> {
            fn declare(name: &str) -> String {
                let declare: fn(String, &str) -> String = $declare;
                declare(T::declare(""), name)
            }

            fn show(self) -> String {
                shown(self.0.cast())
            }
        }
    )*};
}
pointers! {
    Out: |of, name| match of.ends_with('*') {
        true => format!("{of}*{name}"),
        false => format!("{of} *{name}"),
    };
    InArray: |of, name| format!("const {of} {name}[]");
    OutArray: |of, name| format!("{of} {name}[]");
}

impl Parameter for Data {
    fn declare(name: &str) -> String {
        format!("const void *{name}")
    }

    fn show(self) -> String {
        shown(self.0)
    }
}

impl Parameter for DataMut {
    fn declare(name: &str) -> String {
        format!("void *{name}")
    }

    fn show(self) -> String {
        shown(self.0)
    }
}

fn shown(pointer: *const u8) -> String {
    match pointer.addr() {
        0 => "NULL".to_owned(),
        address => format!("{address:#x}"),
    }
}
