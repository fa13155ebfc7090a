//! Progress messages on standard error for steps longer than two seconds.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kiln::escape::escaped;

/// Silence before the first message.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between messages if standard error is not a terminal.
const INTERVAL: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(250);

struct State {
    /// The current step.
    step: Option<String>,
    /// Time of the last output.
    silent: Option<Instant>,
    /// Time of the last persistent message.
    told: Option<Instant>,
    /// Whether a terminal line must be erased.
    shown: bool,
    watched: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { step: None, silent: None, told: None, shown: false, watched: false });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a step, ending the previous one.
pub fn doing(what: impl AsRef<str>) {
    let mut state = state();
    // Names come from files and must not control the terminal.
    state.step = Some(escaped(what.as_ref()).into_owned());
    state.silent.get_or_insert_with(Instant::now);
    if !state.watched {
        state.watched = true;
        thread::spawn(watch);
    }
}

/// Ends the current step, because other output follows.
pub fn done() {
    let mut state = state();
    state.step = None;
    wipe(&mut state);
}

/// Erases the progress line before a line of output.
pub fn clear() {
    let mut state = state();
    wipe(&mut state);
    state.silent = Some(Instant::now());
}

fn wipe(state: &mut State) {
    if state.shown {
        state.shown = false;
        // Standard error may be closed.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn watch() {
    let terminal = std::io::stderr().is_terminal();
    loop {
        thread::sleep(TICK);
        let mut state = state();
        let (Some(what), Some(silent)) = (&state.step, &state.silent) else { continue };
        let elapsed = silent.elapsed();
        let recent = state.told.is_some_and(|told| told.elapsed() < INTERVAL);
        if elapsed < PATIENCE || (recent && !terminal) {
            continue;
        }
        let (wipe, end) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let line = format!("{wipe}kiln: {what}, {} s so far{end}", elapsed.as_secs());
        let _ = std::io::stderr().write_all(line.as_bytes());
        state.told = Some(Instant::now());
        state.shown = terminal;
    }
}

/// A progress bar with estimated time left, on a terminal.
pub fn progress_bar(hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} kernels, {eta} left  {msg}");
    let bar = bar.with_style(style.expect("the template is valid"));
    // Drawn immediately, and animated while nothing is finished.
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Shows the current step on the bar, or as a message if there is no terminal.
pub fn tell(bar: &ProgressBar, what: &str) {
    match bar.is_hidden() {
        true => {
            let (done, total) = (bar.position(), bar.length().unwrap_or(0));
            doing(format!("{done} of {total} done, {what}"));
        }
        false => {
            done();
            bar.set_message(escaped(what).into_owned());
        }
    }
}
