//! Failures of running kernels, until they are told to whoever launched.

use crate::error::ErrorKind;

/// A failure in a lane.
#[derive(Debug)]
pub(crate) struct Fault {
    pub kind: ErrorKind,
    pub message: String,
    pub lane: usize,
    pub pc: u32,
}

/// A failure whose op is yet to be told. Boxed, so that results come back in registers.
pub(crate) struct Failure(Box<Fault>);

impl Failure {
    pub fn new(kind: ErrorKind, lane: usize, message: impl Into<String>) -> Failure {
        Failure(Box::new(Fault { kind, message: message.into(), lane, pc: 0 }))
    }

    pub fn at(mut self, pc: u32) -> Box<Fault> {
        self.0.pc = pc;
        self.0
    }
}

/// A failure for what breaks an op's rules.
pub(crate) fn misuse<T>(lane: usize, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(ErrorKind::Misuse, lane, message))
}

/// The first lane of a mask.
pub(crate) fn first_lane(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}
