//! Ten seconds of what `examples/soak.rs` does for as long as one likes.

mod soak;

use soak::Soak;
use std::time::Duration;

#[test]
fn clients_that_come_go_stall_and_break_leave_no_wrong_token_and_nothing_behind() {
    let soak = Soak { clients: 64, lasting: Duration::from_secs(10), seed: 1 };
    let report = soak.run().unwrap();
    let json = serde_json::to_string_pretty(&report).unwrap();
    assert!(report.problems.is_empty(), "{json}");
    // It would hold of a server that is not under pressure, too; this one has to be.
    let load = &report.load;
    assert!(load.preemptions > 0 && load.most_waiting > 0, "{json}");
    for what in ["answered whole", "answered in a stream", "left", "broken off"] {
        assert!(report.requests[what] > 0, "{what}: {json}");
    }
}
