//! What every function does around its body: no panic leaves it, its failure is kept, and it is
//! logged if that is wanted.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::log::{self, Severity};
use crate::status::{self, Failure, Outcome, Status};

thread_local! {
    /// Whether a function of this library is running on the thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs the body of a function.
pub fn call(
    name: &'static str,
    shown: &dyn Fn() -> Vec<(&'static str, String)>,
    body: impl FnOnce() -> Outcome,
) -> Status {
    quiet();
    let outer = INSIDE.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = format!("a bug in the library: {}", text_of(&*panic));
        status::fail(Status::INTERNAL_ERROR, text)
    });
    INSIDE.set(outer);
    let (code, text) = match outcome {
        Ok(()) => (Status::SUCCESS, None),
        Err(Failure { status, text }) => (status, Some(text)),
    };
    let severity = match code {
        Status::SUCCESS => Severity::INFO,
        _ => Severity::ERROR,
    };
    if log::wanted(severity) || log::wanted(Severity::INFO) {
        let arguments = shown().into_iter().map(|(name, value)| format!("{name}={value}"));
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let result = Status::TABLE.shown(code.0);
        let because = text.as_ref().map_or_else(String::new, |text| format!(": {text}"));
        log::tell(severity, code, &format!("{name}({arguments}) = {result}{because}"));
    }
    if let Some(text) = text {
        status::keep(format!("{name}: {text}"));
    }
    code
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

/// Keeps panics inside of this library, which become a status, from being printed to a program's
/// standard error. Those of others are printed as before.
fn quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !INSIDE.get() {
                before(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status() {
        let shown = Vec::new;
        let status = call("mcdnnCreate", &shown, || panic!("it is {}", "broken"));
        assert_eq!(status, Status::INTERNAL_ERROR);
        assert_eq!(status::take(), "mcdnnCreate: a bug in the library: it is broken");
        assert_eq!(status::take(), "");
        assert_eq!(call("mcdnnCreate", &shown, || Ok(())), Status::SUCCESS);
        // Outside of the library, panics are the program's own.
        assert!(!INSIDE.get());
    }
}
