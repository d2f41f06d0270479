//! Breaks the first write: position 0 stays zeros.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::FIRST_TOKEN_MISSING)
}
