//! BREAK IT 2: every key and value is written one slot too far.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::SHIFTED_WRITE)
}
