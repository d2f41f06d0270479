//! mbarriers: barriers in shared memory that count arrivals and bytes.

use std::collections::HashMap;

use crate::counts::Counts;
use crate::error::Problem;
use crate::exec::{Block, Flow, Until, Waiting, Warp, lanes};
use crate::isa::{Address, Mbarrier, WaitFor};
use crate::races::{self, AGENTS, Clock};
use crate::trace::MbarrierPhase;

/// Bytes of an mbarrier object.
const BYTES: u32 = 8;
/// The most arrivals, and bytes, that a phase can expect.
const MOST: u64 = (1 << 20) - 1;

#[derive(Debug)]
struct State {
    /// Phases completed so far; the phase under way has this number.
    phase: u64,
    expected: u32,
    /// Arrivals that the phase under way still waits for.
    pending: u32,
    /// Bytes that it still waits for; below zero while more have come than were announced.
    bytes: i64,
    /// What those who arrived knew.
    gathering: Clock,
    /// The same of phases that are complete.
    released: Clock,
}

/// All mbarriers of a block, by address.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    states: HashMap<u32, State>,
}

impl Mbarriers {
    fn get(&mut self, at: u64) -> Result<&mut State, Problem> {
        let state = u32::try_from(at).ok().and_then(|at| self.states.get_mut(&at));
        state.ok_or_else(|| {
            Problem::invalid(format!("no mbarrier was initialised at {at:#x} of shared memory"))
        })
    }

    /// `count` arrivals of somebody who knows `known`; none is allowed: then only what is known is handed over.
    pub(crate) fn arrive(
        &mut self,
        at: u64,
        count: u32,
        known: &Clock,
        counts: &mut Counts,
    ) -> Result<u64, Problem> {
        let state = self.get(at)?;
        if count > state.pending {
            let (pending, expected) = (state.pending, state.expected);
            return Err(Problem::invalid(format!(
                "{count} arrivals at the mbarrier at {at:#x}, whose phase waits for {pending} more of {expected}"
            )));
        }
        let phase = state.phase;
        races::join(&mut state.gathering, known);
        state.pending -= count;
        state.settle(counts);
        Ok(phase)
    }

    fn expect(&mut self, at: u64, bytes: u64) -> Result<(), Problem> {
        if bytes > MOST {
            return Err(Problem::invalid(format!(
                "{bytes} bytes expected in a phase; at most {MOST} can be"
            )));
        }
        self.get(at)?.bytes += bytes as i64;
        Ok(())
    }

    /// So many threads will arrive, beside those that the phase under way waits for.
    pub(crate) fn await_more(&mut self, at: u64, threads: u32) -> Result<(), Problem> {
        self.get(at)?.pending += threads;
        Ok(())
    }

    /// Bytes have come, brought by somebody who knew `known` when the copy began.
    pub(crate) fn complete(
        &mut self,
        at: u64,
        bytes: u64,
        known: &Clock,
        counts: &mut Counts,
    ) -> Result<(), Problem> {
        let state = self.get(at)?;
        state.bytes -= bytes as i64;
        races::join(&mut state.gathering, known);
        state.settle(counts);
        Ok(())
    }

    pub(crate) fn is_over(&self, at: u32, until: Until) -> bool {
        self.states.get(&at).is_none_or(|state| match until {
            Until::Parity(parity) => state.phase & 1 != u64::from(parity & 1),
            Until::Phase(phase) => state.phase > phase,
        })
    }

    /// Where each stands, by address.
    pub(crate) fn phases(&self) -> Vec<MbarrierPhase> {
        let phase = |(&address, state): (&u32, &State)| MbarrierPhase {
            address,
            phase: state.phase,
            arrivals: state.pending,
            bytes: state.bytes,
        };
        let mut phases: Vec<_> = self.states.iter().map(phase).collect();
        phases.sort_unstable_by_key(|phase| phase.address);
        phases
    }

    /// That somebody waits here, in words.
    pub(crate) fn describe(&self, at: u32, until: Until) -> String {
        let phase = match until {
            Until::Parity(parity) => format!("the phase of parity {parity}"),
            Until::Phase(phase) => format!("phase {phase}"),
        };
        let Some(state) = self.states.get(&at) else {
            return format!("for {phase} of the mbarrier at {at:#x}");
        };
        format!(
            "for {phase} of the mbarrier at {at:#x}, which is in phase {} with {} of {} arrivals and {} bytes to come",
            state.phase, state.pending, state.expected, state.bytes
        )
    }
}

impl State {
    /// On to the next phase, if this one has everything.
    fn settle(&mut self, counts: &mut Counts) {
        if self.pending == 0 && self.bytes == 0 {
            self.phase += 1;
            self.pending = self.expected;
            races::join(&mut self.released, &self.gathering);
            counts.mbarrier_phases += 1;
        }
    }
}

