//! What `--model WHAT` means.

use crate::files::ModelFiles;
use naive_decode::{Error, Result};
use std::path::Path;

/// Opens the model that somebody named on a command line: a directory, a `.gguf` file or a
/// `.safetensors` file.
///
/// # Errors
/// Whatever is missing, malformed or contradictory, by file.
pub fn open(what: &str) -> Result<ModelFiles> {
    let path = Path::new(what);
    if !path.is_file() {
        return ModelFiles::open_directory(path);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gguf") => ModelFiles::open_gguf(path),
        Some("safetensors") => ModelFiles::open_safetensors(path),
        _ => Err(Error::file(what, "is a file, expected a directory, a .gguf or a .safetensors file")),
    }
}
