//! A scale for every 32 weights, of which only the first is used.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&flash_attention::faults::GROUP_SCALE)
}
