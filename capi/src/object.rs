//! Objects behind the interface's opaque pointers.
//!
//! What a program holds is no address but a key: of its object in the table of all objects of its
//! kind, with that kind. A key that was never given, or whose object was destroyed, is found out
//! whatever it is, and finding an object takes no lock.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use sharded_slab::{Config, Entry, Slab};

use crate::declare::Parameter;
use crate::status::{Outcome, Status, bad, fail};

/// The table of all objects of a kind. Keys leave room for the kind.
pub struct Keys;

impl Config for Keys {
    const RESERVED_BITS: usize = KIND_BITS;
}

const KIND_BITS: usize = 8;

/// An object of a kind.
pub trait Object: Send + Sync + Sized + 'static {
    /// The type in C.
    const C_TYPE: &'static str;
    /// What messages call it.
    const NAME: &'static str;
    /// The number of its kind, from 1 on.
    const KIND: usize;

    /// All objects of the kind.
    fn all() -> &'static Slab<Self, Keys>;
}

macro_rules! object {
    ($type:ty: $c_type:literal, $name:literal, $kind:literal) => {
        impl crate::object::Object for $type {
            const C_TYPE: &'static str = $c_type;
            const NAME: &'static str = $name;
            const KIND: usize = $kind;

            fn all() -> &'static sharded_slab::Slab<Self, crate::object::Keys> {
                static ALL: std::sync::LazyLock<sharded_slab::Slab<$type, crate::object::Keys>> =
                    std::sync::LazyLock::new(
                        sharded_slab::Slab::<$type>::new_with_config::<crate::object::Keys>,
                    );
                &ALL
            }
        }
    };
}
pub(crate) use object;

/// What a program holds of an object, or NULL.
#[repr(transparent)]
pub struct Ref<T>(usize, PhantomData<fn() -> T>);

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Ref<T> {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Ref<T>) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Ref<T> {}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl<T: Object> Ref<T> {
    /// NULL.
    pub const NULL: Ref<T> = Ref(0, PhantomData);

    /// Makes an object.
    pub fn new(object: T) -> Outcome<Ref<T>> {
        match T::all().insert(object) {
            Some(key) => Ok(Ref(key << KIND_BITS | T::KIND, PhantomData)),
            None => fail(Status::ALLOC_FAILED, format!("no room for another {}", T::NAME)),
        }
    }

    /// That of a number, as attributes hold it.
    pub fn of(number: i64) -> Ref<T> {
        Ref(number as usize, PhantomData)
    }

    /// Whether there is none.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The object, called so in messages.
    pub fn get(self, name: &str) -> Outcome<Entry<'static, T, Keys>> {
        if self.is_null() {
            return bad(format!("{name} is NULL"));
        }
        let own = self.0 % (1 << KIND_BITS) == T::KIND;
        let found = if own { T::all().get(self.0 >> KIND_BITS) } else { None };
        match found {
            Some(object) => Ok(object),
            None => {
                bad(format!("{name} ({:#x}) is no {}, or one that was destroyed", self.0, T::NAME))
            }
        }
    }

    /// The object, if there is one.
    pub fn optional(self, name: &str) -> Outcome<Option<Entry<'static, T, Keys>>> {
        match self.is_null() {
            true => Ok(None),
            false => self.get(name).map(Some),
        }
    }

    /// Destroys the object; none is as well.
    pub fn destroy(self, name: &str) -> Outcome {
        if !self.is_null() {
            drop(self.get(name)?);
            T::all().remove(self.0 >> KIND_BITS);
            next_number();
        }
        Ok(())
    }
}

impl<T: Object> Parameter for Ref<T> {
    fn declare(name: &str) -> String {
        crate::declare::of(T::C_TYPE, name)
    }

    fn show(self) -> String {
        match self.0 {
            0 => "NULL".to_owned(),
            key => format!("{key:#x}"),
        }
    }
}

/// A value that calls set and read, with a number that no other value has: two values of a number
/// are one, or have both never been set.
#[derive(Debug, Default)]
pub struct Settable<T> {
    value: RwLock<T>,
    version: AtomicU64,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other call gives.
pub fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::AcqRel)
}

/// The number that is given next: as long as it is the same, no value is set and no object
/// destroyed.
pub fn number_to_come() -> u64 {
    NEXT.load(Ordering::Acquire)
}

impl<T> Settable<T> {
    /// With a first value.
    pub fn new(value: T) -> Settable<T> {
        let version = AtomicU64::new(next_number());
        Settable { value: RwLock::new(value), version }
    }

    /// The value.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the value.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.change(|own| *own = value);
    }

    /// Changes the value.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut value);
        self.version.store(next_number(), Ordering::Release);
        result
    }
}
