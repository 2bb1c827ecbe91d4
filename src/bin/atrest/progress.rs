use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use atrest::report::Progress;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar on a terminal, a line of the log every ten seconds elsewhere, nothing when quiet.
pub(crate) struct Display {
    quiet: bool,
    phase: Mutex<Option<Phase>>,
}

struct Phase {
    name: &'static str,
    bar: Option<ProgressBar>,
    expected: Option<u64>,
    done: u64,
    begun: Instant,
    logged: Instant,
}

const LOG_EVERY: Duration = Duration::from_secs(10);

impl Display {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, phase: Mutex::new(None) }
    }

    fn with(&self, act: impl FnOnce(&mut Option<Phase>)) {
        act(&mut self.phase.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Progress for Display {
    fn begin(&self, name: &'static str, expected: Option<u64>) {
        if self.quiet {
            return;
        }
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(expected.unwrap_or(0)).with_finish(ProgressFinish::AndClear);
            let template = match expected {
                Some(_) => "{msg} [{bar:30}] {human_pos}/{human_len}  {per_sec:0}  {eta} left",
                None => "{msg} {spinner} {human_pos}  {per_sec:0}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(name);
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let now = Instant::now();
        self.with(|phase| *phase = Some(Phase { name, bar, expected, done: 0, begun: now, logged: now }));
    }

    fn advance(&self, values: u64) {
        self.with(|phase| {
            let Some(phase) = phase else { return };
            phase.done += values;
            if let Some(bar) = &phase.bar {
                bar.inc(values);
            } else if phase.logged.elapsed() >= LOG_EVERY {
                phase.logged = Instant::now();
                phase.log();
            }
        });
    }

    fn end(&self) {
        self.with(|phase| {
            if let Some(Phase { bar: Some(bar), .. }) = phase.take() {
                bar.finish_and_clear();
            }
        });
    }
}

impl Phase {
    fn log(&self) {
        use std::io::Write as _;
        let rate = self.done as f64 / self.begun.elapsed().as_secs_f64();
        let left = match self.expected {
            Some(expected) if rate > 0.0 => {
                format!(" of {expected}, {:.0} s left", expected.saturating_sub(self.done) as f64 / rate)
            }
            _ => String::new(),
        };
        _ = writeln!(std::io::stderr(), "atrest: {}: {}{left} ({rate:.0} a second)", self.name, self.done);
    }
}
