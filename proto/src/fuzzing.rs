//! A door for the fuzz target: everything that bytes can be taken for on the control plane.

use std::fmt::Debug;

use prost::Message;
use salamander_core::asynchronous::LeaseAnswer;
use salamander_core::elastic::Lease;
use salamander_core::report::Report;
use salamander_core::status::Status;

use crate::convert::{Finished, FromMaster, Numbered, WorkerLeaseAsk};
use crate::v1;

/// Takes bytes for each message of the control plane.
///
/// # Panics
///
/// When one is understood and does not come back as it was through bytes of its own.
pub fn control(bytes: &[u8]) {
    comes_back::<v1::ProcessMessage, Numbered>(bytes);
    comes_back::<v1::MasterMessage, FromMaster>(bytes);
    comes_back::<v1::Report, Report>(bytes);
    comes_back::<v1::StatusReply, Status>(bytes);
    comes_back::<v1::LeaseReply, Lease>(bytes);
    comes_back::<v1::FinishRequest, Finished>(bytes);
    comes_back::<v1::MicroBatchRequest, WorkerLeaseAsk>(bytes);
    comes_back::<v1::MicroBatchReply, LeaseAnswer>(bytes);
}

fn comes_back<M: Message + Default + From<T>, T: TryFrom<M> + Debug>(bytes: &[u8]) {
    let Some(read) = M::decode(bytes).ok().and_then(|message| T::try_from(message).ok()) else {
        return;
    };
    // As text, since a metric may be no number.
    let said = format!("{read:?}");
    let bytes = M::from(read).encode_to_vec();
    let again = M::decode(bytes.as_slice()).ok().and_then(|message| T::try_from(message).ok());
    assert_eq!(again.map(|again| format!("{again:?}")), Some(said), "it comes back");
}
