//! Breaks a ring in the step that fills it.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&gqa_mla::faults::FULL_WINDOW)
}
