//! What people see beside the snapshot. It is no part of a trace's digest.

use alloc::vec::Vec;

use d3dkmt::Handle;

use crate::EngineType;
use crate::kernel::Kernel;
use crate::snapshot::EngineReport;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Details {
    pub paging_engines: Vec<PagingEngineReport>,
}

/// An engine that runs paging buffers and nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagingEngineReport {
    /// Its kind is that of the engines that copy.
    pub report: EngineReport,
    /// The process whose paging buffer runs, and its paging queue; NULL: the updates of an address space by a context.
    pub runs: Option<(u32, Handle)>,
}

impl Kernel {
    pub fn details(&self) -> Details {
        Details { paging_engines: self.paging_engine_reports() }
    }

    fn paging_engine_reports(&self) -> Vec<PagingEngineReport> {
        let adapters = (0..).zip(&self.config.adapters);
        let engines = adapters.filter_map(|(adapter, config)| config.own_paging_engine(adapter));
        let report = |engine| {
            let runs = |queue: &&crate::vidsch::Queue| queue.engine == engine && queue.running.is_some();
            let running = self.vidsch.queues().iter().map(|(_, queue)| queue).find(runs);
            let owner = |queue: &crate::vidsch::Queue| {
                let paging_queue =
                    self.vidmm.paging_queues().iter().find(|(_, of)| of.context == queue.context);
                (queue.process.0, paging_queue.map_or(Handle::NULL, |(_, of)| of.handle))
            };
            PagingEngineReport {
                report: self.engine_report(engine, EngineType::Copy),
                runs: running.map(owner),
            }
        };
        engines.map(report).collect()
    }
}
