//! The rules of a configuration that its types do not express.

use alloc::format;
use alloc::string::String;

use d3dkmt::limits::ADAPTERS_MAX;

use super::{AdapterConfig, Config, HOST_NAME, VmConfig};

/// A broken rule. The path names the value by its keys and list indices, as `adapter.1.luid`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    pub path: String,
    pub message: String,
}

fn flaw(path: impl Into<String>, message: impl Into<String>) -> Result<(), Flaw> {
    Err(Flaw { path: path.into(), message: message.into() })
}

/// Index of the first element that equals an earlier one.
fn twice<T>(of: &[T], same: impl Fn(&T, &T) -> bool) -> Option<usize> {
    (1..of.len()).find(|at| of[..*at].iter().any(|earlier| same(earlier, &of[*at])))
}

impl Config {
    /// Checks all rules.
    ///
    /// # Errors
    ///
    /// The first broken rule.
    pub fn check(&self) -> Result<(), Flaw> {
        let (count, tdr) = (self.adapters.len(), &self.tdr);
        if !(1..=ADAPTERS_MAX).contains(&count) {
            return flaw("adapter", format!("{count} adapters, allowed are 1 to {ADAPTERS_MAX}"));
        }
        for (at, adapter) in self.adapters.iter().enumerate() {
            adapter.check().map_err(|flaw| flaw.within("adapter", at))?;
        }
        if let Some(at) = twice(&self.adapters, |one, other| one.luid == other.luid) {
            let luid = self.adapters[at].luid;
            return flaw(format!("adapter.{at}.luid"), format!("two adapters have the LUID {luid}"));
        }
        if tdr.level > 3 {
            return flaw("tdr.level", format!("level is {}; TdrLevel is 0, 1, 2 or 3", tdr.level));
        }
        if tdr.debug_mode > 3 {
            let message = format!("debug_mode is {}; TdrDebugMode is 0, 1, 2 or 3", tdr.debug_mode);
            return flaw("tdr.debug_mode", message);
        }
        for (at, grant) in self.grants.iter().enumerate() {
            if grant.name.is_empty() {
                return flaw(format!("grant.{at}.name"), "a grant needs the name of an object");
            }
            if grant.vms.iter().any(String::is_empty) {
                return flaw(format!("grant.{at}.vms"), "a name of a VM is empty: name a VM, or \"host\"");
            }
        }
        for (at, vm) in self.vms.iter().enumerate() {
            vm.check(count).map_err(|flaw| flaw.within("vm", at))?;
        }
        if let Some(at) = twice(&self.vms, |one, other| one.name == other.name) {
            return flaw(format!("vm.{at}.name"), format!("two VMs are named {:?}", self.vms[at].name));
        }
        Ok(())
    }
}

impl Flaw {
    fn within(self, list: &str, at: usize) -> Flaw {
        Flaw { path: format!("{list}.{at}.{}", self.path), ..self }
    }
}

impl AdapterConfig {
    fn check(&self) -> Result<(), Flaw> {
        let (linked, most) = (self.physical_adapters, u32::BITS);
        if !(1..=most).contains(&linked) {
            let message = format!("physical_adapters is {linked}; an affinity mask has room for 1 to {most}");
            return flaw("physical_adapters", message);
        }
        if self.kmd.is_empty() {
            return flaw("kmd", "kmd is the name of a driver");
        }
        if self.nodes.is_empty() {
            return flaw("node", "an adapter needs at least one node");
        }
        let pages = self.paging_node.map(|node| node as usize);
        if pages.and_then(|node| self.nodes.get(node)).is_some_and(|node| !node.writes_fences) {
            return flaw("paging_node", "the paging node must write fences: set its writes_fences");
        }
        if let Some(at) = self.targets.iter().position(|target| target.vsync_ns == 0) {
            let message = "vsync_ns is 0; a target has time between two vsyncs";
            return flaw(format!("target.{at}.vsync_ns"), message);
        }
        if let Some(at) = twice(&self.targets, |one, other| one.id == other.id) {
            return flaw(
                format!("target.{at}.id"),
                format!("two targets have the id {}", self.targets[at].id),
            );
        }
        Ok(())
    }
}

impl VmConfig {
    /// The first field that differs from its default and that the kernel reads of guests only.
    fn field_of_guests(&self) -> Option<&'static str> {
        let default = VmConfig::default();
        let differs = [
            ("secure", self.secure != default.secure),
            ("iommu_isolation", self.iommu_isolation != default.iommu_isolation),
            ("linux", self.linux != default.linux),
            ("escapes", self.escapes != default.escapes),
            ("asynchronous", self.asynchronous != default.asynchronous),
            ("adapters", self.adapters != default.adapters),
            ("features", self.features != default.features),
        ];
        differs.into_iter().find_map(|(field, differs)| differs.then_some(field))
    }

    fn check(&self, adapters: usize) -> Result<(), Flaw> {
        if self.name.is_empty() {
            return flaw("name", "a VM needs its name");
        }
        if let Some(field) = self.field_of_guests().filter(|_| self.name == HOST_NAME) {
            return flaw(
                field,
                format!(
                    "\"host\" is no VM, and has no {field}: memory_bytes, raised_priorities and disable_gpu_timeout \
                     hold for the host's own processes"
                ),
            );
        }
        let beyond = self.adapters.iter().flatten().find(|ordinal| **ordinal as usize >= adapters);
        if let Some(ordinal) = beyond {
            return flaw("adapters", format!("there is no adapter {ordinal}, there are {adapters}"));
        }
        Ok(())
    }
}
