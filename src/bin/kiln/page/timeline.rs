//! What happened when: the library's tracing spans and events, with their times.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A span, or an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    pub name: String,
    /// Its fields, or the event's text.
    pub detail: String,
    /// How many spans it is in.
    pub depth: usize,
    pub start_ms: f64,
    /// 0 for an event.
    pub ms: f64,
    /// The level of an event: `debug`, `info`, `warn` or `error`.
    pub level: Option<String>,
}

/// Keeps the steps of the process; clones share them.
#[derive(Debug, Clone)]
pub struct Recorder {
    started: Instant,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Recorder {
    pub fn start() -> Recorder {
        Recorder { started: Instant::now(), steps: Arc::default() }
    }

    /// The steps so far, in the order in which they began.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        steps.sort_by(|a, b| {
            (a.start_ms, a.depth).partial_cmp(&(b.start_ms, b.depth)).expect("finite")
        });
        steps
    }

    fn now_ms(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * 1e3
    }

    fn keep(&self, step: Step) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }
}

/// Fields as text: the message as it is, others as `name=value`.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        let written = match field.name() {
            "message" => write!(self.0, "{gap}{value:?}"),
            name => write!(self.0, "{gap}{name}={value:?}"),
        };
        written.expect("strings take any text");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        let span = context.span(id).expect("the span is new");
        let step = Step {
            name: span.name().to_owned(),
            detail: text.0,
            depth: span.scope().count() - 1,
            start_ms: self.now_ms(),
            ms: 0.0,
            level: None,
        };
        span.extensions_mut().insert(step);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("the span closes now");
        if let Some(mut step) = span.extensions_mut().remove::<Step>() {
            step.ms = self.now_ms() - step.start_ms;
            self.keep(step);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level: &Level = event.metadata().level();
        self.keep(Step {
            name: String::new(),
            detail: text.0,
            depth: context.event_scope(event).map_or(0, Iterator::count),
            start_ms: self.now_ms(),
            ms: 0.0,
            level: Some(level.to_string().to_lowercase()),
        });
    }
}
