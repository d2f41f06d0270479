//! Loads, stores and atomics, in every state space.

use super::block::Block;
use super::combine::{combine, in_global};
use super::step::locate;
use super::warp::Warp;
use super::{Lanes, lanes};
use crate::counts;
use crate::error::{FaultKind, Problem};
use crate::isa::{Address, Combine, Operand, Reg, Space, Type};
use crate::memory::{Allocation, MODULE_WINDOW, WINDOW};

/// Lanes whose addresses lie in one state space.
struct Part {
    space: Space,
    mask: u32,
}

/// Takes generic addresses apart; others stay as they are.
fn split(space: Space, mask: u32, addresses: &mut Lanes) -> Vec<Part> {
    if space != Space::Generic {
        return vec![Part { space, mask }];
    }
    let mut parts: Vec<Part> = Vec::new();
    for lane in lanes(mask) {
        let (space, offset) = locate(addresses[lane]);
        addresses[lane] = offset;
        match parts.iter_mut().find(|part| part.space == space) {
            Some(part) => part.mask |= 1 << lane,
            None => parts.push(Part { space, mask: 1 << lane }),
        }
    }
    parts
}

/// Each lane with its address, for counting.
fn listed(mask: u32, addresses: &Lanes) -> Vec<(u32, u32)> {
    lanes(mask).map(|lane| (lane as u32, addresses[lane] as u32)).collect()
}

fn aligned(address: u64, bytes: u32, what: &str) -> Result<(), Problem> {
    if address.is_multiple_of(u64::from(bytes)) {
        return Ok(());
    }
    let text = format!(
        "{bytes} bytes at {address:#x} of {what} memory; right would be a multiple of {bytes}"
    );
    Err(Problem::new(FaultKind::Misaligned, text))
}

fn outside(what: &str, address: u64, bytes: u32, all: usize) -> Problem {
    let text = format!("{bytes} bytes at {address:#x} of {what} memory, which has {all:#x} bytes");
    Problem::new(FaultKind::OutOfBounds, text)
}

