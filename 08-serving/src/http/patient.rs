//! A connection that is not kept for ever by somebody who hardly reads, and that tells its place what goes through.

use super::places::Place;
use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Bytes of an answer that a client may take all its time for. Over two minutes that is less than nine kilobytes a second,
/// and the largest answer there is, a hundred megabytes, is gone in some hours; byte by byte it would be here for years.
const PACE: usize = 1 << 20;

/// How long what a client sends is still read, and forgotten, after it was answered without it.
const LINGERS: Duration = Duration::from_secs(5);

/// A connection that breaks when a write had to wait and its client has then taken too long for the next [`PACE`] bytes, or
/// for all that there is to write if that is less.
pub(super) struct Patient {
    stream: TcpStream,
    place: Arc<Place>,
    patience: Duration,
    /// Runs from the first write that had to wait.
    waits: Option<Wait>,
    /// Runs once all is written.
    lingers: Option<Pin<Box<Sleep>>>,
}

/// A client is waited for.
struct Wait {
    until: Pin<Box<Sleep>>,
    /// Bytes that have gone meanwhile.
    gone: usize,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, place: Arc<Place>, patience: Duration) -> Self {
        Patient { stream, place, patience, waits: None, lingers: None }
    }

    /// What a write of so many bytes comes to: an error instead of waiting on, if it has waited long enough.
    fn judge(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
        written: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        if let Poll::Ready(result) = written {
            let went = *result.as_ref().unwrap_or(&0);
            self.waits = self.waits.take().and_then(|Wait { until, gone }| {
                let gone = gone + went;
                (went < bytes && gone < PACE).then_some(Wait { until, gone })
            });
            self.place.has_told();
            return Poll::Ready(result);
        }
        self.place.is_not_read();
        let patience = self.patience;
        let begun = || Wait { until: Box::pin(sleep(patience)), gone: 0 };
        let wait = self.waits.get_or_insert_with(begun);
        wait.until.as_mut().poll(context).map(|()| {
            let gone = wait.gone;
            let message =
                format!("the client has read {gone} bytes within {patience:?}, and there are more");
            Err(Error::new(ErrorKind::TimedOut, message))
        })
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.place.has_heard();
        }
        read
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.judge(context, bytes, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// A connection that is closed while bytes of its client's are unread is reset, and the client may never see its answer. So
    /// where that may be they are read, until the client ends or it takes too long.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.lingers.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.place.is_cut_short() {
                return Poll::Ready(Ok(()));
            }
        }
        let Patient { stream, lingers, .. } = &mut *self;
        let until = lingers.get_or_insert_with(|| Box::pin(sleep(LINGERS)));
        let mut passed_over = [0; 4096];
        while until.as_mut().poll(context).is_pending() {
            let mut into = ReadBuf::new(&mut passed_over);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut into));
            if read.is_err() || into.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::places::Waits;
    use futures_util::task::noop_waker_ref;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_byte_by_byte_is_not_waited_for_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let place = Place::new(Waits { idle: SECOND, headers: SECOND });
        let mut patient = Patient::new(stream, place, 10 * SECOND);
        let mut context = Context::from_waker(noop_waker_ref());
        // There is always more than a write takes.
        let (all, waits) = (8 * PACE, || Poll::Pending);
        let mut judge = |bytes, written| patient.judge(&mut context, bytes, written);
        assert!(judge(all, waits()).is_pending());
        for _ in 0..9 {
            advance(SECOND).await;
            assert!(judge(all, Poll::Ready(Ok(1))).is_ready());
            assert!(judge(all, waits()).is_pending());
        }
        advance(2 * SECOND).await;
        let Poll::Ready(Err(late)) = judge(all, waits()) else { panic!("it is still waited for") };
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert!(late.to_string().contains("has read 9 bytes"), "{late}");
        // Whoever takes enough at a time, or all there is, has their time anew.
        for (bytes, went) in [(all, PACE), (2, 2)] {
            assert!(judge(bytes, Poll::Ready(Ok(went))).is_ready());
            assert!(judge(all, waits()).is_pending());
            advance(9 * SECOND).await;
            assert!(judge(all, waits()).is_pending(), "{went} of {bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_never_ends_is_not_read_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut context = Context::from_waker(noop_waker_ref());
        for is_cut_short in [false, true] {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let _client = listener.accept().await.unwrap();
            let place = Place::new(Waits { idle: SECOND, headers: SECOND });
            if is_cut_short {
                place.cut_short();
            }
            let mut patient = Patient::new(stream, place, SECOND);
            let mut shut = || Pin::new(&mut patient).poll_shutdown(&mut context).is_ready();
            assert_eq!(shut(), !is_cut_short, "only what nobody reads is read to its end");
            advance(LINGERS - SECOND).await;
            assert_eq!(shut(), !is_cut_short);
            advance(2 * SECOND).await;
            assert!(shut());
        }
    }
}
