//! A known stretch of text at another position.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::MOVED_TEXT)
}
