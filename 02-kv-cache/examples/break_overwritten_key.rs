//! BREAK IT 1: one cached key becomes noise after 101 tokens.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&kv_cache::faults::OVERWRITTEN_KEY)
}
