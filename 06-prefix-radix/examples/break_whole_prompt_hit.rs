//! All of a prompt is found, and its last token is read twice.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&prefix_radix::faults::WHOLE_PROMPT_HIT)
}
