//! Breaks the reset: the second request still sees the first.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::CACHE_NOT_RESET)
}
