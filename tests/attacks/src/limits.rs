//! What must hold, and how long attacks go on.

use std::time::Duration;

/// Another client's longest call under any attack.
pub const LONGEST_CALL_MAX: Duration = Duration::from_millis(20);
/// Another client's p99 under attack, of that in peace.
pub const P99_MAX: f64 = 1.2;
/// The same where attacker, daemon and victim have so many cores between them that the attacker's own work takes turns with
/// the victim's.
pub const P99_ON_A_SHARED_CORE_MAX: f64 = 2.0;
/// Below this a p99 is the noise of the machine: two wake-ups of a thread that finds its core busy.
pub const P99_NOISE: Duration = Duration::from_micros(200);
/// 10 us of work of a well-behaved VM, beside any number of hanging ones.
pub const WORK_MAX: Duration = Duration::from_millis(100);
/// What one attacker may take of the daemon's memory: the budget of a VM.
pub const MEMORY_OF_A_VM_MAX: u64 = 256 << 20;
/// What the allocator may keep when all is given back.
pub const MEMORY_KEPT_MAX: u64 = 48 << 20;
/// Mappings that the allocator may have come to have.
pub const MAPPINGS_KEPT_MAX: usize = 64;
/// Log of one attack, whatever it does.
pub const LOG_BYTES_MAX: u64 = 256 << 10;
/// Trace of one attack.
pub const TRACE_BYTES_MAX: u64 = 512 << 20;
/// What a recording daemon is told that its trace may have.
pub const RECORD_MAX: u64 = TRACE_BYTES_MAX / 2;

/// How long a victim is measured in peace.
pub const PEACE: Duration = Duration::from_secs(1);
/// How long an attack goes on that goes on for a time.
pub const ATTACK: Duration = Duration::from_secs(3);
/// How long an attack may take; then it is cut short where it can be.
pub const ATTACK_MAX: Duration = Duration::from_secs(10);
/// Then the daemon is killed: what holds it up so long, or takes so much memory, would stop the machine of the run.
pub const DAEMON_KILLED_AFTER: Duration = Duration::from_secs(25);
pub const DAEMON_KILLED_OVER: u64 = 1 << 30;
/// How long the victim is measured when the attacker has gone: that is when what it had is cleared away.
pub const CLEARING: Duration = Duration::from_millis(1500);
/// Then nothing of the attacker may be left.
pub const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(20);
/// TdrDelay, its check and the reset: from then on an engine is the victim's again.
pub const FIRST_RESET: Duration = Duration::from_millis(2500);

/// How often the daemon's descriptors and mappings are counted: a look at mappings holds up whoever makes one.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Rounds that the victim makes beside an attack of a small run.
pub const ROUNDS_BESIDE: u64 = 20;
