//! Bulk copies: a box of a tensor, or bytes in a row, moved by one thread's word.
//!
//! When a copy into shared memory lands is `landing.rs`'s matter. A copy out of shared memory holds what it reads until its
//! thread has waited for its group: `groups.rs`.

use super::groups::BulkRead;
use super::landing::{Load, Piece, Report};
use super::tensor_map::{self, TensorMap};
use crate::error::{FaultKind, Problem};
use crate::exec::{self, Block, Warp, lanes};
use crate::isa::{Address, Bulk};

/// One row of a box: where it lies in the tensor (`None`: outside), in the box, and which of its bytes are inside.
struct Row {
    from: Option<u64>,
    offset: usize,
    skipped: usize,
    inside: usize,
}

/// All rows of the box at `at`.
fn rows(map: &TensorMap, at: &[i64]) -> Vec<Row> {
    let bytes = map.element.bytes();
    let row_bytes = (u64::from(map.box_dims[0]) * bytes) as usize;
    let count: usize = map.box_dims[1..].iter().map(|&dim| dim as usize).product();
    (0..count)
        .map(|index| {
            let (mut rest, mut start, mut outside) = (index, map.address as i64, false);
            for (axis, first) in at.iter().enumerate().skip(1) {
                let size = map.box_dims[axis] as usize;
                let place = first + (rest % size) as i64;
                rest /= size;
                outside |= place < 0 || place >= map.dims[axis] as i64;
                start = start.wrapping_add(place.wrapping_mul(map.strides[axis - 1] as i64));
            }
            let (first, last) =
                (at[0].max(0), (at[0] + i64::from(map.box_dims[0])).min(map.dims[0] as i64));
            let inside = (last - first).max(0) as u64 * bytes;
            let from =
                (!outside && inside > 0).then(|| start.wrapping_add(first * bytes as i64) as u64);
            Row {
                from,
                offset: index * row_bytes,
                skipped: ((first - at[0]) as u64 * bytes) as usize,
                inside: inside as usize,
            }
        })
        .collect()
}

impl<'a> Block<'a> {
    pub(crate) fn bulk(
        &mut self,
        warp: &mut Warp<'a>,
        mask: u32,
        bulk: &Bulk,
    ) -> Result<(), Problem> {
        match bulk {
            Bulk::Commit => {
                warp.bulk.commit(mask);
                Ok(())
            }
            Bulk::Wait { most } => self.wait_bulk(warp, mask, *most),
            _ => lanes(mask).try_for_each(|lane| {
                self.bulk_of_lane(warp, lane, bulk).map_err(|problem| problem.at(lane))
            }),
        }
    }

    fn bulk_of_lane(
        &mut self,
        warp: &mut Warp<'a>,
        lane: usize,
        bulk: &Bulk,
    ) -> Result<(), Problem> {
        let address =
            |warp: &Warp<'a>, address: &Address| warp.addresses(address, self.grid())[lane];
        let shared = |warp: &Warp<'a>, at: &Address| exec::in_shared(address(warp, at));
        match bulk {
            Bulk::Load { to, from, bytes, barrier } => {
                let bytes = warp.value(*bytes, self.grid())[lane] as u32;
                let (to, barrier) = (shared(warp, to), shared(warp, barrier));
                let from = address(warp, from);
                let to = self.bulk_place(to, bytes, from)?;
                let mut data = vec![0; bytes as usize];
                let (allocation, offset) = self.global(from, bytes.into())?;
                allocation.read_bytes(offset, &mut data);
                self.count_bulk_load([(from, bytes.into())].into_iter());
                self.begin_load(warp, vec![(to, data)], barrier)
            }
            Bulk::Store { to, from, bytes } => {
                let bytes = warp.value(*bytes, self.grid())[lane] as u32;
                let (to, from) = (address(warp, to), shared(warp, from));
                let from = self.bulk_place(from, bytes, to)?;
                self.begin_store(warp, lane, from, bytes as usize)?;
                let data = self.shared.slice(from, bytes as usize);
                let (allocation, offset) = self.global(to, bytes.into())?;
                allocation.write_bytes(offset, data);
                self.count_bulk_store([(to, bytes.into())].into_iter());
                Ok(())
            }
            Bulk::LoadTensor { to, map, at, barrier } => {
                let (to, barrier) = (shared(warp, to), shared(warp, barrier));
                let map = self.tensor_map(address(warp, map))?;
                let at = self.coordinates(warp, lane, at, &map)?;
                let base = self.box_place(to, &map)?;
                let row_bytes = (u64::from(map.box_dims[0]) * map.element.bytes()) as usize;
                let mut pieces = Vec::new();
                let mut touched = Vec::new();
                for row in rows(&map, &at) {
                    // What is outside of the tensor arrives as zeros.
                    let mut data = vec![0; row_bytes];
                    if let Some(from) = row.from {
                        let (allocation, offset) = self.global(from, row.inside as u64)?;
                        // Elements of one byte may begin anywhere in a word.
                        for (index, byte) in
                            data[row.skipped..][..row.inside].iter_mut().enumerate()
                        {
                            *byte = allocation.load(offset + index as u64, 1) as u8;
                        }
                        touched.push((from, row.inside as u64));
                    }
                    for (chunk, data) in data.chunks(16).enumerate() {
                        pieces.push((
                            map.swizzle.apply(base + row.offset + 16 * chunk),
                            data.to_vec(),
                        ));
                    }
                }
                self.count_bulk_load(touched.into_iter());
                self.begin_load(warp, pieces, barrier)
            }
            Bulk::StoreTensor { map, at, from, add } => {
                let from = shared(warp, from);
                let map = self.tensor_map(address(warp, map))?;
                let at = self.coordinates(warp, lane, at, &map)?;
                let base = self.box_place(from, &map)?;
                self.begin_store(warp, lane, base, map.box_bytes() as usize)?;
                let mut touched = Vec::new();
                for row in rows(&map, &at) {
                    let Some(to) = row.from else { continue };
                    let (allocation, offset) = self.global(to, row.inside as u64)?;
                    let each = map.element.bytes() as usize;
                    for index in (0..row.inside).step_by(each) {
                        let at = map.swizzle.apply(base + row.offset + row.skipped + index);
                        let (mut value, offset) =
                            (self.shared.peek(at, each as u32), offset + index as u64);
                        if *add {
                            value = exec::add_element(
                                map.element,
                                allocation.load(offset, each as u32),
                                value,
                            );
                        }
                        allocation.store(offset, each as u32, value);
                    }
                    touched.push((to, row.inside as u64));
                }
                self.count_bulk_store(touched.into_iter());
                Ok(())
            }
            Bulk::Commit | Bulk::Wait { .. } => Ok(()),
        }
    }

