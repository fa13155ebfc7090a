//! How functions and enumerations are declared: once, as the Rust that runs and as the table that
//! the header, the log and the tests are made from.

use std::ffi::c_int;

/// A type of the C interface.
pub trait Parameter: Copy {
    /// The C declaration of something of this type and name; of the type itself without one.
    fn declare(name: &str) -> String;

    /// The value, for the log.
    fn show(self) -> String;
}

/// The C declaration of something of a name.
pub type Declare = fn(&str) -> String;

/// A function of the interface.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it does, in lines.
    pub documentation: &'static [&'static str],
    /// Names and declarations of its parameters.
    pub parameters: &'static [(&'static str, Declare)],
    /// The C type of its result.
    pub result: Declare,
}

impl Function {
    /// The C declaration, on one line.
    pub fn prototype(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, declare)| declare(name));
        let parameters = match self.parameters {
            [] => "void".to_owned(),
            _ => parameters.collect::<Vec<_>>().join(", "),
        };
        format!("{}({parameters})", (self.result)(self.name))
    }
}

/// An enumeration of the interface.
pub struct Enumeration {
    /// Its type.
    pub name: &'static str,
    /// What it says, in lines.
    pub documentation: &'static [&'static str],
    /// What the names of all values begin with.
    pub prefix: &'static str,
    /// The rest of the names, and the numbers.
    pub values: &'static [(&'static str, c_int)],
}

impl Enumeration {
    /// Whether it has a number.
    pub fn has(&self, number: c_int) -> bool {
        self.values.iter().any(|(_, known)| *known == number)
    }

    /// The name of a number, if it has one.
    pub fn value(&self, number: c_int) -> Option<String> {
        let known = self.values.iter().find(|(_, known)| *known == number);
        known.map(|(name, _)| format!("{}{name}", self.prefix))
    }

    /// The name of a number, or what it is instead.
    pub fn shown(&self, number: c_int) -> String {
        self.value(number).unwrap_or_else(|| format!("({}) {number}", self.name))
    }
}

macro_rules! scalars {
    ($($type:ty: $name:literal;)*) => {$(
        impl Parameter for $type {
            fn declare(name: &str) -> String {
                crate::declare::of($name, name)
            }

            fn show(self) -> String {
                self.to_string()
            }
        }
    )*};
}
scalars! {
    i32: "int";
    u32: "unsigned";
    i64: "int64_t";
    usize: "size_t";
    f32: "float";
    f64: "double";
    u64: "unsigned long long";
}

/// A declaration of this type and name.
pub fn of(c_type: &str, name: &str) -> String {
    match name {
        "" => c_type.to_owned(),
        _ => format!("{c_type} {name}"),
    }
}

/// Functions that give a status: `fn name(parameter: Type) { body }`, whose body gives nothing or a
/// failure. With the table of them, of the name in front.
macro_rules! functions {
    ($table:ident: $(
        $(#[doc = $doc:literal])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        #[doc = "Functions that this file declares."]
        pub static $table: &[crate::declare::Function] = &[$(crate::declare::Function {
            name: stringify!($name),
            documentation: &[$($doc),*],
            parameters: &[$(
                (stringify!($arg), <$type as crate::declare::Parameter>::declare)
            ),*],
            result: <crate::status::Status as crate::declare::Parameter>::declare,
        }),*];

        $(
            $(#[doc = $doc])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> crate::status::Status {
                let body = || -> crate::status::Outcome { $body };
                let shown = || -> Vec<(&str, String)> {
                    vec![$((stringify!($arg), crate::declare::Parameter::show($arg))),*]
                };
                crate::call::call(stringify!($name), &shown, body)
            }
        )*
    };
}
pub(crate) use functions;

/// An enumeration: a type of its name with the values as constants, and its table. A caller may
/// give any number, so it is not a Rust enumeration.
macro_rules! enumeration {
    (
        $(#[doc = $doc:literal])*
        $c_name:ident $name:ident $prefix:literal { $($value:ident = $number:literal),* $(,)? }
    ) => {
        $(#[doc = $doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub std::ffi::c_int);

        impl $name {
            $(
                #[allow(missing_docs, dead_code, reason = "all are in the table")]
                pub const $value: $name = $name($number);
            )*

            /// Its table.
            pub const TABLE: crate::declare::Enumeration = crate::declare::Enumeration {
                name: stringify!($c_name),
                documentation: &[$($doc),*],
                prefix: $prefix,
                values: &[$((stringify!($value), $number)),*],
            };

            /// Refuses a number that is none of the enumeration's.
            #[allow(dead_code, reason = "not every enumeration is given by programs")]
            pub fn known(self, name: &str) -> crate::status::Outcome<$name> {
                match Self::TABLE.has(self.0) {
                    true => Ok(self),
                    false => crate::status::bad(format!(
                        "{name} is {}, which is no {}", self.0, Self::TABLE.name
                    )),
                }
            }
        }

        impl crate::declare::Parameter for $name {
            fn declare(name: &str) -> String {
                crate::declare::of(Self::TABLE.name, name)
            }

            fn show(self) -> String {
                Self::TABLE.shown(self.0)
            }
        }
    };
}
pub(crate) use enumeration;
