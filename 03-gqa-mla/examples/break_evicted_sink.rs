//! A window slides past the attention sink.
fn main() -> naive_decode::Result<()> {
    naive_decode::break_it::main(&gqa_mla::faults::EVICTED_SINK)
}
