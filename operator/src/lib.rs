//! The operator: manifests become topics, Deployments, gated Jobs and a true status.
