//! Breaks the length: only the last layer brings it up to date.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::STALE_LENGTH)
}
