//! Members in threads of the test, one of which holds something else.

use super::*;
use crate::testing::{Flip, LinearNet, setup, train_together};

#[test]
fn most_members_are_right() {
    let check = |hashes: &[u64], expected: HashVote| {
        let hashes: Vec<Option<u64>> = hashes.iter().copied().map(Some).collect();
        assert_eq!(verdict(&hashes), expected, "{hashes:?}");
    };
    check(&[], HashVote::Same);
    check(&[7], HashVote::Same);
    check(&[7, 7, 7], HashVote::Same);
    check(&[7, 8, 7], HashVote::Odd(vec![1]));
    check(&[8, 7, 9, 7, 7], HashVote::Odd(vec![0, 2]));
    check(&[7, 8], HashVote::Split);
    check(&[7, 8, 8, 7], HashVote::Split);
    check(&[7, 8, 9], HashVote::Split);
    assert_eq!(verdict(&[None, None]), HashVote::Same);
    assert_eq!(verdict(&[Some(7), None, Some(7)]), HashVote::Odd(vec![1]));
}

/// Trains, one member's parameters being a little off from the begin; what became of each.
fn with_one_off(size: usize, off: Option<usize>) -> Vec<String> {
    ends(size, off, None)
}

/// Trains, with something wrong; what became of each.
fn ends(size: usize, off: Option<usize>, flip: Option<Flip>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let csv: String = (0..12).map(|at| format!("{at},{},{}\n", 12 - at, at % 2)).collect();
    let rest = "hyperparameters: {global_batch_size: 4}\nmicro_batches: 3\nworkers: 3\n\
                strategy: allreduce\nreproducibility: {experiment_seed: 1}\n\
                max_length: {epochs: 2}\n";
    let ends = train_together::<LinearNet<2>>(
        size,
        |rank| {
            let own = folder.path().join(rank.to_string());
            std::fs::create_dir_all(&own).expect("made");
            setup(&own, &format!("x,y,side\n{csv}"), rest)
        },
        |rank, trainer| {
            if off == Some(rank) {
                trainer.state.model.change(|mut net| {
                    net.out.weight = net.out.weight.map(|weight| weight + 1e-6);
                    net
                });
            }
        },
        flip,
    );
    let text = |end: Result<_, Error>| match end {
        Ok(crate::trainer::Outcome { progress, .. }) => format!("{} steps", progress.steps),
        Err(error) => error.to_string(),
    };
    ends.into_iter().map(text).collect()
}

#[test]
fn a_member_whose_parameters_differ_is_named_and_leaves() {
    assert_eq!(with_one_off(3, None), ["6 steps"; 3]);
    let ends = with_one_off(3, Some(1));
    assert!(ends[1].starts_with("worker 1 holds other parameters than most"), "{ends:?}");
    // The others go on without it.
    let leaving = Error::Leaving.to_string();
    assert_eq!((&ends[0], &ends[2]), (&leaving, &leaving));
}

#[test]
fn a_bit_that_flips_in_shared_memory_is_noticed_and_named() {
    // Of the sum that one member applies.
    let ends = ends(3, None, Some(Flip { rank: 1, after: 2 }));
    assert!(ends[1].starts_with("worker 1 holds other parameters than most"), "{ends:?}");
    let leaving = Error::Leaving.to_string();
    assert_eq!((&ends[0], &ends[2]), (&leaving, &leaving));
}

#[test]
fn two_members_that_differ_both_leave() {
    let ends = with_one_off(2, Some(0));
    for end in ends {
        assert!(end.starts_with("the parameters of worker 0, worker 1 differ after 0"), "{end}");
        assert!(end.ends_with("the run goes on from its last checkpoint"), "{end}");
    }
}

#[test]
fn comparing_takes_a_small_share_of_the_time() {
    let mut agreement = Agreement::at_once();
    agreement.took = Duration::from_secs(1000);
    assert!(agreement.is_due && !agreement.proposes());
    agreement.follow(false);
    agreement.took = Duration::ZERO;
    assert!(!agreement.is_due && agreement.proposes());
}
