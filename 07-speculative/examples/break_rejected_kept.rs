//! A refused token's keys and values stay in the cache.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&speculative::faults::REJECTED_KEPT)
}
