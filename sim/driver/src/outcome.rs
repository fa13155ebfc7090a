//! What a call returns, and how it is told why.

use cudarc::driver::sys::CUresult;

/// What a call returns; the error is the driver's code.
pub type Outcome<T = ()> = Result<T, CUresult>;

/// Says what a code cannot.
pub fn explain(code: CUresult, error: &kiln_sim::Error) -> CUresult {
    eprintln!("kiln-sim-driver: {code:?}: {error}");
    code
}