impl<'a> Block<'a> {
    /// The allocation of an access to global memory.
    pub(crate) fn global(
        &self,
        address: u64,
        bytes: u64,
    ) -> Result<(&'a Allocation, u64), Problem> {
        self.device.find(address, bytes).ok_or_else(|| {
            let around = self.device.around(address);
            Problem::new(
                FaultKind::OutOfBounds,
                format!("{bytes} bytes at {address:#x} of global memory; {around}"),
            )
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
    pub(super) fn load(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        space: Space,
        ty: Type,
        dst_bytes: u32,
        dst: &[Option<Reg>],
        from: &Address,
    ) -> Result<(), Problem> {
        let mut addresses = warp.addresses(from, &self.grid);
        let each = ty.bytes();
        let bytes = each * dst.len() as u32;
        // Signed values fill the whole register with their sign.
        let keep = u64::MAX >> (64 - 8 * dst_bytes.min(8));
        for part in split(space, mask, &mut addresses) {
            match part.space {
                Space::Shared => {
                    let list = listed(part.mask, &addresses);
                    self.shared.count(&mut self.counts, &list, bytes, false);
                }
                Space::Global if lanes(part.mask).any(|lane| addresses[lane] < MODULE_WINDOW) => {
                    let found = lanes(part.mask).map(|lane| addresses[lane]);
                    self.counts.global_load_requests += 1;
                    self.counts.global_load_sectors += counts::sectors(found, bytes.into());
                    self.counts.global_load_bytes += u64::from(bytes * part.mask.count_ones());
                }
                _ => {}
            }
            for lane in lanes(part.mask) {
                let values = self
                    .read(warp, part.space, lane, addresses[lane], each, dst.len())
                    .map_err(|problem| problem.at(lane))?;
                for (dst, value) in dst.iter().zip(values) {
                    if let Some(dst) = dst {
                        warp.put_one(*dst, lane, ty.extend(value) & keep);
                    }
                }
            }
        }
        Ok(())
    }

    /// Up to four values of `each` bytes.
    fn read(
        &mut self,
        warp: &Warp<'a>,
        space: Space,
        lane: usize,
        address: u64,
        each: u32,
        count: usize,
    ) -> Result<[u64; 8], Problem> {
        let bytes = each * count as u32;
        let mut found = [0; 8];
        let little =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let from_slice = |what: &str, memory: &[u8], at: u64, found: &mut [u64; 8]| {
            aligned(at, bytes, what)?;
            let start = usize::try_from(at).ok();
            let slice =
                start.and_then(|start| memory.get(start..start.checked_add(bytes as usize)?));
            let slice = slice.ok_or_else(|| outside(what, at, bytes, memory.len()))?;
            for (slot, chunk) in found.iter_mut().zip(slice.chunks(each as usize)) {
                *slot = little(chunk);
            }
            Ok(())
        };
        match space {
            Space::Shared => {
                let at = self.shared.place(address, bytes, bytes)?;
                for (index, slot) in found.iter_mut().enumerate().take(count) {
                    *slot = self.shared.load(at + index * each as usize, each, warp.agent())?;
                }
            }
            Space::Param => from_slice("parameter", self.parameters, address, &mut found)?,
            Space::Local => {
                let size = self.kernel.local_bytes as usize;
                from_slice("local", &warp.local[lane * size..][..size], address, &mut found)?;
            }
            _ if (MODULE_WINDOW..MODULE_WINDOW + WINDOW).contains(&address) => {
                from_slice(
                    "the module's",
                    &self.kernel.image,
                    address - MODULE_WINDOW,
                    &mut found,
                )?;
            }
            _ => {
                aligned(address, bytes, "global")?;
                let (allocation, offset) = self.global(address, bytes.into())?;
                for (index, slot) in found.iter_mut().enumerate().take(count) {
                    *slot = allocation.load(offset + index as u64 * u64::from(each), each);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        space: Space,
        ty: Type,
        src: &[Operand],
        to: &Address,
    ) -> Result<(), Problem> {
        let mut addresses = warp.addresses(to, &self.grid);
        let values: Vec<Lanes> = src.iter().map(|src| warp.value(*src, &self.grid)).collect();
        let each = ty.bytes();
        let bytes = each * src.len() as u32;
        for part in split(space, mask, &mut addresses) {
            match part.space {
                Space::Shared => {
                    let list = listed(part.mask, &addresses);
                    self.shared.count(&mut self.counts, &list, bytes, true);
                }
                Space::Global => {
                    let found = lanes(part.mask).map(|lane| addresses[lane]);
                    self.counts.global_store_requests += 1;
                    self.counts.global_store_sectors += counts::sectors(found, bytes.into());
                    self.counts.global_store_bytes += u64::from(bytes * part.mask.count_ones());
                }
                _ => {}
            }
            for lane in lanes(part.mask) {
                let each_value = values.iter().map(|value| value[lane] & ty.mask());
                self.write(warp, part.space, lane, addresses[lane], each, each_value)
                    .map_err(|problem| problem.at(lane))?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        warp: &mut Warp<'a>,
        space: Space,
        lane: usize,
        address: u64,
        each: u32,
        values: impl ExactSizeIterator<Item = u64>,
    ) -> Result<(), Problem> {
        let bytes = each * values.len() as u32;
        match space {
            Space::Shared => {
                let at = self.shared.place(address, bytes, bytes)?;
                for (index, value) in values.enumerate() {
                    self.shared.store(at + index * each as usize, each, value, warp.agent())?;
                }
            }
            Space::Local => {
                aligned(address, bytes, "local")?;
                let size = self.kernel.local_bytes as usize;
                let memory = &mut warp.local[lane * size..][..size];
                if address.checked_add(bytes.into()).is_none_or(|end| end > size as u64) {
                    return Err(outside("local", address, bytes, size));
                }
                for (index, value) in values.enumerate() {
                    let at = address as usize + index * each as usize;
                    memory[at..at + each as usize]
                        .copy_from_slice(&value.to_le_bytes()[..each as usize]);
                }
            }
            Space::Param | Space::Const => {
                return Err(Problem::invalid("parameters and constants cannot be written"));
            }
            _ if (MODULE_WINDOW..MODULE_WINDOW + WINDOW).contains(&address) => {
                return Err(Problem::invalid(
                    "a module's variables are constants here: they cannot be written",
                ));
            }
            _ => {
                aligned(address, bytes, "global")?;
                let (allocation, offset) = self.global(address, bytes.into())?;
                for (index, value) in values.enumerate() {
                    allocation.store(offset + index as u64 * u64::from(each), each, value);
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        space: Space,
        how: Combine,
        ty: Type,
        dst: Option<Reg>,
        at: &Address,
        a: &Lanes,
        b: &Lanes,
    ) -> Result<(), Problem> {
        let mut addresses = warp.addresses(at, &self.grid);
        let bytes = ty.bytes();
        self.counts.atomics += u64::from(mask.count_ones());
        for part in split(space, mask, &mut addresses) {
            for lane in lanes(part.mask) {
                let address = addresses[lane];
                let old = match part.space {
                    Space::Shared => {
                        let at = self
                            .shared
                            .place(address, bytes, bytes)
                            .map_err(|problem| problem.at(lane))?;
                        let new = |old| combine(how, ty, old, a[lane], b[lane]);
                        let old = self.shared.change(at, bytes, new, warp.agent());
                        old.map_err(|problem| problem.at(lane))?
                    }
                    Space::Global if address < MODULE_WINDOW => {
                        aligned(address, bytes, "global").map_err(|problem| problem.at(lane))?;
                        let (allocation, offset) = self
                            .global(address, bytes.into())
                            .map_err(|problem| problem.at(lane))?;
                        let old = allocation.load(offset, bytes);
                        allocation.store(offset, bytes, in_global(how, ty, old, a[lane], b[lane]));
                        old
                    }
                    _ => {
                        return Err(
                            Problem::invalid("atomics are for global and shared memory").at(lane)
                        );
                    }
                };
                if let Some(dst) = dst {
                    warp.put_one(dst, lane, old);
                }
            }
        }
        Ok(())
    }
}
