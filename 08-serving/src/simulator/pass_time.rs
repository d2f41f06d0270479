//! How long a pass takes: as the roofline has it, or as measured.

use super::fit::Fitted;
use super::model::PassWork;
use naive_decode::roofline::{Machine, Work};

/// Says how long a pass takes.
#[derive(Debug, Clone, PartialEq)]
pub enum PassTime {
    /// The least it could take, were arithmetic and memory traffic to overlap wholly.
    Roofline(Machine),
    /// What passes of a real engine took.
    Measured(Fitted),
}

impl PassTime {
    /// Seconds of a pass.
    pub fn seconds(&self, work: &PassWork) -> f64 {
        match self {
            PassTime::Roofline(machine) => machine.least_seconds(&Work::from(*work)),
            PassTime::Measured(fitted) => fitted.seconds(work),
        }
    }

    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            PassTime::Roofline(_) => "roofline",
            PassTime::Measured(_) => "measured",
        }
    }
}

impl From<PassWork> for Work {
    fn from(work: PassWork) -> Self {
        Work { flops: work.flops as u64, weight_bytes: work.bytes as u64, ..Work::default() }
    }
}
