//! Pinned memory, a piece at a time.
//!
//! The device copies from and to pinned memory by itself, at the full speed of the bus, and while the processor goes on.
//! From other memory the driver has to copy first. So bytes go through two pieces of pinned memory in turn.

use cuda_kernels::Address;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use std::sync::Arc;

/// Bytes of a piece: a pass's arrays fit in one, and weights go through at little cost of waiting.
const PIECE: usize = 4 << 20;

/// Two pieces, used in turn.
pub(super) struct Pinned {
    pieces: [Piece; 2],
    /// The one that is used next.
    next: usize,
}

struct Piece {
    memory: PinnedHostSlice<u8>,
    /// After the last copy from or to it; none before the first.
    used: Option<CudaEvent>,
}

impl Piece {
    /// Its memory, once nothing copies from or to it any more.
    fn free(&mut self) -> Result<&mut [u8], DriverError> {
        if let Some(used) = self.used.take() {
            used.synchronize()?;
        }
        self.memory.as_mut_slice()
    }
}

impl Pinned {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let piece = || {
            // SAFETY: it is not set, and is written before anybody reads it: by `write` here, or by the device in `read`.
            let memory = unsafe { context.alloc_pinned_with_flags::<u8>(PIECE, 0) }?;
            Ok(Piece { memory, used: None })
        };
        Ok(Pinned { pieces: [piece()?, piece()?], next: 0 })
    }

    fn turn(&mut self) -> &mut Piece {
        self.next = 1 - self.next;
        &mut self.pieces[1 - self.next]
    }

    /// Copies to the device on a stream; the caller has checked that it is the device's memory.
    pub(super) fn write(
        &mut self,
        stream: &CudaStream,
        to: Address,
        bytes: &[u8],
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        for (at, bytes) in (to..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
            let piece = self.turn();
            let memory = &mut piece.free()?[..bytes.len()];
            memory.copy_from_slice(bytes);
            // SAFETY: the device's side was checked by the caller. The piece is not touched again before the event that
            // is recorded behind the copy has come, and lives as long as the stream.
            unsafe { result::memcpy_htod_async(at, memory, stream.cu_stream()) }?;
            piece.used = Some(stream.record_event(None)?);
        }
        Ok(())
    }

    /// Copies from the device and waits; the caller has checked that it is the device's memory.
    pub(super) fn read(
        &mut self,
        stream: &CudaStream,
        from: Address,
        bytes: &mut [u8],
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        for (at, bytes) in (from..).step_by(PIECE).zip(bytes.chunks_mut(PIECE)) {
            let memory = &mut self.turn().free()?[..bytes.len()];
            // SAFETY: the device's side was checked by the caller; the stream is waited for before the piece is read.
            unsafe { result::memcpy_dtoh_async(memory, at, stream.cu_stream()) }?;
            stream.synchronize()?;
            bytes.copy_from_slice(memory);
        }
        Ok(())
    }
}
