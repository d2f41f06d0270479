//! A published model, which tests read if one is at hand.

use std::io::Write;

/// The file that `LADDER_REAL_MODEL` names. Without one there is none, and the reader is told: what was skipped must not
/// look as if it had passed.
pub fn real_model() -> Option<String> {
    let Some(path) = std::env::var_os("LADDER_REAL_MODEL") else {
        // Not `eprintln!`: what that says is kept back where a test passes.
        let _ = writeln!(std::io::stderr(), "skipped: LADDER_REAL_MODEL names no file");
        return None;
    };
    Some(path.into_string().expect("a path in UTF-8"))
}
