//! Everything that can go wrong, said so that the reader knows what to change.

use std::path::PathBuf;

/// Result of anything in this crate that can be given bad input.
pub type Result<T> = std::result::Result<T, Error>;

/// What was wrong, where it was, and what would have been right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be opened, read or mapped.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file was read but is not what its name promises: truncated, malformed, another format.
    #[error("{file}: {problem}")]
    File {
        /// The file, or a description such as "embedded target".
        file: String,
        /// What is wrong with it and what was expected.
        problem: String,
    },
    /// A checkpoint lacks a tensor that the configuration calls for.
    #[error("{file}: tensor `{tensor}` is missing (expected shape {expected:?})")]
    MissingTensor {
        /// The weights file.
        file: String,
        /// Name of the tensor, as in the Hugging Face layout.
        tensor: String,
        /// Shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// A tensor is there with another shape than the configuration implies.
    #[error("{file}: tensor `{tensor}` has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// The weights file.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// Shape that the configuration implies.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// A parameter or an input has a value that cannot be worked with.
    #[error("{what} is {found}, expected {expected}")]
    Invalid {
        /// The parameter or input, in the caller's terms: "temperature", "prompt".
        what: String,
        /// The value given.
        found: String,
        /// What would have been accepted.
        expected: String,
    },
    /// The device that a model runs on has failed: nothing can be run on it any more by this process.
    #[error("{device}: {problem}")]
    Device {
        /// What fails: "CUDA".
        device: String,
        /// What it says.
        problem: String,
    },
    /// Something that must hold inside the program does not. Whoever is told can change nothing about it.
    #[error("a defect of this program: {problem}")]
    Defect {
        /// What does not hold.
        problem: String,
    },
    /// A sequence would grow past what the model or the cache can hold.
    #[error("{what} holds {capacity} tokens; {asked} were asked for")]
    Capacity {
        /// What is full: "the model's context", "the cache of sequence 3".
        what: String,
        /// How many tokens it holds.
        capacity: usize,
        /// How many would have been needed.
        asked: usize,
    },
}

impl Error {
    /// A value that was refused: `what` is `found`, expected `expected`.
    pub fn invalid(
        what: impl Into<String>,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Error::Invalid { what: what.into(), found: found.to_string(), expected: expected.into() }
    }

    /// A device that has failed, and what it says.
    pub fn device(device: impl Into<String>, problem: impl ToString) -> Self {
        Error::Device { device: device.into(), problem: problem.to_string() }
    }

    /// A file whose content is not what it should be.
    pub fn file(file: impl Into<String>, problem: impl ToString) -> Self {
        Error::File { file: file.into(), problem: problem.to_string() }
    }
}
