//! What is wrong with a file of JSON: it ends too early, is something else, or lacks what it should say.

use crate::error::Error;
use serde_json::error::Category;

impl Error {
    /// A file that cannot be read as the JSON that it should be.
    pub fn json(file: impl Into<String>, source: &serde_json::Error) -> Self {
        let problem = match source.classify() {
            Category::Eof => format!("cut short, expected whole JSON: {source}"),
            Category::Syntax => format!("not JSON: {source}"),
            Category::Data | Category::Io => source.to_string(),
        };
        Error::file(file, problem)
    }
}
