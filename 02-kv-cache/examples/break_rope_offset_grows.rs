//! Breaks positions: the offset grows by the prompt's length.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::ROPE_OFFSET_GROWS)
}