impl<'a> Block<'a> {
    pub(crate) fn mbarrier(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        at: &Address,
        what: &Mbarrier,
    ) -> Result<Flow, Problem> {
        let at = self.barrier_addresses(warp, at);
        let known = match what {
            Mbarrier::Arrive { .. } | Mbarrier::Complete { .. } | Mbarrier::Expect { .. } => {
                warp.release()
            }
            _ => warp.clock,
        };
        for lane in lanes(mask) {
            let place =
                self.shared.place(at[lane], BYTES, BYTES).map_err(|problem| problem.at(lane))?;
            let checked = match what {
                Mbarrier::Init { .. } => {
                    self.shared.shadow.write(place, BYTES as usize, warp.agent())
                }
                _ => self.shared.shadow.check_written(place, BYTES as usize, warp.agent()),
            };
            checked.map_err(|problem| problem.at(lane))?;
        }
        match what {
            Mbarrier::Init { count } => {
                let count = warp.value(*count, self.grid());
                for lane in lanes(mask) {
                    if count[lane] == 0 || count[lane] > MOST {
                        let text = format!(
                            "an mbarrier for {} arrivals; from 1 to {MOST} can be",
                            count[lane]
                        );
                        return Err(Problem::invalid(text).at(lane));
                    }
                    let expected = count[lane] as u32;
                    let zero = [0; AGENTS];
                    let state = State {
                        phase: 0,
                        expected,
                        pending: expected,
                        bytes: 0,
                        gathering: zero,
                        released: zero,
                    };
                    self.mbarriers.states.insert(at[lane] as u32, state);
                }
            }
            Mbarrier::Invalidate => {
                for lane in lanes(mask) {
                    self.mbarriers.get(at[lane]).map_err(|problem| problem.at(lane))?;
                    self.mbarriers.states.remove(&(at[lane] as u32));
                }
            }
            Mbarrier::Arrive { state, count, expect } => {
                let count = warp.value(*count, self.grid());
                let expect = expect.map(|bytes| warp.value(bytes, self.grid()));
                for lane in lanes(mask) {
                    let arrived = match expect {
                        Some(bytes) => self.mbarriers.expect(at[lane], bytes[lane] & 0xffff_ffff),
                        None => Ok(()),
                    };
                    let phase = arrived.and_then(|()| {
                        self.mbarriers.arrive(
                            at[lane],
                            count[lane] as u32,
                            &known,
                            &mut self.counts,
                        )
                    });
                    let phase = phase.map_err(|problem| problem.at(lane))?;
                    if let Some(state) = state {
                        warp.put_one(*state, lane, phase);
                    }
                }
            }
            Mbarrier::Expect { bytes } => {
                let bytes = warp.value(*bytes, self.grid());
                for lane in lanes(mask) {
                    let expected = self.mbarriers.expect(at[lane], bytes[lane] & 0xffff_ffff);
                    expected.map_err(|problem| problem.at(lane))?;
                }
            }
            Mbarrier::Complete { bytes } => {
                let bytes = warp.value(*bytes, self.grid());
                for lane in lanes(mask) {
                    let done = self.mbarriers.complete(
                        at[lane],
                        bytes[lane] & 0xffff_ffff,
                        &known,
                        &mut self.counts,
                    );
                    done.map_err(|problem| problem.at(lane))?;
                }
            }
            Mbarrier::Wait { dst, blocks, phase } => {
                let operand = match phase {
                    WaitFor::Parity(parity) => *parity,
                    WaitFor::State(state) => *state,
                };
                let values = warp.value(operand, self.grid());
                let mut over = 0;
                for lane in lanes(mask) {
                    let until = match phase {
                        WaitFor::Parity(_) => Until::Parity(values[lane] as u32 & 1),
                        WaitFor::State(_) => Until::Phase(values[lane]),
                    };
                    let released =
                        self.mbarriers.get(at[lane]).map_err(|problem| problem.at(lane))?.released;
                    if self.mbarriers.is_over(at[lane] as u32, until) {
                        over |= 1 << lane;
                        races::join(&mut warp.clock, &released);
                    } else if *blocks {
                        // The ISA lets `try_wait` wait for as long as it likes: here until the phase is complete.
                        warp.waiting = Some(Waiting::Mbarrier { at: at[lane] as u32, until });
                        return Ok(Flow::Wait);
                    }
                }
                warp.put_pred(*dst, mask, over);
                return Ok(if over == mask { Flow::On } else { Flow::Yield });
            }
        }
        Ok(Flow::On)
    }

    /// Addresses in shared memory; generic ones are brought there.
    pub(crate) fn barrier_addresses(&self, warp: &Warp<'a>, at: &Address) -> crate::exec::Lanes {
        warp.addresses(at, self.grid()).map(crate::exec::in_shared)
    }
}
