//! One step of gathering: a message to the right while another comes from the left.

use super::pump::Duplex;
use crate::Error;
use crate::frame::{self, Frame};

/// Memory is taken in steps of this, as bytes really come.
const STEP: usize = 1 << 20;

/// A message out and a message in.
pub(super) struct FrameExchange<'a> {
    header: [u8; frame::LENGTH],
    body: &'a [u8],
    sent: usize,
    expected: Frame,
    left: usize,
    limit: u64,
    header_in: [u8; frame::LENGTH],
    body_in: Vec<u8>,
    /// Bytes of header and body that have come.
    received: usize,
    /// Bytes of header and body that will have come; only the header's until it is read.
    due: usize,
}

impl<'a> FrameExchange<'a> {
    pub(super) fn new(
        mine: Frame,
        body: &'a [u8],
        expected: Frame,
        left: usize,
        limit: u64,
    ) -> Self {
        Self {
            header: mine.encode(),
            body,
            sent: 0,
            expected,
            left,
            limit,
            header_in: [0; frame::LENGTH],
            body_in: Vec::new(),
            received: 0,
            due: frame::LENGTH,
        }
    }

    pub(super) fn into_received(self) -> Vec<u8> {
        self.body_in
    }

    fn read_header(&mut self) -> Result<(), Error> {
        let frame = Frame::decode(&self.header_in)?;
        frame.check(&self.expected, self.left)?;
        Error::check_length("a message to gather", frame.length, self.limit)?;
        self.due += frame.length as usize;
        Ok(())
    }
}

impl Duplex for FrameExchange<'_> {
    fn outgoing(&mut self) -> (&[u8], &[u8]) {
        let of_header = self.sent.min(self.header.len());
        (&self.header[of_header..], &self.body[self.sent - of_header..])
    }

    fn sent(&mut self, count: usize) {
        self.sent += count;
    }

    fn space(&mut self) -> &mut [u8] {
        if self.received < frame::LENGTH {
            return &mut self.header_in[self.received..];
        }
        let filled = self.received - frame::LENGTH;
        self.body_in.resize((self.due - frame::LENGTH).min(filled + STEP), 0);
        &mut self.body_in[filled..]
    }

    fn received(&mut self, count: usize) -> Result<(), Error> {
        self.received += count;
        if count > 0 && self.received == frame::LENGTH {
            self.read_header()?;
        }
        Ok(())
    }

    fn is_all_sent(&self) -> bool {
        self.sent == self.header.len() + self.body.len()
    }

    fn is_all_received(&self) -> bool {
        self.received == self.due
    }
}
