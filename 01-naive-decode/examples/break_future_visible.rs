//! Breaks the causal mask: every row of the prompt sees all of it.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&naive_decode::faults::FUTURE_VISIBLE)
}
