//! Turns chapters into pages.

use std::path::Path;

use mdbook_driver::MDBook;
use mdbook_driver::builtin_preprocessors::{IndexPreprocessor, LinkPreprocessor};
use mdbook_driver::config::Config;

use crate::passes::Passes;
use crate::place::Place;

/// What only a served book has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reload {
    /// Pages reload themselves when the server says so.
    OnChange,
    Never,
}

/// Builds the book into `output`, replacing what was there.
pub(crate) fn render(place: &Place, output: &Path, reload: Reload) -> anyhow::Result<()> {
    let mut config = Config::from_disk(place.book().join("book.toml"))?;
    config.build.build_dir = output.into();
    // Ours run first, on the pages as they were written; then mdBook's own.
    config.build.use_default_preprocessors = false;
    if reload == Reload::OnChange {
        let mut scripts: Vec<String> = config.get("output.html.additional-js")?.unwrap_or_default();
        scripts.push("theme/reload.js".into());
        config.set("output.html.additional-js", scripts)?;
    }
    let mut book = MDBook::load_with_config(place.book(), config)?;
    book.with_preprocessor(Passes { place: place.clone() });
    book.with_preprocessor(LinkPreprocessor::new());
    book.with_preprocessor(IndexPreprocessor::new());
    book.build()
}
