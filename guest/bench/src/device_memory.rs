//! Memory of the device. lock_unlock and create_allocation: beside a synchronous call that changes nothing.
//! locked_bandwidth: a copy inside of a locked allocation, beside the same in private memory.

use crate::Plan;
use crate::abi::BenchDevice;
use crate::record::{self, Samples};

/// Calls of one series before the other runs.
const BLOCK: usize = 25;
/// Bytes of a new allocation.
const CREATED_BYTES: u64 = 64 << 10;
/// Bytes of the allocation that is copied in: more than caches near a core have.
const COPIED_BYTES: usize = 8 << 20;

pub fn measure(plan: &Plan) -> anyhow::Result<()> {
    if plan.is_selected("lock_unlock") {
        let guest = BenchDevice::open()?;
        let allocation = guest.create_device_memory(CREATED_BYTES)?;
        beside_call(plan, &guest, "lock_unlock", |ours| {
            ours.time(1, || {
                guest.lock(allocation, CREATED_BYTES as usize)?;
                guest.unlock(allocation)
            })
        })?;
    }
    if plan.is_selected("create_allocation") {
        let guest = BenchDevice::open()?;
        beside_call(plan, &guest, "create_allocation", |ours| {
            let mut created = 0;
            ours.time(1, || {
                created = guest.create_device_memory(CREATED_BYTES)?;
                Ok(())
            })?;
            guest.destroy_allocation(created)
        })?;
    }
    if plan.is_selected("locked_bandwidth") { bandwidth(plan) } else { Ok(()) }
}

fn beside_call(
    plan: &Plan,
    guest: &BenchDevice,
    figure: &str,
    mut operation: impl FnMut(&mut Samples) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut warm_up = Samples::default();
    for _ in 0..plan.operations(1000, 200) {
        operation(&mut warm_up)?;
    }
    let blocks = plan.operations(40, 8);
    for round in 0..plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..blocks {
            for _ in 0..BLOCK {
                operation(&mut ours)?;
            }
            peer.time(BLOCK, || guest.device_state())?;
        }
        record::round(figure, round, &mut [("ours", ours), ("peer", peer)])?;
    }
    Ok(())
}

fn bandwidth(plan: &Plan) -> anyhow::Result<()> {
    let guest = BenchDevice::open()?;
    let allocation = guest.create_device_memory(COPIED_BYTES as u64)?;
    let locked = guest.lock(allocation, COPIED_BYTES)?;
    let mut private = vec![0; COPIED_BYTES];
    // Every page is there before it is measured.
    locked.fill(1);
    private.fill(1);
    let copies = plan.operations(20, 20);
    for round in 0..plan.rounds {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..copies {
            copy(&mut ours, locked)?;
            copy(&mut peer, &mut private)?;
        }
        record::round("locked_bandwidth", round, &mut [("ours", ours), ("peer", peer)])?;
    }
    Ok(())
}

/// Copies the first half into the second one.
fn copy(samples: &mut Samples, memory: &mut [u8]) -> anyhow::Result<()> {
    let half = memory.len() / 2;
    samples.rate(1, half, || {
        memory.copy_within(..half, half);
        std::hint::black_box(&mut *memory);
        Ok(())
    })
}
