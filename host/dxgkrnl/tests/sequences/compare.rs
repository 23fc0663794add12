//! What of the kernel and of the naive model must be the same after each operation.

use dxgkrnl::ProcessId;
use dxgkrnl::views::Belongings;

use super::pair::{Pair, Same, same, sorted};
use crate::naive::{Owner, PAGE_BYTES, Wait};

/// Submissions and packets of a queue, without what the kernel itself has put there.
fn without_marks(queue: &[String]) -> usize {
    queue.iter().filter(|packet| *packet != "end or offer of memory").count()
}

impl Pair {
    /// Compares all visible state of both.
    pub(super) fn compare(&mut self) -> Same {
        self.naive.end_waiting_contexts();
        let effects = std::mem::take(&mut self.effects);
        for store in &effects.stores {
            self.memory.insert((store.process.0, store.slot), store.value);
        }
        let woken = effects
            .events
            .iter()
            .filter_map(|event| Some((event.process.0, event.target.event()?.0, event.status)));
        let (mut woken, mut naive) = (woken.collect::<Vec<_>>(), self.naive.take_delivered());
        if self.steps_are_small {
            // Waits for one fence keep their order; the order between fences is free.
            woken.sort_by_key(|(process, event, _)| (*process, *event));
            naive.sort_by_key(|(process, event, _)| (*process, *event));
        }
        same("woken", woken, naive)?;
        let late = effects.answers.iter().map(|answer| (answer.process.0, answer.status));
        same("late answers", sorted(late), sorted(self.naive.take_late().into_iter()))?;
        let ready = effects.sync_files.iter().map(|ready| (ready.vm.0, ready.token));
        let (mut ready, mut naive) = (ready.collect::<Vec<_>>(), self.naive.take_ready());
        // No descriptor is left of a VM that has ended: whether its last waits end with a signal is free.
        ready.retain(|(vm, _)| self.vms.contains(vm));
        naive.retain(|(vm, _)| self.vms.contains(vm));
        if self.steps_are_small {
            ready.sort_by_key(|(vm, token)| (*vm, token.0));
            naive.sort_by_key(|(vm, token)| (*vm, token.0));
        }
        same("ready sync files", ready, naive)?;
        for (process, slot, value) in self.naive.memory() {
            same(
                &format!("memory of p{process}, slot {slot}"),
                self.memory.get(&(process, slot)),
                Some(&value),
            )?;
        }
        self.compare_tables()?;
        self.check_laws()
    }

