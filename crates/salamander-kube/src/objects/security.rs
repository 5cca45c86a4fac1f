//! What pods may do: they run as somebody who is not root, on a read-only root file system, without capabilities.

use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SeccompProfile, SecurityContext,
};

use crate::crd::PodTemplate;

/// The user of all pods, the one that distroless images call nonroot.
const USER: i64 = 65_532;

pub(super) fn pod_security(template: &PodTemplate) -> PodSecurityContext {
    let user = template.run_as_user.unwrap_or(USER);
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        run_as_group: Some(user),
        fs_group: Some(template.fs_group.unwrap_or(user)),
        // Large volumes take long to be given to a group again and again.
        fs_group_change_policy: Some("OnRootMismatch".to_string()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_string(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

pub(super) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_string()]), add: None }),
        ..SecurityContext::default()
    }
}
