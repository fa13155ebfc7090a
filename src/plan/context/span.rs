//! Timed `tracing` spans, listed in `docs/observability.md`.

use std::time::Instant;

use tracing::Span;
use tracing::field::display;
use tracing::span::EnteredSpan;

use crate::cache::Key;

/// An entered span that records its duration in nanoseconds as `ns`. Without a subscriber it costs
/// nothing.
pub(in crate::plan) struct Timed {
    span: EnteredSpan,
    start: Option<Instant>,
}

impl Timed {
    pub(in crate::plan) fn new(span: Span) -> Timed {
        let start = (!span.is_disabled()).then(Instant::now);
        Timed { span: span.entered(), start }
    }

    pub(in crate::plan) fn key(&self, key: Key) {
        self.span.record("key", display(key));
    }

    /// Records where the kernel came from: `memory`, `pack`, `disk`, `remote`, `compiled`,
    /// `general` or `none`.
    pub(in crate::plan) fn tier(&self, tier: &str) {
        self.span.record("tier", tier);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(start) = self.start {
            self.span.record("ns", start.elapsed().as_nanos() as u64);
        }
    }
}
