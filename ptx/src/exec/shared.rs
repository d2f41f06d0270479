//! A block's shared memory: bytes, who touched them, and what it cost.

use crate::counts::{self, Counts};
use crate::error::{FaultKind, Problem};
use crate::races::{Agent, Shadow};
use crate::trace::SharedAccess;

pub(crate) struct Shared {
    bytes: Vec<u8>,
    pub(crate) shadow: Shadow,
    /// What the current instruction did, if somebody watches.
    pub(super) observed: Option<Vec<SharedAccess>>,
}

impl Shared {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0xff; bytes], shadow: Shadow::new(bytes), observed: None }
    }

    /// Where an access of `len` bytes lies.
    ///
    /// # Errors
    /// If it is not aligned, or not inside.
    pub(crate) fn place(&self, address: u64, len: u32, align: u32) -> Result<usize, Problem> {
        if !address.is_multiple_of(u64::from(align)) {
            let text = format!(
                "{len} bytes at {address:#x} of shared memory; right would be a multiple of {align}"
            );
            return Err(Problem::new(FaultKind::Misaligned, text));
        }
        let end = address.checked_add(len.into()).filter(|&end| end <= self.bytes.len() as u64);
        if end.is_none() {
            let all = self.bytes.len();
            let text = format!(
                "{len} bytes at {address:#x} of shared memory; the block has {all:#x} bytes"
            );
            return Err(Problem::new(FaultKind::OutOfBounds, text));
        }
        Ok(address as usize)
    }

    /// A checked read of 1, 2, 4 or 8 bytes.
    pub(super) fn load(&mut self, at: usize, len: u32, agent: Agent<'_>) -> Result<u64, Problem> {
        self.shadow.read(at, len as usize, agent)?;
        Ok(self.peek(at, len))
    }

    /// A checked write of 1, 2, 4 or 8 bytes.
    pub(super) fn store(
        &mut self,
        at: usize,
        len: u32,
        value: u64,
        agent: Agent<'_>,
    ) -> Result<(), Problem> {
        self.shadow.write(at, len as usize, agent)?;
        self.put(at, len, value);
        Ok(())
    }

    /// A checked atomic change of 1, 2, 4 or 8 bytes; gives what was there.
    pub(super) fn change(
        &mut self,
        at: usize,
        len: u32,
        to: impl FnOnce(u64) -> u64,
        agent: Agent<'_>,
    ) -> Result<u64, Problem> {
        self.shadow.change(at, len as usize, agent)?;
        let old = self.peek(at, len);
        self.put(at, len, to(old));
        Ok(old)
    }

    fn put(&mut self, at: usize, len: u32, value: u64) {
        self.bytes[at..at + len as usize].copy_from_slice(&value.to_le_bytes()[..len as usize]);
    }

    /// Bytes as they are, whoever wrote them.
    pub(crate) fn peek(&self, at: usize, len: u32) -> u64 {
        let mut value = [0; 8];
        value[..len as usize].copy_from_slice(&self.bytes[at..at + len as usize]);
        u64::from_le_bytes(value)
    }

    pub(crate) fn slice(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    /// What a copy brings, written by an agent as of its `clock`.
    pub(crate) fn land(&mut self, at: usize, data: &[u8], agent: u32, clock: u32) {
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.shadow.end_copy(at, data.len(), agent, clock);
    }

    /// Counts one access of a warp: each lane's address, `bytes` bytes a lane.
    pub(super) fn count(
        &mut self,
        counts: &mut Counts,
        addresses: &[(u32, u32)],
        bytes: u32,
        writes: bool,
    ) {
        let lanes_each = counts::lanes_of_a_request(bytes);
        let (mut requests, mut wavefronts) = (0, 0);
        let mut words = Vec::with_capacity(32);
        for first in (0..32).step_by(lanes_each as usize) {
            words.clear();
            for (lane, address) in addresses {
                if (first..first + lanes_each).contains(lane) {
                    words.extend(address / 4..=address.saturating_add(bytes - 1) / 4);
                }
            }
            if !words.is_empty() {
                requests += 1;
                wavefronts += counts::wavefronts(&mut words);
            }
        }
        counts.shared_requests += requests;
        counts.shared_wavefronts += wavefronts;
        if let Some(observed) = &mut self.observed {
            let addresses = addresses.to_vec();
            observed.push(SharedAccess { writes, addresses, bytes, requests, wavefronts });
        }
    }

    /// Counts the rows of one 8x8 matrix, 16 bytes each.
    pub(super) fn count_matrix(&mut self, counts: &mut Counts, rows: &[(u32, u32)], writes: bool) {
        let mut words: Vec<u32> =
            rows.iter().flat_map(|(_, address)| address / 4..=address / 4 + 3).collect();
        let wavefronts = counts::wavefronts(&mut words);
        counts.shared_requests += 1;
        counts.shared_wavefronts += wavefronts;
        if let Some(observed) = &mut self.observed {
            observed.push(SharedAccess {
                writes,
                addresses: rows.to_vec(),
                bytes: 16,
                requests: 1,
                wavefronts,
            });
        }
    }
}
