//! Every message comes back as it was, through bytes; what cannot be understood is an error with the field's name.

use salamander_core::elastic::{
    Activation, CheckpointMark, Ending, Holding, Identity, Peer, StateLineage, StateSource,
    Version, Work,
};

use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::client::{Role, TrainedOn};

fn generations() -> impl Strategy<Value = Generation> {
    any::<(u32, u32)>().prop_map(|(term, number)| Generation { term: Term(term), number })
}

fn identities() -> impl Strategy<Value = Identity> {
    (any::<u64>(), generations(), any::<u64>()).prop_map(|(version, generation, lineage)| {
        Identity { version: Version(version), generation, lineage: StateLineage(lineage) }
    })
}

fn holdings() -> impl Strategy<Value = Holding> {
    (prop::option::of(identities()), prop::option::of(generations()))
        .prop_map(|(identity, confirmed)| Holding { identity, confirmed })
}

fn marks() -> impl Strategy<Value = CheckpointMark> {
    (".*", any::<u64>(), generations()).prop_map(|(id, version, generation)| CheckpointMark {
        id,
        version: Version(version),
        generation,
    })
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![Just(Ending::Completed), Just(Ending::Interrupted), ".*".prop_map(Ending::Failed),]
}

fn peers() -> impl Strategy<Value = Peer> {
    (any::<u64>(), ".*").prop_map(|(id, endpoint)| Peer { id: WorkerId(id), endpoint })
}

fn activations() -> impl Strategy<Value = Activation> {
    let source = |members: usize| {
        prop_oneof![
            (0..members, identities())
                .prop_map(|(rank, identity)| StateSource::Member { rank, identity }),
            (0..members, prop::option::of(marks()))
                .prop_map(|(rank, mark)| StateSource::Checkpoint { rank, mark }),
        ]
    };
    let members = prop::collection::vec(peers(), 1..6);
    let servers = prop::collection::vec(peers(), 0..4);
    let rows = (generations(), prop::collection::vec(peers(), 0..4));
    let parts = (generations(), members, any::<bool>(), servers, rows);
    parts.prop_flat_map(move |(generation, members, transfer, servers, (rows, destination))| {
        source(members.len()).prop_map(move |source| Activation {
            generation,
            members: members.clone(),
            source,
            transfer,
            servers: servers.clone(),
            rows,
            destination: destination.clone(),
        })
    })
}

fn to_members() -> impl Strategy<Value = ToMember> {
    prop_oneof![
        generations().prop_map(ToMember::Prepare),
        activations().prop_map(ToMember::Activate),
        marks().prop_map(ToMember::Kept),
        Just(ToMember::Stop),
        Just(ToMember::Save),
        endings().prop_map(ToMember::Ended),
    ]
}

fn from_members() -> impl Strategy<Value = FromMember> {
    prop_oneof![
        (generations(), holdings()).prop_map(|(to, held)| FromMember::Promise(to, held)),
        generations().prop_map(FromMember::Confirmed),
        generations().prop_map(FromMember::Busy),
        (generations(), any::<Option<u64>>())
            .prop_map(|(of, id)| FromMember::Broken(of, id.map(WorkerId))),
        marks().prop_map(FromMember::Wrote),
        (generations(), endings()).prop_map(|(of, ending)| FromMember::Reached(of, ending)),
        generations().prop_map(FromMember::Moved),
        Just(FromMember::Leave),
    ]
}

fn roles() -> impl Strategy<Value = Role> {
    let data = prop::array::uniform10(any::<u64>()).prop_map(|numbers| {
        let [records, fingerprint, instructions, blocking, program, probe, ..] = numbers;
        let [.., settings, optimizer, files, release] = numbers;
        TrainedOn {
            records,
            fingerprint,
            instructions,
            blocking,
            program,
            probe,
            settings,
            optimizer,
            files,
            release,
        }
    });
    let data = data.boxed();
    prop_oneof![data.clone().prop_map(Role::Member), data.prop_map(Role::Tasks), Just(Role::Server)]
}

fn hellos() -> impl Strategy<Value = Hello> {
    let process = (peers(), any::<(u32, u32)>(), roles(), prop::option::of(generations()));
    process.prop_map(|(peer, (slot, process), role, active)| {
        let Peer { id, endpoint } = peer;
        Hello { registration: Registration { id, endpoint, slot, process, role }, active }
    })
}

/// What a process may say, as bytes.
fn said() -> impl Strategy<Value = Vec<u8>> {
    let said = prop_oneof![
        from_members().prop_map(FromProcess::Member),
        hellos().prop_map(FromProcess::Hello),
        ".*".prop_map(FromProcess::Failed),
    ];
    (any::<u64>(), said).prop_map(|(number, said)| {
        v1::ProcessMessage::from(Numbered { number, said }).encode_to_vec()
    })
}

/// What a master may say, as bytes.
fn ordered() -> impl Strategy<Value = Vec<u8>> {
    let message = to_members().prop_map(FromMaster::Member);
    message.prop_map(|message| v1::MasterMessage::from(message).encode_to_vec())
}

