use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use super::Rewriter;

/// So much is read at once. A request of kube-apiserver is about 300 bytes.
const INPUT_BYTES: usize = 8 * 1024;

/// A connection whose client's requests are all for `localhost`. What the server writes is not touched.
#[derive(Debug)]
pub struct Stream<T> {
    inner: T,
    rewriter: Rewriter,
    /// What was read and not yet looked at: `unread` bytes up to `end`.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// What was put in the place of input, from `given` on still to be read.
    rewritten: Vec<u8>,
    given: usize,
}

impl<T> Stream<T> {
    /// A connection that has just been accepted.
    pub fn new(inner: T) -> Self {
        let input = vec![0; INPUT_BYTES].into_boxed_slice();
        Self { inner, rewriter: Rewriter::new(), input, start: 0, end: 0, rewritten: Vec::new(), given: 0 }
    }

    /// Whether the client has sent what begins every connection.
    pub fn has_begun(&self) -> bool {
        self.rewriter.has_begun()
    }

    /// Gives the reader something, if there is anything. Whether there was.
    fn give(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<bool> {
        loop {
            let rest = self.rewritten.get(self.given..).unwrap_or_default();
            if !rest.is_empty() {
                let len = rest.len().min(buf.remaining());
                buf.put_slice(rest.get(..len).unwrap_or_default());
                self.given += len;
                return Ok(true);
            }
            // What passes unchanged is part of the input, and so has room.
            let end = self.end.min(self.start.saturating_add(buf.remaining()));
            let mut input = self.input.get(self.start..end).unwrap_or_default();
            let piece = self.rewriter.next(&mut input);
            self.start = end - input.len();
            match piece.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                None => return Ok(false),
                Some(Cow::Borrowed(bytes)) => {
                    buf.put_slice(bytes);
                    return Ok(true);
                }
                Some(Cow::Owned(bytes)) => {
                    self.rewritten = bytes;
                    self.given = 0;
                }
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        while !this.give(buf)? {
            if this.start < this.end {
                continue;
            }
            let mut input = ReadBuf::new(&mut this.input);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut input))?;
            (this.start, this.end) = (0, input.filled().len());
            if this.end == 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl<T: Connected> Connected for Stream<T> {
    type ConnectInfo = T::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_is_longer_than_the_reader_s_buffer_arrives_whole() {
        let (mut client, server) = tokio::io::duplex(100);
        let mut stream = Stream::new(server);
        // A SETTINGS frame; HEADERS with `:method: POST` alone; DATA.
        let data = [&hex::decode("002710000000000001").unwrap()[..], &[7; 10_000]].concat();
        let sent = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &hex::decode("000000040000000000").unwrap(),
            &hex::decode("00000101040000000183").unwrap(),
            &data,
        ]
        .concat();
        let writer = tokio::spawn(async move { client.write_all(&sent).await });
        let mut received = Vec::new();
        let mut buffer = [0; 7];
        loop {
            let len = stream.read(&mut buffer).await.unwrap();
            if len == 0 {
                break;
            }
            received.extend_from_slice(&buffer[..len]);
        }
        writer.await.unwrap().unwrap();
        let block = b"\x00\x0a:authority\x09localhost\x00\x07:method\x04POST";
        let expected = [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            &hex::decode("000000040000000000").unwrap(),
            &[0, 0, u8::try_from(block.len()).unwrap()],
            &hex::decode("010400000001").unwrap(),
            block,
            &data,
        ]
        .concat();
        assert_eq!(received, expected);
    }

    #[tokio::test]
    async fn a_block_that_is_no_hpack_is_an_error() {
        let (mut client, server) = tokio::io::duplex(100);
        let mut stream = Stream::new(server);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.write_all(&hex::decode("000001010400000001be").unwrap()).await.unwrap();
        let mut received = Vec::new();
        let error = stream.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(error.to_string(), "the header block is not HPACK");
        assert_eq!(received, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
}
