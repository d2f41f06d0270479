//! Breaks the layer: each reads the cache of the one before.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::WRONG_LAYER)
}
