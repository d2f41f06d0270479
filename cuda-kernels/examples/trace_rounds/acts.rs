//! What a warp does, as the interpreter tells of it, with everything left out but what others wait for.

use ptx_interpreter::{Step, Trace};
use std::collections::HashMap;

/// One warp's acts, in order.
pub(crate) type Acts = Vec<Act>;

/// Something that a warp does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Makes an mbarrier at this address for so many arrivals.
    Init(u64, u64),
    /// Begins to fetch a tile; on Hopper the mbarrier that is told.
    Fetch(Option<u64>),
    /// Brings a tile by way of its registers.
    Load,
    /// Waits until what it has begun to fetch is there.
    WaitForFetches,
    /// Arrives at an mbarrier, whose phase from now on waits for a fetch.
    Expect(u64),
    /// Arrives at an mbarrier.
    Arrive(u64),
    /// Waits for the end of an mbarrier's phase of this parity.
    Wait(u64, u64),
    /// Waits for its turn: a named barrier.
    WaitForTurn(u64),
    /// Lets the other have its turn.
    EndTurn(u64),
    /// Begins products of queries and keys.
    Scores,
    /// Begins products of weights and values.
    Output,
    /// Waits until at most so many of its products are under way.
    WaitForProducts(usize),
    /// Turns scores into weights.
    Softmax,
    /// Everything with a tile: scores, softmax and output.
    Work,
}

/// Some warps of one block.
pub(crate) struct Seen {
    warps: Vec<u32>,
    block: [u32; 3],
    pub(crate) acts: Vec<Acts>,
    /// For each warp what lane 0 has in its registers.
    registers: Vec<HashMap<String, u64>>,
}

impl Seen {
    pub(crate) fn new(warps: &[u32], block: [u32; 3]) -> Self {
        let count = warps.len();
        let (acts, registers) = (vec![Vec::new(); count], vec![HashMap::new(); count]);
        Self { warps: warps.to_vec(), block, acts, registers }
    }
}

impl Trace for Seen {
    fn step(&mut self, step: &Step<'_>) {
        let Some(at) = self.warps.iter().position(|warp| *warp == step.warp) else { return };
        if step.block != self.block {
            return;
        }
        let text = step.text.trim_start_matches(|c| c != ' ').trim_start();
        let text = if step.text.starts_with('@') { text } else { step.text };
        let registers = &self.registers[at];
        let value = |operand: &str| {
            let name = operand.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '%');
            registers
                .get(name)
                .copied()
                .or_else(|| name.parse().ok())
                .unwrap_or_else(|| panic!("{operand} of {text}"))
        };
        let operands = text.split_once(' ').map_or("", |(_, operands)| operands);
        let list: Vec<&str> = operands.split(',').map(str::trim).collect();
        let is = |opcode: &str| text.starts_with(opcode);
        let acts = &mut self.acts[at];
        // A run of instructions of one kind is one act.
        let once = |acts: &mut Acts, act: Act| {
            if acts.last() != Some(&act) {
                acts.push(act);
            }
        };
        if is("mbarrier.init") {
            acts.push(Act::Init(value(list[0]), value(list[1])));
        } else if is("mbarrier.arrive.expect_tx") {
            acts.push(Act::Expect(value(list[1])));
        } else if is("mbarrier.arrive") {
            acts.push(Act::Arrive(value(list[1])));
        } else if is("mbarrier.try_wait") {
            acts.push(Act::Wait(value(list[1]), value(list[2])));
        } else if is("cp.async.bulk.tensor") {
            acts.push(Act::Fetch(Some(value(list[list.len() - 1]))));
        } else if is("cp.async.commit_group") {
            acts.push(Act::Fetch(None));
        } else if is("cp.async.wait_group") {
            acts.push(Act::WaitForFetches);
        } else if is("wgmma.mma_async") {
            let scores = text.contains("m64n128");
            once(acts, if scores { Act::Scores } else { Act::Output });
        } else if is("wgmma.wait_group") {
            acts.push(Act::WaitForProducts(value(list[0]) as usize));
        } else if is("ex2") && acts.contains(&Act::Scores) {
            once(acts, Act::Softmax);
        } else if is("bar.arrive") {
            acts.push(Act::EndTurn(value(list[0])));
        } else if is("bar.sync") && list.len() > 1 {
            acts.push(Act::WaitForTurn(value(list[0])));
        } else if is("st.shared.v4") && acts.last() != Some(&Act::Fetch(None)) {
            // The queries come along with the first tile.
            once(acts, Act::Load);
        } else if is("ld.shared.v4") {
            once(acts, Act::Work);
        }
        for (name, lanes) in step.written {
            self.registers[at].insert((*name).into(), lanes[0]);
        }
    }
}
