//! Breaks positions: they start again after the prompt.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&naive_decode::faults::ROPE_RESTARTS)
}
