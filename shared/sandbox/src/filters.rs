//! Lists of system calls as programs that the system runs before each call.

use std::collections::BTreeMap;
use std::ffi::c_long;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// What must hold for a call's arguments, one alternative for each rule; empty: nothing.
pub type Conditions = Vec<SeccompRule>;

/// Numbers of the x32 interface of x86-64 begin here; no other processor has numbers that high.
const X32_NUMBERS: u32 = 0x4000_0000;

/// Forbids all calls of the x32 interface: a list that forbids calls has one number of each.
fn no_x32() -> BpfProgram {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // The number of the call is the first word.
    let number = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let is_x32 = sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32_NUMBERS) };
    let end = |action| statement(libc::BPF_RET | libc::BPF_K, action);
    vec![number, is_x32, end(libc::SECCOMP_RET_TRAP), end(libc::SECCOMP_RET_ALLOW)]
}

/// The filters of a list, in the order in which they are installed.
#[derive(Debug, Clone)]
pub struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Allows these calls, with their conditions, and no others.
    ///
    /// # Errors
    ///
    /// The list is too long, or this processor has none.
    pub fn allow(
        calls: impl IntoIterator<Item = Result<(c_long, Conditions), BackendError>>,
    ) -> Result<Filters, BackendError> {
        Filters::new(calls, SeccompAction::Trap, SeccompAction::Allow)
    }

    /// Forbids these calls, where their conditions hold, and no others but those of the x32 interface, which names the
    /// same calls by other numbers.
    ///
    /// # Errors
    ///
    /// As [`Filters::allow`].
    pub fn forbid(
        calls: impl IntoIterator<Item = Result<(c_long, Conditions), BackendError>>,
    ) -> Result<Filters, BackendError> {
        let mut filters = Filters::new(calls, SeccompAction::Allow, SeccompAction::Trap)?;
        filters.0.push(no_x32());
        Ok(filters)
    }

    fn new(
        calls: impl IntoIterator<Item = Result<(c_long, Conditions), BackendError>>,
        others: SeccompAction,
        listed: SeccompAction,
    ) -> Result<Filters, BackendError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        // Their arguments are in memory, where a filter sees nothing. Without them programs use `clone` and `openat`.
        let refused = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (call, Vec::new())).into();
        let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
        let unseen = SeccompFilter::new(refused, SeccompAction::Allow, unknown, arch)?;
        let rules = calls.into_iter().collect::<Result<BTreeMap<_, _>, BackendError>>()?;
        let list = SeccompFilter::new(rules, others, listed, arch)?;
        Ok(Filters(vec![unseen.try_into()?, list.try_into()?]))
    }

    /// Restricts the calling thread, and all that it starts from now on, for ever. Call it once [`crate::violation`] has
    /// its handler: a forbidden call ends the process without a word otherwise.
    ///
    /// # Errors
    ///
    /// The system has no filters, or the thread may gain privileges (`no_new_privs`).
    pub fn install(&self) -> Result<(), String> {
        self.0
            .iter()
            .try_for_each(|filter| seccompiler::apply_filter(filter))
            .map_err(|error| error.to_string())
    }
}
