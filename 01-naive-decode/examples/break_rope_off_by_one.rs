//! Breaks positions: generated tokens stand one too far.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&naive_decode::faults::ROPE_OFF_BY_ONE)
}
