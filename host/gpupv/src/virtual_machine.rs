//! VMs: image, launch, agent.
