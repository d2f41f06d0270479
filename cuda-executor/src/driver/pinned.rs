//! Pinned memory, a piece at a time.
//!
//! The device copies from and to pinned memory by itself, at the full speed of the bus, and while the processor goes on.
//! From other memory the driver has to copy first. So bytes go through two pieces of pinned memory in turn: while the device
//! copies one, the processor copies the other.

use cuda_kernels::Address;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece: a pass's arrays fit in one, and weights go through at little cost of waiting.
const PIECE: usize = 4 << 20;

/// Bytes of a piece that is read. A step's logits are what is read most: the processor should begin early, and have enough of
/// them at a time to share out among its threads (`read_onto`).
const READ: usize = 2 << 20;

/// Two pieces, used in turn.
pub(super) struct Pinned {
    pieces: [Piece; 2],
    /// The one that is used next.
    next: usize,
}

struct Piece {
    memory: PinnedHostSlice<u8>,
    /// Comes after the last copy from or to it. One that was never recorded has come.
    copied: CudaEvent,
}

impl Piece {
    /// Its memory, once nothing copies from or to it any more.
    fn free(&mut self) -> Result<&mut [u8], DriverError> {
        self.copied.synchronize()?;
        self.memory.as_mut_slice()
    }
}

impl Pinned {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let piece = || {
            // SAFETY: it is not set, and is written before anybody reads it: by `write` here, or by the device in `read`.
            let memory = unsafe { context.alloc_pinned_with_flags::<u8>(PIECE, 0) }?;
            Ok(Piece { memory, copied: context.new_event(None)? })
        };
        Ok(Pinned { pieces: [piece()?, piece()?], next: 0 })
    }

    /// Which piece is next.
    fn turn(&mut self) -> usize {
        self.next = 1 - self.next;
        1 - self.next
    }

    /// Copies to the device on a stream; the caller has checked that it is the device's memory.
    pub(super) fn write(
        &mut self,
        stream: &CudaStream,
        to: Address,
        bytes: &[u8],
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        or_finish(stream, || {
            for (at, bytes) in (to..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
                let turn = self.turn();
                let piece = &mut self.pieces[turn];
                let memory = &mut piece.free()?[..bytes.len()];
                memory.copy_from_slice(bytes);
                // SAFETY: the device's side was checked by the caller. The piece lives as long as the stream, and is not
                // touched again before the event behind the copy has come; or, where that cannot be recorded, before the
                // stream has been waited for, which `or_finish` sees to.
                unsafe { result::memcpy_htod_async(at, memory, stream.cu_stream()) }?;
                piece.copied.record(stream)?;
            }
            Ok(())
        })
    }

    /// Copies from the device and gives `to` each piece when it has come; the caller has checked that it is the device's
    /// memory.
    pub(super) fn read(
        &mut self,
        stream: &CudaStream,
        from: Address,
        bytes: usize,
        to: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        or_finish(stream, || {
            let begin = |pinned: &mut Self, part: Range<usize>| {
                let turn = pinned.turn();
                let piece = &mut pinned.pieces[turn];
                let memory = &mut piece.free()?[..part.len()];
                let at = from + part.start as u64;
                // SAFETY: as in `write`.
                unsafe { result::memcpy_dtoh_async(memory, at, stream.cu_stream()) }?;
                piece.copied.record(stream)?;
                Ok((turn, part.len()))
            };
            let end = |pinned: &mut Self, (turn, length): (usize, usize)| {
                to(&pinned.pieces[turn].free()?[..length]);
                Ok(())
            };
            overlapped(self, parts(bytes, READ), begin, end)
        })
    }
}

/// So many bytes in pieces of so many: where each begins and ends.
fn parts(bytes: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(most).map(move |start| start..bytes.min(start + most))
}

/// Does something with a stream. If it fails, nothing of it is under way any more when this returns: whatever was queued
/// before may still use the pieces, with no event behind it.
fn or_finish(
    stream: &CudaStream,
    work: impl FnOnce() -> Result<(), DriverError>,
) -> Result<(), DriverError> {
    work().inspect_err(|_| {
        // Where this fails too, the device is gone, and copies nothing.
        let _ = stream.synchronize();
    })
}

/// Begins one thing after another, and ends each when the next has begun: two are under way, and never three. More would
/// gain nothing: with two, the slower of beginning's work, which goes on by itself, and ending's never waits for the other.
fn overlapped<C, T, B, E>(
    context: &mut C,
    things: impl IntoIterator<Item = T>,
    mut begin: impl FnMut(&mut C, T) -> Result<B, E>,
    mut end: impl FnMut(&mut C, B) -> Result<(), E>,
) -> Result<(), E> {
    let mut under_way = None;
    for thing in things {
        let begun = begin(context, thing)?;
        if let Some(before) = under_way.replace(begun) {
            end(context, before)?;
        }
    }
    under_way.map_or(Ok(()), |last| end(context, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_ends_when_the_next_has_begun() {
        let run = |things: std::ops::Range<i32>, fails: i32| {
            let mut log = String::new();
            let begin = |log: &mut String, thing| {
                log.push_str(&format!("+{thing}"));
                if thing == fails { Err(thing) } else { Ok(thing) }
            };
            let end = |log: &mut String, thing| {
                log.push_str(&format!("-{thing}"));
                Ok(())
            };
            let ended = overlapped(&mut log, things, begin, end);
            (log, ended)
        };
        assert_eq!(run(0..0, 9), (String::new(), Ok(())));
        assert_eq!(run(0..1, 9), ("+0-0".into(), Ok(())));
        assert_eq!(run(0..4, 9), ("+0+1-0+2-1+3-2-3".into(), Ok(())));
        assert_eq!(run(0..4, 2), ("+0+1-0+2".into(), Err(2)));
    }

    #[test]
    fn what_goes_through_two_pieces_in_turn_arrives_whole_and_in_order() {
        let source: Vec<u8> = (0..=255).collect();
        for bytes in [0, 1, 15, 16, 17, 32, 100, 256] {
            let mut pieces = [None, None];
            let mut turn = 0;
            let mut found = Vec::new();
            let begin = |pieces: &mut [Option<Vec<u8>>; 2], part: Range<usize>| {
                turn = 1 - turn;
                let before = pieces[turn].replace(source[part].to_vec());
                if before.is_none() { Ok(turn) } else { Err("it is still in use") }
            };
            let end = |pieces: &mut [Option<Vec<u8>>; 2], turn: usize| {
                found.extend(pieces[turn].take().ok_or("it has not come")?);
                Ok(())
            };
            assert_eq!(overlapped(&mut pieces, parts(bytes, 16), begin, end), Ok(()));
            assert_eq!(found, source[..bytes]);
        }
    }
}
