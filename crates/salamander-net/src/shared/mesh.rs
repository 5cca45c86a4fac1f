//! The Unix sockets between all members on one host. They pass descriptors of shared memory, and
//! their end tells that a member has died.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::Error;
use crate::cancel::Patience;
use crate::socket::{Received, Socket};

/// A note is a word for what it is and a number.
const NOTE: usize = 16;
/// Comes with a descriptor; the number is the segment's length.
const SEGMENT: u64 = 1;
/// The last word of a member that lost another one, whose rank is the number.
const FAREWELL: u64 = 2;

/// The sockets to all other members, by rank.
pub(crate) struct Mesh {
    links: Vec<Option<Socket>>,
}

impl Mesh {
    /// The own place is empty.
    pub(crate) fn new(links: Vec<Option<Socket>>) -> Self {
        Self { links }
    }

    /// Gives the own segment to all, and gets theirs, by rank.
    pub(super) fn exchange(
        &self,
        descriptor: &OwnedFd,
        length: usize,
        patience: &Patience<'_>,
    ) -> Result<Vec<Option<OwnedFd>>, Error> {
        for (rank, link) in self.others() {
            send_segment(link, descriptor.as_fd(), length as u64)
                .map_err(|errno| Error::lost(rank, errno))?;
        }
        let mut received = Vec::new();
        for (rank, link) in self.links.iter().enumerate() {
            received.push(match link {
                Some(link) => Some(self.receive_segment(link, rank, length as u64, patience)?),
                None => None,
            });
        }
        Ok(received)
    }

    /// Fails if a member has gone.
    pub(super) fn check(&self) -> Result<(), Error> {
        let mut polled: Vec<PollFd<'_>> =
            self.others().map(|(_, link)| PollFd::new(link, PollFlags::IN)).collect();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut polled, Some(&now)).unwrap_or(1) == 0 {
            return Ok(());
        }
        for (rank, link) in self.others() {
            let mut note = [0; NOTE];
            match link.peek(&mut note) {
                Ok(Received::Nothing) => {}
                Ok(Received::Bytes(_)) => self.read_farewell(rank, &note)?,
                Ok(Received::End) => return Err(Error::gone(rank)),
                Err(error) => return Err(Error::lost(rank, error)),
            }
        }
        Ok(())
    }

    /// Tells the others that this member is out, and whom it lost, so that all name the same one.
    pub(super) fn close(&self, lost: Option<usize>) {
        for (_, link) in self.others() {
            if let Some(rank) = lost {
                // Who is gone or has no room for it learns of the end itself.
                let _ = link.send_now(&note(FAREWELL, rank as u64));
            }
            link.close();
        }
    }

    fn receive_segment(
        &self,
        link: &Socket,
        rank: usize,
        length: u64,
        patience: &Patience<'_>,
    ) -> Result<OwnedFd, Error> {
        let late = |error| match error {
            Error::Io(error) => Error::lost(rank, format!("no shared memory from it: {error}")),
            error => error,
        };
        link.wait(PollFlags::IN, patience).map_err(late)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut note = [0; NOTE];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(link, &mut [IoSliceMut::new(&mut note)], &mut ancillary, flags)
                .map_err(|errno| Error::lost(rank, errno))?;
        let (word, number) = read_note(&note);
        if received.bytes == 0 {
            return Err(Error::gone(rank));
        }
        self.read_farewell(rank, &note)?;
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match descriptor {
            Some(descriptor) if received.bytes == NOTE && word == SEGMENT && number == length => {
                Ok(descriptor)
            }
            _ => {
                Err(Error::Mismatch(format!("rank {rank} sent no shared memory of {length} bytes")))
            }
        }
    }

    fn read_farewell(&self, rank: usize, note: &[u8; NOTE]) -> Result<(), Error> {
        let (word, number) = read_note(note);
        let lost = usize::try_from(number).ok().filter(|lost| *lost < self.links.len());
        match (word, lost) {
            // The other members are faster; it is read when it is due.
            (SEGMENT, _) => Ok(()),
            (FAREWELL, Some(lost)) => Err(Error::lost(lost, format!("rank {rank} lost it"))),
            _ => Err(Error::lost(rank, "it sent something else than a note")),
        }
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Socket)> {
        let links = self.links.iter().enumerate();
        links.filter_map(|(rank, link)| link.as_ref().map(|link| (rank, link)))
    }
}

fn note(word: u64, number: u64) -> [u8; NOTE] {
    let mut bytes = [0; NOTE];
    bytes[..8].copy_from_slice(&word.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read_note(note: &[u8; NOTE]) -> (u64, u64) {
    let (words, _) = note.as_chunks::<8>();
    (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

fn send_segment(
    link: &Socket,
    descriptor: BorrowedFd<'_>,
    length: u64,
) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let note = note(SEGMENT, length);
    rustix::net::sendmsg(link, &[IoSlice::new(&note)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
