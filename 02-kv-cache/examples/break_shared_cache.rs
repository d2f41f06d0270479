//! Breaks isolation: two requests share one cache.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::SHARED_CACHE)
}
