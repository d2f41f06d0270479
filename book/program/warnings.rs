//! What mdBook warns of while it works. It only writes a log; here a warning is a problem.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the text of every warning and error.
#[derive(Clone, Default)]
struct Collector {
    warnings: Arc<Mutex<Vec<String>>>,
}

/// Runs `work`, and returns with its result what was warned of meanwhile.
pub(crate) fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let collector = Collector::default();
    let result = tracing::subscriber::with_default(collector.clone(), work);
    let warnings =
        std::mem::take(&mut *collector.warnings.lock().expect("nobody panics with this lock"));
    (result, warnings)
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.warnings.lock().expect("nobody panics with this lock").push(message.0);
    }

    // Spans are of no interest.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}").replace('\n', " ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_kept_and_lesser_news_is_not() {
        let (result, warnings) = collect(|| {
            tracing::warn!("a tag is not closed in {}", "x.md");
            tracing::info!("all is well");
            7
        });
        assert_eq!((result, warnings), (7, vec!["a tag is not closed in x.md".to_string()]));
    }
}
