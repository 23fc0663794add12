//! Limits that the daemon must keep under attack, and durations of attacks.

use std::time::Duration;

/// Another client's longest call under any attack.
pub const LONGEST_CALL_MAX: Duration = Duration::from_millis(20);
/// Largest p99 of another client under attack, relative to its p99 without attack.
pub const P99_MAX: f64 = 1.2;
/// The same on machines with so few cores that the attacker's own work competes with the victim's.
pub const P99_ON_A_SHARED_CORE_MAX: f64 = 2.0;
/// A p99 below this is noise of the machine: two wakes of a thread on a busy core.
pub const P99_NOISE: Duration = Duration::from_micros(200);
/// 10 us of work of a well-behaved VM, beside any number of hanging ones.
pub const WORK_MAX: Duration = Duration::from_millis(100);
/// Memory that one attacker may use in the daemon: the budget of a VM.
pub const MEMORY_OF_A_VM_MAX: u64 = 256 << 20;
/// Unread answers that the processes of one user may have in the daemon.
pub const UNREAD_OF_A_USER_MAX: usize = 64 << 20;
/// Unread answers that the socket of a process holds, at most.
pub const UNREAD_IN_SOCKETS: usize = 512 << 10;
/// Memory that the allocator may keep after everything is freed.
pub const MEMORY_KEPT_MAX: u64 = 48 << 20;
/// Mappings that the allocator may add.
pub const MAPPINGS_KEPT_MAX: usize = 64;
/// Most log bytes of one attack.
pub const LOG_BYTES_MAX: u64 = 256 << 10;
/// Most trace bytes of one attack.
pub const TRACE_BYTES_MAX: u64 = 512 << 20;
/// `--record-max` of a recording daemon.
pub const RECORD_MAX: u64 = TRACE_BYTES_MAX / 2;

/// How long a victim is measured in peace.
pub const PEACE: Duration = Duration::from_secs(1);
/// Duration of an attack that repeats something for a time.
pub const ATTACK: Duration = Duration::from_secs(3);
/// Longest duration of an attack; after this it stops where it can.
pub const ATTACK_MAX: Duration = Duration::from_secs(10);
/// Limits of time and memory at which the suite kills the daemon, to protect the machine.
pub const DAEMON_KILLED_AFTER: Duration = Duration::from_secs(25);
pub const DAEMON_KILLED_OVER: u64 = 1 << 30;
/// How long the victim is measured after the attacker's end, while the daemon cleans up.
pub const CLEARING: Duration = Duration::from_millis(1500);
/// Time after which nothing of the attacker may be left.
pub const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(20);
/// TdrDelay, its check and the reset: after this the victim's work runs on the engine again.
pub const FIRST_RESET: Duration = Duration::from_millis(2500);

/// Interval of counts of the daemon's descriptors and mappings. Reading the mappings blocks threads that map memory.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Rounds of the victim during an attack of a small run.
pub const ROUNDS_BESIDE: u64 = 20;
