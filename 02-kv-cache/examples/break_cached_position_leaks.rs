//! Breaks the uncached call: it starts at the position where a cached one ended.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::CACHED_POSITION_LEAKS)
}
