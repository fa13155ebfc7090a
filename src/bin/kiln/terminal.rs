//! Output of the tool: text without terminal control characters, JSON documents that parse to the
//! same values, and an error if it cannot be written.

use std::fmt::{self, Arguments, Debug};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kiln::escape::{escaped, for_terminal};
use kiln::{Error, ErrorKind};
use serde_json::Value;
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

use crate::progress;

/// Prints a line of text to standard output; it may contain foreign names.
pub fn say_line(line: Arguments<'_>) {
    put(&for_terminal(&line.to_string()));
}

/// Prints a JSON document to standard output.
pub fn say_json(document: &Value) {
    put(&plain_json(&format!("{document:#}")));
}

/// Prints a line to standard error.
pub fn complain(line: &str) {
    // There is nowhere to report a failure.
    let _ = writeln!(io::stderr(), "{}", for_terminal(line));
}

/// Formats a field of a log message or span; messages may have several lines.
pub fn field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(out, "{}", for_terminal(&text)),
        name => write!(out, "{name}={}", escaped(&text)),
    }
}

/// Prints a line. A closed pipe (`kiln ... | head`) ends the program quietly, other errors do not.
fn put(line: &str) {
    progress::clear();
    let Err(error) = writeln!(io::stdout(), "{line}") else { return };
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    complain(&format!("kiln: failed to write to standard output: {error}"));
    std::process::exit(5);
}

/// Escapes control characters in serialised JSON, where they can only occur inside strings.
fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let own = c.to_string();
        match for_terminal(&own) == own {
            true => out.push(c),
            false => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    out
}

/// Options and log of the kernel that did not compile, if that is the error.
pub fn compiler_log(error: &Error) -> Option<String> {
    let failure = error.compile_failure()?;
    let (options, log) = (failure.options.join(" "), failure.log.trim_end());
    Some(format!("compiled with {options}: {}\n{log}", failure.reason))
}

/// File of a trace. The writing thread cannot report errors, so the first one is kept until the
/// end.
#[derive(Clone)]
pub struct TraceFile {
    file: Arc<File>,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl TraceFile {
    pub fn create(path: &Path) -> kiln::Result<TraceFile> {
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        Ok(TraceFile { file: Arc::new(file), failure: Arc::default() })
    }

    /// Returns the first error, once the trace is complete.
    pub fn finish(&self, path: &Path) -> kiln::Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), |error| Err(failed(path, &error)))
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    Error::with(ErrorKind::Io, format!("failed to write trace `{shown}`: {error}"))
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        // After an error the rest is useless.
        if failure.is_none()
            && let Err(error) = (&*self.file).write_all(bytes)
        {
            *failure = Some(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_say_the_same_without_controls() {
        let document =
            json!({"name\u{202e}": "\u{1b}[2J\u{9b}x\u{e0041}\u{7f} größe", "n": [1, 2]});
        let text = plain_json(&format!("{document:#}"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'));
        assert!(text.contains("größe") && text.contains("\\udb40\\udc41"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), document);
    }
}
