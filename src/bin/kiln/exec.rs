//! `kiln exec`: a program of others on the simulated device.

use std::process::ExitCode;

use kiln::{Error, ErrorKind};
use kiln_sim::exec::{ABOUT, Exec};

const EXAMPLES: &str = "\
Examples:
  kiln exec -- ./program --its --options
  kiln exec --gpu h100 --strict -- ./program
  kiln exec --checks none --log refused -- python script.py

";

pub fn help() -> String {
    format!("{EXAMPLES}{ABOUT}")
}

/// Becomes the program; comes back only if that was not possible.
pub fn exec(args: &Exec) -> kiln::Result<ExitCode> {
    Err(Error::with(ErrorKind::BadParam, kiln_sim::exec::run(args)))
}
