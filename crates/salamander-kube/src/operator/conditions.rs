//! Conditions: facts about a job with the time since when they are so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::crd::{Phase, TrainingJobStatus};

/// What a phase says about all conditions.
pub fn follow(status: &mut TrainingJobStatus, now: Timestamp, phase: Phase, message: &str) {
    let facts = [
        ("Valid", phase != Phase::Invalid),
        ("Running", phase == Phase::Running),
        ("Blocked", phase == Phase::Blocked),
        ("Suspended", phase == Phase::Suspended),
        ("Complete", phase == Phase::Complete),
        ("Failed", phase == Phase::Failed),
    ];
    for (type_, holds) in facts {
        let holds = if holds { "True" } else { "False" };
        let known = status.conditions.iter_mut().find(|condition| condition.type_ == type_);
        // Its time changes only when its status does.
        let since = known.as_ref().filter(|known| known.status == holds);
        let condition = Condition {
            last_transition_time: since
                .map_or(Time(now), |since| since.last_transition_time.clone()),
            type_: type_.to_string(),
            status: holds.to_string(),
            reason: phase.to_string(),
            message: message.to_string(),
            observed_generation: status.observed_generation,
        };
        match known {
            Some(known) => *known = condition,
            None => status.conditions.push(condition),
        }
    }
    status.phase = Some(phase);
    status.message = Some(message.to_string()).filter(|message| !message.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut status = TrainingJobStatus::default();
        follow(&mut status, at(1), Phase::Gathering, "");
        follow(&mut status, at(2), Phase::Running, "step 1");
        follow(&mut status, at(3), Phase::Running, "step 2");
        let since = |type_: &str| {
            let found = status.conditions.iter().find(|condition| condition.type_ == type_);
            found.map(|condition| (condition.status.as_str(), condition.last_transition_time.0))
        };
        assert_eq!(since("Running"), Some(("True", at(2))));
        assert_eq!(since("Valid"), Some(("True", at(1))));
        assert_eq!(since("Failed"), Some(("False", at(1))));
        assert_eq!(status.message.as_deref(), Some("step 2"));
    }
}
