//! Work for hardware queues, which the driver gets whenever the kernel has it.

use driver_host::abi::Ddi;
use dxgkrnl::ProcessId;
use dxgkrnl::ddi::{Callback, EngineId, FaultedWork, Interrupt, PageFaultFlags};

use super::Outside;
use super::exchange::print;

impl Outside {
    /// Gives work to a hardware queue. If its process's VM is refused, the driver does not get it, and the queue faults:
    /// returns false then.
    pub(super) fn call_for_queue(
        &mut self,
        ddi: Ddi,
        commands: Vec<u8>,
        of: (EngineId, ProcessId, FaultedWork),
        callbacks: &mut Vec<Callback>,
    ) -> bool {
        let (engine, process, work) = of;
        let before = self.charge_to(process);
        let refusal =
            if self.exchange.has(engine.adapter, &ddi) { self.exchange.refusal(&ddi) } else { None };
        let is_refused = refusal.is_some();
        match refusal {
            Some(why) => {
                self.early.push(print(why));
                self.deliver(callbacks);
                // A hung engine reports nothing: its reset ends this work too.
                let of_engine = self.engines.engine(engine.node);
                if !of_engine.is_hung() {
                    of_engine.withdraw();
                    let (gpu_address, flags) = (0, PageFaultFlags::empty());
                    callbacks.push(Callback::NotifyInterrupt(Interrupt::HwQueuePageFaulted {
                        engine,
                        work,
                        gpu_address,
                        flags,
                    }));
                    callbacks.push(Callback::NotifyDpc { adapter: engine.adapter });
                }
            }
            None => drop(self.call(ddi, commands, callbacks)),
        }
        self.exchange.vm = before;
        !is_refused
    }
}
