//! submit_list: submits an empty command list, followed by a synchronous call that changes nothing and so returns when
//! the host has received the list; beside that call alone.

use d3dkmt::isa::{self, ListFlags, Packet, QueueType};

use crate::Plan;
use crate::abi::BenchDevice;
use crate::record::{self, Samples};

/// Calls of one series before the other runs.
const BLOCK: usize = 25;

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let context = guest.create_context(0)?;
    let (queue, flags, name) = (QueueType::Direct, ListFlags::empty(), String::new());
    let mut list = isa::encode(&[Packet::BeginList { queue, flags, name }]);
    let mut submit = || {
        guest.submit_command(context, &mut list)?;
        guest.device_state()
    };
    let mut warm_up = Samples::default();
    warm_up.time(plan.operations(2000, 200), &mut submit)?;
    let blocks = plan.operations(40, 8);
    for round in 0..plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..blocks {
            ours.time(BLOCK, &mut submit)?;
            peer.time(BLOCK, || guest.device_state())?;
        }
        record::round("submit_list", round, &mut [("ours", ours), ("peer", peer)])?;
    }
    Ok(())
}
