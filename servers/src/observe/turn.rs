//! The turn of a text at the model: it waits, it is computed, it has ended.

use std::sync::Arc;

use tracing::Span;

use super::Stats;

/// The turn of one text, which ends with this.
pub struct Turn {
    stats: Arc<Stats>,
    /// The span of the text.
    parent: Span,
    /// The span of the stage.
    stage: Span,
    runs: bool,
}

impl Turn {
    /// A text waits, in the current span.
    #[must_use]
    pub fn waits(stats: &Arc<Stats>) -> Self {
        stats.waiting.add(1);
        let parent = Span::current();
        let stage = tracing::info_span!(parent: &parent, "queue");
        Self { stats: Arc::clone(stats), parent, stage, runs: false }
    }

    /// The model takes the text.
    pub fn runs(&mut self) {
        if !self.runs {
            self.stats.waiting.add(-1);
            self.stats.running.add(1);
            self.stage = tracing::info_span!(parent: &self.parent, "compute");
            self.runs = true;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.runs { &self.stats.running } else { &self.stats.waiting }.add(-1);
    }
}
