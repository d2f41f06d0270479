//! Breaks the grouping: query heads take key-value heads in turn, not by group.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&gqa_mla::faults::HEAD_GROUPS)
}
