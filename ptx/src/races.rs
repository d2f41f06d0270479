//! Who may touch which byte of shared memory: happens-before, by vector clocks.
//!
//! Every warp has a clock, which goes on whenever the warp lets others know what it has done: at a barrier, at an arrival
//! at an mbarrier, at the start of an asynchronous copy. A warp that waits takes over the clocks of those it waited for. What
//! writes or reads by itself has clocks too: the tensor cores of each warp group, and copies that an mbarrier hears of, which are
//! known to whoever has waited there, and not to whoever has only heard that they began.
//! Of every byte the last write and the reads since are kept as (warp, clock), and who changed it atomically since. An
//! access is fine if the warp has taken over the clock of what it conflicts with; atomics do not conflict with each other. The method is FastTrack (Flanagan and Freund, 2009). It does not depend on
//! the order in which the interpreter happens to run warps: a missing barrier is found even where the result is right.
//!
//! Lanes of one warp count as ordered by the warp's instructions.

use crate::error::{FaultKind, Problem};
use std::collections::HashMap;

/// Whose clocks there are: 32 warps, the tensor cores of eight warp groups, and copies by their mbarriers.
pub(crate) const AGENTS: usize = 1 << AGENT_BITS;
/// The first agent of copies.
const COPIES: usize = 40;

/// What somebody knows of each of the others.
pub(crate) type Clock = [u32; AGENTS];

/// The tensor cores' agent of the warp group that a warp belongs to: their products read shared memory by themselves.
pub(crate) fn tensor_agent(warp: u32) -> u32 {
    32 + warp / 4
}

/// The agent of the copies that report to the block's mbarrier of this number. Of more mbarriers than there are agents, some share
/// one: who has waited at either then seems to have waited at both, so that a race may be missed and none is made up.
pub(crate) fn copies_agent(mbarrier: usize) -> u32 {
    (COPIES + mbarrier % (AGENTS - COPIES)) as u32
}

/// Takes over everything that `other` knows.
pub(crate) fn join(clock: &mut Clock, other: &Clock) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// Of a write: atomics have changed the byte since. Of a read: the lower bits are an index into `readers`.
const FLAG: u32 = 1 << 31;
/// Of a write: an asynchronous copy will write the byte at a time unknown.
const IN_FLIGHT: u32 = u32::MAX;
/// Bytes that are held together by products under way.
const CHUNK: usize = 16;

/// Lower bits of an epoch: the agent. The others: its clock.
const AGENT_BITS: u32 = 6;
const AGENT: u32 = (1 << AGENT_BITS) - 1;

fn epoch(agent: u32, clock: u32) -> u32 {
    ((clock << AGENT_BITS) | agent) & !FLAG
}

fn is_before(epoch: u32, clock: &Clock) -> bool {
    let epoch = epoch & !FLAG;
    clock[(epoch & AGENT) as usize] >= epoch >> AGENT_BITS
}

/// Somebody whose clock was not taken over.
fn unseen(clock: &Clock, by: &Clock) -> Option<u32> {
    (0..AGENTS).find(|&agent| clock[agent] > by[agent]).map(|agent| agent as u32)
}

/// Who accesses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agent<'c> {
    pub(crate) warp: u32,
    pub(crate) clock: &'c Clock,
}

/// What is known of every byte of a block's shared memory.
#[derive(Debug)]
pub(crate) struct Shadow {
    writes: Vec<u32>,
    reads: Vec<u32>,
    readers: Vec<Clock>,
    free: Vec<u32>,
    /// Of bytes that atomics have changed since they were written: when whose last one did.
    atomics: HashMap<usize, Clock>,
    /// How many products under way will still read each chunk.
    held: Vec<u16>,
}

