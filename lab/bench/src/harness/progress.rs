//! The progress bar: on the standard error, and only if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of one workload, counted in samples.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for the workload called `name`.
    pub fn start(name: &str) -> Self {
        // indicatif hides a bar whose target is no terminal.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{prefix:>8} [{wide_bar}] {pos}/{len} {msg} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        Self(bar)
    }

    /// A bar that is never seen.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Announces `samples` more to take.
    pub(super) fn expect(&self, samples: u64) {
        self.0.inc_length(samples);
    }

    /// `column` is being set up.
    pub(super) fn announce(&self, column: &str) {
        self.0.set_message(column.to_owned());
        self.0.tick();
    }

    /// One sample of `column` is about to be taken.
    pub(super) fn step(&self, column: &str) {
        self.0.set_message(column.to_owned());
        self.0.inc(1);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