proptest! {
    /// Some bytes are others than they were, and some at the end are missing.
    #[test]
    fn a_damaged_message_is_refused_or_one_that_comes_back(
        bytes in prop_oneof![said(), ordered()],
        damage in prop::collection::vec(any::<(usize, u8)>(), 0..4),
        missing in 0usize..8,
    ) {
        let mut bytes = bytes;
        for (at, byte) in damage {
            let at = at % bytes.len().max(1);
            bytes.get_mut(at).into_iter().for_each(|damaged| *damaged = byte);
        }
        bytes.truncate(bytes.len().saturating_sub(missing));
        crate::fuzzing::control(&bytes);
    }

    #[test]
    fn any_bytes_are_refused_or_a_message_that_comes_back(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        crate::fuzzing::control(&bytes);
    }

    #[test]
    fn what_a_process_says_of_itself_arrives(hello in hellos()) {
        let bytes = v1::Hello::from(hello.clone()).encode_to_vec();
        let back = v1::Hello::decode(&bytes[..]).expect("its own bytes");
        prop_assert_eq!(Hello::try_from(back), Ok(hello));
    }

    #[test]
    fn what_the_master_says_arrives(message in to_members()) {
        let message = FromMaster::Member(message);
        let bytes = v1::MasterMessage::from(message.clone()).encode_to_vec();
        let back = v1::MasterMessage::decode(&bytes[..]).expect("its own bytes");
        prop_assert_eq!(FromMaster::try_from(back), Ok(message));
    }

    #[test]
    fn what_a_member_says_arrives(message in from_members()) {
        let message = Numbered { number: 1, said: FromProcess::Member(message) };
        let sent = v1::ProcessMessage::from(message.clone());
        let back = v1::ProcessMessage::decode(&sent.encode_to_vec()[..]).expect("its own bytes");
        prop_assert_eq!(Numbered::try_from(back), Ok(message));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = v1::MasterMessage::decode(&bytes[..]) {
            drop(FromMaster::try_from(message));
        }
        if let Ok(message) = v1::ProcessMessage::decode(&bytes[..]) {
            drop(Numbered::try_from(message));
        }
    }
}

#[test]
fn beats_hellos_and_ends_come_back() {
    for work in [Work::Idle, Work::Computing, Work::Exchanging] {
        let beat = Beat { work, for_ms: 1, records: 2, compute_ms: 3, exchange_ms: 4, data_ms: 5 };
        assert_eq!(Beat::try_from(v1::Beat::from(beat)), Ok(beat));
    }
    let data = TrainedOn {
        records: 3,
        fingerprint: u64::MAX,
        instructions: 4,
        blocking: 5,
        program: 6,
        probe: 7,
        settings: 8,
        optimizer: 9,
        files: 10,
        release: 11,
    };
    for role in [Role::Member(data), Role::Tasks(data), Role::Server] {
        let (id, endpoint) = (WorkerId(7), "unix:/x".to_string());
        let registration = Registration { id, endpoint, slot: 1, process: 2, role };
        let active = Some(Generation { term: Term(2), number: 9 });
        let hello = Hello { registration, active };
        assert_eq!(Hello::try_from(v1::Hello::from(hello.clone())), Ok(hello));
    }
    let [killed, crashed] = [Ended::Killed("SIGKILL".into()), Ended::Crashed("1".into())];
    for how in [Ended::Finished, killed, crashed, Ended::Mistaken("no file".into())] {
        let end = ProcessEnd { id: 5, slot: 3, pid: 4, how };
        assert_eq!(ProcessEnd::try_from(v1::ProcessEnd::from(end.clone())), Ok(end));
    }
}

#[test]
fn an_error_names_the_field() {
    fn check<T: std::fmt::Debug>(result: Result<T, Error>, text: &str) {
        assert_eq!(result.expect_err(text).to_string(), text);
    }
    check(
        Hello::try_from(v1::Hello::default()),
        "message Hello: field \"registration\" is missing",
    );
    check(Ending::try_from(v1::Ending::default()), "message Ending: field \"kind\" is missing");
    check(
        Beat::try_from(v1::Beat { work: 9, ..v1::Beat::default() }),
        "message Beat: field \"work\" cannot be 9",
    );
    let source = Some(StateSource::Checkpoint { rank: 1, mark: None }.into());
    check(
        Activation::try_from(v1::Activation { source, ..v1::Activation::default() }),
        "message Activation: field \"source\" cannot be 1",
    );
    let promise = v1::Promise { generation: 1, holding: None };
    let promise = v1::FromMember { kind: Some(v1::from_member::Kind::Promise(promise)) };
    check(FromMember::try_from(promise), "message Promise: field \"holding\" is missing");
    check(
        Numbered::try_from(v1::ProcessMessage::default()),
        "message ProcessMessage: field \"said\" is missing",
    );
}