    #[expect(clippy::too_many_lines, reason = "a line for each table")]
    fn compare_tables(&self) -> Same {
        let (snapshot, naive) = (self.kernel.snapshot(), &self.naive);
        let mut opens: Vec<_> =
            snapshot.objects.iter().map(|open| (open.process, open.handle, open.flags, open.value)).collect();
        let alive = naive.opens.iter().filter(|open| !open.ended);
        let mut expected: Vec<_> = alive
            .map(|open| (open.process, open.handle, open.flags.bits(), naive.objects[open.object].value))
            .collect();
        opens.sort();
        expected.sort();
        same("handles of objects", opens, expected)?;
        same("objects alive", snapshot.objects_alive as usize, naive.objects_alive())?;
        let shares = naive.shares.iter().filter(|share| !share.closed).count();
        same("shares", snapshot.shares as usize, shares)?;

        let keyed = snapshot
            .keyed_mutexes
            .iter()
            .map(|open| (open.process, open.handle, open.key, open.fence_value, open.owns, open.abandoned));
        let alive = (0..naive.keyed_opens.len()).filter(|open| !naive.keyed_opens[*open].ended);
        let expected = alive.map(|at| {
            let open = &naive.keyed_opens[at];
            let mutex = &naive.keyed[open.mutex];
            let (owns, abandoned) = (naive.owns(at), naive.is_abandoned(at));
            (open.process, open.handle, mutex.key, mutex.fence_value, owns, abandoned)
        });
        same("keyed mutexes", sorted(keyed), sorted(expected))?;
        let acquires = snapshot.acquires.iter().map(|acquire| (acquire.process, acquire.event));
        let expected = naive.acquires.iter().filter(|acquire| !acquire.over);
        let expected = expected.map(|acquire| (acquire.process, acquire.event));
        same("pending acquires", sorted(acquires), sorted(expected))?;

        let events = snapshot.cpu_events.iter().map(|event| (event.process, event.handle, event.signals));
        let expected = naive.cpu_events.iter().filter(|event| !event.ended);
        let expected = expected.map(|event| (event.process, event.handle, event.signals));
        same("CPU events of drivers", sorted(events), sorted(expected))?;
        let paging = snapshot.paging_queues.iter();
        let paging = paging.map(|queue| (queue.process, queue.handle, queue.last_value));
        let expected = naive.paging_queues.iter().filter(|queue| !queue.ended);
        let expected = expected.map(|queue| (queue.process, queue.handle, queue.last));
        same("paging queues", sorted(paging), sorted(expected))?;
        let ranges = snapshot.gpu_va_ranges.iter();
        let ranges = ranges.map(|one| (one.process, one.adapter, one.base, one.size, one.zero_bytes));
        let expected = naive.ranges.iter().filter(|range| !range.ended).map(|range| {
            let (size, zero) = (range.pages * PAGE_BYTES, range.zero.len() as u64 * PAGE_BYTES);
            (range.process, range.adapter as u32, range.base, size, zero)
        });
        same("address spaces", sorted(ranges), sorted(expected))?;

        let allocations = snapshot.allocations.iter().filter(|one| !one.destroyed).map(|one| {
            let of = (one.process, one.handle, one.device, one.resource);
            (of, one.address, one.size, one.locks)
        });
        let alive = naive.memory_opens.iter().filter(|open| !open.ended);
        let expected = alive.map(|open| {
            let memory = &naive.memories[open.memory];
            let of = (open.process, open.allocation, naive.devices[open.device].handle, open.resource);
            (of, memory.address, memory.bytes, open.locks)
        });
        same("memory of the device", sorted(allocations), sorted(expected))?;
        for (number, memory) in naive.memories.iter().enumerate() {
            let is_shared = self.kernel.is_shared_memory(ProcessId(memory.owner), memory.address);
            let what = format!("shared memory at {:#x} of p{}", memory.address, memory.owner);
            same(&what, is_shared, naive.is_shared_memory(number))?;
        }
        let resources = snapshot.resources.iter().filter(|one| !one.destroyed);
        let resources = resources.map(|one| (one.process, one.handle));
        let alive = naive.memory_opens.iter().filter(|open| !open.resource_ended);
        let expected = alive.map(|open| (open.process, open.resource));
        same("resources", sorted(resources), sorted(expected))?;

        let mut devices: Vec<_> =
            snapshot.devices.iter().map(|device| (device.process, device.handle, device.state)).collect();
        let alive = naive.devices.iter().filter(|device| !device.ended);
        let mut expected: Vec<_> =
            alive.map(|device| (device.process, device.handle, device.state.0)).collect();
        devices.sort();
        expected.sort();
        same("devices", devices, expected)?;

        let queues = snapshot.hw_queues.iter();
        let queues = queues.map(|queue| (queue.process, queue.handle, without_marks(&queue.queue)));
        let mut contexts: Vec<_> = snapshot
            .contexts
            .iter()
            .map(|context| (context.process, context.handle, without_marks(&context.queue)))
            .chain(queues)
            .collect();
        let alive = naive.contexts.iter().filter(|context| !context.ended);
        let length = |context: &crate::naive::Context| {
            let in_flight = context.hardware.as_ref().map_or(0, |hardware| hardware.in_flight.len());
            context.queue.len() + usize::from(context.on_engine) + in_flight
        };
        let mut expected: Vec<_> =
            alive.map(|context| (context.process, context.handle, length(context))).collect();
        contexts.sort();
        expected.sort();
        same("queues of contexts", contexts, expected)?;

        let mut in_flight = vec![];
        self.kernel.hw_queues(&mut |queue| in_flight.push((queue.process.0, queue.handle, queue.in_flight)));
        let alive = naive.contexts.iter().filter(|queue| !queue.ended);
        let expected = alive.filter_map(|queue| {
            let in_flight = queue.hardware.as_ref()?.in_flight.len() as u32;
            Some((queue.process, queue.handle, in_flight))
        });
        same("in flight of hardware queues", sorted(in_flight.into_iter()), sorted(expected))?;

        let waits: Vec<_> = snapshot
            .waits
            .iter()
            .map(|wait| {
                let items: Vec<_> = wait.items.iter().map(|item| (item.value, item.satisfied)).collect();
                (wait.event.map(|event| (wait.process, event)), wait.context, wait.any, items)
            })
            .collect();
        let of_processes = |wait: &&Wait| !wait.over && !matches!(wait.owner, Owner::SyncFile { .. });
        let pending = naive.waits.iter().filter(of_processes).map(|wait| {
            let items: Vec<_> = wait.items.iter().map(|item| (item.value, item.reached)).collect();
            match wait.owner {
                Owner::Cpu { process, event } => (Some((process, event)), None, wait.any, items),
                Owner::SyncFile { .. } => (None, None, wait.any, items),
                Owner::Gpu { context } => {
                    let of =
                        naive.contexts[context].hardware.as_ref().map_or(context, |hardware| hardware.of);
                    (None, Some(naive.contexts[of].handle), wait.any, items)
                }
            }
        });
        match self.steps_are_small {
            true => same("pending waits", sorted(waits.into_iter()), sorted(pending)),
            false => same("pending waits", waits, pending.collect()),
        }
    }

    /// Invariants of the kernel, independent of the naive model.
    fn check_laws(&self) -> Same {
        same("what is counted twice", self.kernel.miscounted(), None)?;
        let mut unseen = vec![];
        self.kernel.unseen_writes(&mut |object| unseen.push(object));
        let mut asleep = None;
        self.kernel.pending_waits(&mut |wait| {
            for item in wait.items().filter(|item| !item.satisfied && item.current >= item.value) {
                if !unseen.contains(&item.object) {
                    asleep = Some((wait.process, wait.event, item));
                }
            }
        });
        same("asleep although the value is there", asleep, None)?;
        for process in self.naive.processes.iter().filter(|process| process.ended) {
            let belongings = self.kernel.belongings(ProcessId(process.id));
            same(&format!("left by p{}", process.id), belongings, Belongings::default())?;
        }
        Ok(())
    }
}
