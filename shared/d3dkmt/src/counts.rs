//! Counts of handles and values, and flags of a submission, that a call may have.

use crate::limits::{
    BROADCAST_CONTEXTS_MAX, OBJECTS_SIGNALED_MAX, OBJECTS_WAITED_ON_MAX, SIGNALING_CONTEXTS_MAX,
};
use crate::{Call, GpuSignal};

/// Whether there are one to `most` objects, each with a value.
pub fn fit(objects: usize, values: usize, most: usize) -> bool {
    (1..=most).contains(&objects) && objects == values
}

/// Whether flags of a submission have reserved bits.
pub fn are_reserved(flags: u32) -> bool {
    flags & !SUBMISSION_FLAGS != 0
}

/// One to `D3DDDI_MAX_BROADCAST_CONTEXT` contexts of a submission, or hardware queues.
fn is_broadcast(queues: usize) -> bool {
    (1..=BROADCAST_CONTEXTS_MAX).contains(&queues)
}

impl GpuSignal {
    /// Contexts that it may name at most: legacy objects are signaled by a context and its broadcast contexts.
    pub fn contexts_max(&self) -> usize {
        match self {
            GpuSignal::Legacy { .. } => SIGNALING_CONTEXTS_MAX,
            GpuSignal::Monitored { .. } | GpuSignal::CpuEvent { .. } => BROADCAST_CONTEXTS_MAX,
        }
    }
}

/// `D3DKMT_SUBMITCOMMANDFLAGS`: NullRendering, PresentRedirected and NoKmdAccess. The other bits are reserved.
const SUBMISSION_FLAGS: u32 = 0b111;

impl Call {
    /// Whether a submission has flags that every host refuses. The guest refuses them itself in a one-way call, whose status
    /// would be lost, and the device stopped (GPV-016).
    pub fn has_reserved_flags(&self) -> bool {
        matches!(self, Call::SubmitCommand { flags, .. } if are_reserved(*flags))
    }

    /// Whether the counts of a signal, a wait or a submission are within the limits. If they are not, the guest itself
    /// answers STATUS_INVALID_PARAMETER and sends no message (GPV-025). The host checks again.
    pub fn counts_fit(&self) -> bool {
        match self {
            Call::SignalFromCpu { objects, values, .. } => {
                fit(objects.len(), values.len(), OBJECTS_SIGNALED_MAX)
            }
            Call::WaitFromCpu { objects, values, .. }
            | Call::WaitFromGpu { objects, values, .. }
            | Call::SubmitWaitToHwQueue { objects, values, .. } => {
                fit(objects.len(), values.len(), OBJECTS_WAITED_ON_MAX)
            }
            Call::WaitFromGpuLegacy { objects, .. } => {
                fit(objects.len(), objects.len(), OBJECTS_WAITED_ON_MAX)
            }
            Call::SignalFromGpu { contexts, signal, .. } => {
                (1..=signal.contexts_max()).contains(&contexts.len())
                    && match signal {
                        GpuSignal::Monitored { objects, values } => {
                            fit(objects.len(), values.len(), OBJECTS_SIGNALED_MAX)
                        }
                        GpuSignal::Legacy { objects, .. } => {
                            fit(objects.len(), objects.len(), OBJECTS_SIGNALED_MAX)
                        }
                        GpuSignal::CpuEvent { .. } => true,
                    }
            }
            Call::SubmitSignalToHwQueue { queues, objects, values, .. } => {
                is_broadcast(queues.len()) && fit(objects.len(), values.len(), OBJECTS_SIGNALED_MAX)
            }
            Call::SubmitCommand { contexts, .. } => is_broadcast(contexts.len()),
            // GPV-025 is about these calls; the others have no such counts, or the host alone checks them.
            _ => true,
        }
    }
}