impl Shadow {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            writes: vec![0; bytes],
            reads: vec![0; bytes],
            readers: Vec::new(),
            free: Vec::new(),
            atomics: HashMap::new(),
            held: vec![0; bytes.div_ceil(CHUNK)],
        }
    }

    /// A read of `len` bytes at `at`, which lie inside.
    pub(crate) fn read(&mut self, at: usize, len: usize, agent: Agent<'_>) -> Result<(), Problem> {
        let now = epoch(agent.warp, agent.clock[agent.warp as usize]);
        // The last byte's write, which was found to be in order. Atomics differ byte by byte.
        let mut in_order = FLAG;
        for byte in at..at + len {
            let write = self.writes[byte];
            if write != in_order || write & FLAG != 0 {
                if write == 0 {
                    return Err(unwritten("reads", byte));
                }
                self.check_writes("reads", byte, agent)?;
                self.check_atomics("reads", byte, agent)?;
                in_order = write;
            }
            let read = self.reads[byte];
            if read == now {
                continue;
            }
            if read & FLAG != 0 {
                self.readers[(read & !FLAG) as usize][agent.warp as usize] = now >> AGENT_BITS;
            } else if read == 0 || is_before(read, agent.clock) {
                self.reads[byte] = now;
            } else {
                let mut readers = [0; AGENTS];
                readers[(read & AGENT) as usize] = read >> AGENT_BITS;
                readers[agent.warp as usize] = now >> AGENT_BITS;
                let index = self.free.pop().unwrap_or_else(|| {
                    self.readers.push([0; AGENTS]);
                    self.readers.len() as u32 - 1
                });
                self.readers[index as usize] = readers;
                self.reads[byte] = index | FLAG;
            }
        }
        Ok(())
    }

    /// That the last write of a byte has landed and is known to the agent.
    fn check_writes(&self, does: &str, byte: usize, agent: Agent<'_>) -> Result<(), Problem> {
        let write = self.writes[byte];
        if write == IN_FLIGHT {
            return Err(in_flight(does, byte));
        }
        if !is_before(write, agent.clock) {
            return Err(race(does, byte, "wrote", write));
        }
        Ok(())
    }

    /// That every atomic since the last write is known to the agent.
    fn check_atomics(&self, does: &str, byte: usize, agent: Agent<'_>) -> Result<(), Problem> {
        if self.writes[byte] & FLAG == 0 {
            return Ok(());
        }
        let since = self.atomics.get(&byte);
        match since.and_then(|since| unseen(since, agent.clock)) {
            None => Ok(()),
            Some(other) => Err(race(does, byte, "changed atomically", other)),
        }
    }

    fn check_held(&self, does: &str, byte: usize) -> Result<(), Problem> {
        if self.held[byte / CHUNK] == 0 {
            return Ok(());
        }
        let text = format!(
            "{does} byte {byte:#x} of shared memory, which an asynchronous operation under way still reads"
        );
        Err(Problem::new(FaultKind::InFlight, text))
    }

    /// That every read since the last write is known to the agent.
    fn check_reads(&self, does: &str, byte: usize, agent: Agent<'_>) -> Result<(), Problem> {
        let read = self.reads[byte];
        if read & FLAG != 0 {
            let readers = &self.readers[(read & !FLAG) as usize];
            if let Some(other) = unseen(readers, agent.clock) {
                return Err(race(does, byte, "read", other));
            }
        } else if !is_before(read, agent.clock) {
            return Err(race(does, byte, "read", read));
        }
        Ok(())
    }

    /// What came before is over: the byte is written anew.
    fn may_write(&mut self, byte: usize, agent: Agent<'_>) -> Result<(), Problem> {
        self.check_held("writes", byte)?;
        self.check_writes("writes", byte, agent)?;
        self.check_atomics("writes", byte, agent)?;
        self.check_reads("writes", byte, agent)?;
        let read = std::mem::take(&mut self.reads[byte]);
        if read & FLAG != 0 {
            self.free.push(read & !FLAG);
        }
        if self.writes[byte] & FLAG != 0 {
            self.atomics.remove(&byte);
        }
        Ok(())
    }

    /// A write of `len` bytes at `at`, which lie inside.
    pub(crate) fn write(&mut self, at: usize, len: usize, agent: Agent<'_>) -> Result<(), Problem> {
        let now = epoch(agent.warp, agent.clock[agent.warp as usize]);
        for byte in at..at + len {
            self.may_write(byte, agent)?;
            self.writes[byte] = now;
        }
        Ok(())
    }

    /// An atomic change of `len` bytes at `at`, which lie inside. Writes and reads before it stay: another atomic, which
    /// is not ordered after this one, may not come before them either.
    pub(crate) fn change(
        &mut self,
        at: usize,
        len: usize,
        agent: Agent<'_>,
    ) -> Result<(), Problem> {
        let warp = agent.warp as usize;
        for byte in at..at + len {
            if self.writes[byte] == 0 {
                return Err(unwritten("changes", byte));
            }
            self.check_held("changes", byte)?;
            self.check_writes("changes", byte, agent)?;
            self.check_reads("changes", byte, agent)?;
            self.writes[byte] |= FLAG;
            self.atomics.entry(byte).or_insert([0; AGENTS])[warp] = agent.clock[warp];
        }
        Ok(())
    }

    /// An asynchronous copy into these bytes begins.
    pub(crate) fn begin_copy(
        &mut self,
        at: usize,
        len: usize,
        agent: Agent<'_>,
    ) -> Result<(), Problem> {
        for byte in at..at + len {
            self.may_write(byte, agent)?;
            self.writes[byte] = IN_FLIGHT;
        }
        Ok(())
    }

    /// The copy has landed: written by an agent as of its `clock`.
    pub(crate) fn end_copy(&mut self, at: usize, len: usize, agent: u32, clock: u32) {
        self.writes[at..at + len].fill(epoch(agent, clock));
    }

    /// Reading by an asynchronous operation begins, or ends.
    pub(crate) fn hold(&mut self, at: usize, len: usize, begins: bool) {
        for held in &mut self.held[at / CHUNK..(at + len).div_ceil(CHUNK)] {
            *held = if begins { held.saturating_add(1) } else { held.saturating_sub(1) };
        }
    }

    /// That the last write of these bytes is known to the warp, without a read: for what looks at an mbarrier.
    pub(crate) fn check_written(
        &self,
        at: usize,
        len: usize,
        agent: Agent<'_>,
    ) -> Result<(), Problem> {
        for byte in at..at + len {
            let write = self.writes[byte];
            if write != 0 && !is_before(write, agent.clock) {
                return Err(race("uses the mbarrier at", byte, "initialised", write));
            }
        }
        Ok(())
    }
}

fn unwritten(does: &str, byte: usize) -> Problem {
    let text = format!("{does} byte {byte:#x} of shared memory, which nothing has written yet");
    Problem::new(FaultKind::Uninitialised, text)
}

fn in_flight(does: &str, byte: usize) -> Problem {
    let text = format!(
        "{does} byte {byte:#x} of shared memory, into which an asynchronous copy has not landed yet"
    );
    Problem::new(FaultKind::InFlight, text)
}

fn race(does: &str, byte: usize, did: &str, epoch: u32) -> Problem {
    let agent = epoch & AGENT;
    let who = match agent.checked_sub(32) {
        None => format!("warp {agent}"),
        Some(group) if (agent as usize) < COPIES => {
            format!("a wgmma of warps {} to {}", 4 * group, 4 * group + 3)
        }
        Some(_) => "an asynchronous copy".into(),
    };
    let text = format!(
        "{does} byte {byte:#x} of shared memory, which {who} {did}, with no barrier between the two"
    );
    Problem::new(FaultKind::Race, text)
}
