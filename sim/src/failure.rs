//! Errors of running kernels before their location is attached.

use crate::error::ErrorKind;

/// An error of a lane.
#[derive(Debug)]
pub(crate) struct Fault {
    pub kind: ErrorKind,
    pub message: String,
    pub lane: usize,
    pub pc: u32,
}

/// An error without its location. Boxed so that results are returned in registers.
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

/// Returns an error for a violation of an op's rules.
pub(crate) fn misuse<T>(lane: usize, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(ErrorKind::Misuse, lane, message))
}

/// First lane of a mask.
pub(crate) fn first_lane(mask: u32) -> usize {
    mask.trailing_zeros() as usize & 31
}