    /// Bytes in a row: all multiples of 16.
    fn bulk_place(&self, shared: u64, bytes: u32, global: u64) -> Result<usize, Problem> {
        if !bytes.is_multiple_of(16) || bytes == 0 || !global.is_multiple_of(16) {
            let text = format!(
                "{bytes} bytes at {global:#x} of global memory; a bulk copy is of multiples of 16"
            );
            return Err(Problem::new(FaultKind::Misaligned, text));
        }
        self.shared.place(shared, bytes, 16)
    }

    /// Where a box lies; a swizzle is a pattern over address bits, so that a box has to begin where the pattern does.
    fn box_place(&self, at: u64, map: &TensorMap) -> Result<usize, Problem> {
        let align = map.swizzle.span().map_or(128, |span| span * 8) as u32;
        let bytes = u32::try_from(map.box_bytes()).unwrap_or(u32::MAX);
        self.shared.place(at, bytes, align)
    }

    fn coordinates(
        &self,
        warp: &Warp<'a>,
        lane: usize,
        at: &[crate::isa::Operand],
        map: &TensorMap,
    ) -> Result<Vec<i64>, Problem> {
        if at.len() != map.dims.len() {
            let text = format!(
                "{} coordinates for a tensor map of {} dimensions",
                at.len(),
                map.dims.len()
            );
            return Err(Problem::invalid(text));
        }
        let value = |operand| i64::from(warp.value(operand, self.grid())[lane] as u32 as i32);
        Ok(at.iter().map(|operand| value(*operand)).collect())
    }

    fn tensor_map(&self, address: u64) -> Result<TensorMap, Problem> {
        let mut bytes = [0; tensor_map::BYTES];
        match exec::in_parameters(address) {
            Some(offset) => {
                let end = offset as usize + tensor_map::BYTES;
                let found = self.parameters.get(offset as usize..end);
                let found = found.ok_or_else(|| {
                    Problem::invalid("a tensor map beyond the kernel's parameters")
                })?;
                bytes.copy_from_slice(found);
            }
            None => {
                let (allocation, offset) = self.global(address, tensor_map::BYTES as u64)?;
                allocation.read_bytes(offset, &mut bytes);
            }
        }
        TensorMap::decode(&bytes).map_err(Problem::invalid)
    }

    fn count_bulk_load(&mut self, rows: impl Iterator<Item = (u64, u64)>) {
        self.counts.global_load_requests += 1;
        for (address, bytes) in rows {
            self.counts.global_load_bytes += bytes;
            self.counts.global_load_sectors += crate::counts::sectors([address].into_iter(), bytes);
        }
    }

    fn count_bulk_store(&mut self, rows: impl Iterator<Item = (u64, u64)>) {
        self.counts.global_store_requests += 1;
        for (address, bytes) in rows {
            self.counts.global_store_bytes += bytes;
            self.counts.global_store_sectors +=
                crate::counts::sectors([address].into_iter(), bytes);
        }
    }

    fn begin_load(
        &mut self,
        warp: &mut Warp<'a>,
        pieces: Vec<(usize, Vec<u8>)>,
        barrier: u64,
    ) -> Result<(), Problem> {
        for (at, data) in &pieces {
            self.shared.shadow.begin_copy(*at, data.len(), warp.agent())?;
        }
        let known = warp.release();
        // That there is a barrier, now and not when the copy lands.
        self.mbarriers.complete(barrier, 0, &known, &mut self.counts)?;
        let piece = |(at, data)| Piece { at, data, group: None };
        let pieces = pieces.into_iter().map(piece).collect();
        self.bulk.begin(Load { pieces, report: Report::Bytes, barrier, known, begun: warp.here() });
        Ok(())
    }

    fn begin_store(
        &mut self,
        warp: &mut Warp<'a>,
        lane: usize,
        at: usize,
        len: usize,
    ) -> Result<(), Problem> {
        self.shared.shadow.read(at, len, warp.agent())?;
        self.shared.shadow.hold(at, len, true);
        warp.bulk.begin(lane, BulkRead { at, len });
        Ok(())
    }
}
