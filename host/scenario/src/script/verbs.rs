//! Every word that can begin a statement or name what an actor does, with its form: what error messages
//! suggest and the reference page lists.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::forms::{DOCS, Form};
use crate::program::NamedCall;

/// A word of the language.
#[derive(Clone, Debug)]
pub struct Word {
    pub name: &'static str,
    /// How it is written.
    pub form: Cow<'static, str>,
    /// What it does; a verb's begins with the C name of its call.
    pub about: Cow<'static, str>,
}

impl Word {
    const fn new(name: &'static str, form: &'static str, about: &'static str) -> Word {
        Word { name, form: Cow::Borrowed(form), about: Cow::Borrowed(about) }
    }
}

macro_rules! words {
    ($($name:literal, $form:literal, $about:literal;)+) => {
        &[$(Word::new($name, $form, $about)),+]
    };
}

/// Words that begin a line.
pub const STATEMENTS: &[Word] = words! {
    "scenario", "scenario \"TITLE\"", "the first line of a scenario";
    "litmus", "litmus \"TITLE\"", "the first line of a file with a race";
    "covers", "covers ID ID ..", "the rules that the file is about";
    "tags", "tags WORD ..", "words to choose files by";
    "skip", "skip BACKEND \"REASON\"", "a backend that cannot run the file, and why";
    "config", "config adapters = N; config async_submission; config SWITCH = VALUE; config adapter|engine|engines|target|registry|feature|tdr|grant|vm|system ..", "hardware, policy switches, TDR settings, what VMs have and may share";
    "matrix", "matrix NAME = VALUE VALUE ..", "a case for each value; `$NAME` stands for it";
    "given", "given NAME = VALUE when AXIS is|not|below|at_least VALUE and ..; .. otherwise", "what a case expects, computed";
    "vm", "vm NAME", "a VM starts";
    "process", "process NAME [in VM]", "a guest process starts and attaches";
    "thread", "thread NAME in PROCESS", "a further thread of a process";
    "exit", "exit PROCESS", "a process ends in order";
    "at", "at DURATION", "virtual time since the start";
    "fault", "fault FAULT ..", "something goes wrong";
    "expect", "expect CONDITION", "what must hold now";
    "race", "race ACTOR | ACTOR ..", "columns that run at the same time; a line below is a step of each";
    "allowed", "allowed TERM TERM .., TERM ..", "how a race may end; each set must be reached";
    "forbidden", "forbidden TERM TERM .., TERM ..", "how a race must not end";
};

/// What an actor does: calls in the order of their table, then what is no call.
pub static VERBS: LazyLock<Vec<Word>> = LazyLock::new(|| {
    let mut by_hand = BY_HAND.to_vec();
    let mut words = Vec::new();
    for ((name, form), (_, doc)) in NamedCall::FORMS.iter().zip(DOCS) {
        let form = Form::new(form);
        if let Form::ByHand(verb) = form {
            words.extend(by_hand.extract_if(.., |word| word.name == verb));
        }
        if let Some((verb, form)) = form.page(name) {
            let about = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace('`', "");
            words.push(Word { name: verb, form: form.into(), about: about.into() });
        }
    }
    words.extend(by_hand);
    words
});

/// Verbs that are no call, or that no form of a row can say.
const BY_HAND: &[Word] = words! {
    "device", "D = device [on N]", "D3DKMTOpenAdapterFromLuid of adapter N (0) and D3DKMTCreateDevice";
    "completed", "V = completed D F", "D3DKMTGetDeviceState and a load, as ID3D12Fence::GetCompletedValue: UINT64_MAX once D is not ACTIVE";
    "context", "C = context D ENGINE [FLAG ..]", "D3DKMTCreateContextVirtual on the node of this engine";
    "fence", "F = fence D [initial=N] [FLAG ..] [affinity=N]", "D3DKMTCreateSynchronizationObject2 of a MONITORED_FENCE";
    "object", "S = object D TYPE [initial=N] [count=N] [max=N] [owned] [event=E] [adapter=A] [target=N] [time=TIME] [FLAG ..] [legacy]", "D3DKMTCreateSynchronizationObject2, or with `legacy` D3DKMTCreateSynchronizationObject";
    "close_share", "close_share N", "CloseHandle of an NT handle";
    "signal", "signal D F=V [G=V ..] [rewind] [FLAG ..]", "D3DKMTSignalSynchronizationObjectFromCpu";
    "wait", "wait D F>=V [G>=V ..] [any] [event=E]", "D3DKMTWaitForSynchronizationObjectFromCpu; without an event it returns when it is over";
    "gpu_signal", "gpu_signal C [C ..] F=V [G=V ..] [rewind] [FLAG ..], or gpu_signal C event=E, or gpu_signal C legacy S [T ..] [value=V]", "D3DKMTSignalSynchronizationObjectFromGpu2, with `legacy` D3DKMTSignalSynchronizationObject2: a packet in each context";
    "gpu_wait", "gpu_wait C F>=V [G>=V ..], or gpu_wait C legacy S [T ..] [value=V]", "D3DKMTWaitForSynchronizationObjectFromGpu, with `legacy` D3DKMTWaitForSynchronizationObject2: a packet in the context's queue";
    "submit", "submit C [C ..] COMMAND ..", "D3DKMTSubmitCommand of list(L) write(F,V) busy(TIME) hang, or opaque(BYTES)";
    "open_keyed_mutex", "L = open_keyed_mutex M [buffer=N] [data=\"TEXT\"], or L = open_keyed_mutex N ..", "D3DKMTOpenKeyedMutex2 by the global handle of M, or D3DKMTOpenKeyedMutexFromNtHandle";
    "update_address", "update_address D C fence=F value=V [map(V, BYTES) ..] [unmap(V, BYTES) ..]", "D3DKMTUpdateGpuVirtualAddress";
    "allocate", "A = allocate D bytes=N [shared]", "D3DKMTCreateAllocation2 of the process's own memory; `shared`: with a resource that NT handles can be of";
    "open_allocation", "B = open_allocation D N", "D3DKMTOpenResourceFromNtHandle: the allocation of a resource, whose memory stays its creator's";
    "resource", "R = resource D buffer|texture1d|texture2d|texture3d at=V [offset=N] [bytes=N] [width=N] [height=N] [depth=N] [mips=N] [slices=N] [planes=N] [texel=N] [layout=LAYOUT] [state=STATE] [upload|readback] [FLAG ..] [name=\"TEXT\"]", "D3DKMTEscape of the driver's CREATE_RESOURCE: what commands name, `offset` bytes behind V";
    "destroy_resource", "destroy_resource D R", "D3DKMTEscape of the driver's DESTROY_RESOURCE";
    "list", "L = list [DIRECT|BUNDLE|COMPUTE|COPY|VIDEO_DECODE|VIDEO_PROCESS|VIDEO_ENCODE] [\"TEXT\"]", "a command list; lines that begin with its name record into it, `submit` takes what it has then";
    "debug", "debug D off|errors|all", "D3DKMTEscape of the driver's SET_DEBUG: what the debug layer of the process says";
    "debug_messages", "M = debug_messages D", "D3DKMTEscape of the driver's READ_MESSAGES: what it has said since it was last read";
    "describe_fence", "describe_fence D F [SHARED] [SHARED_CROSS_ADAPTER] [NON_MONITORED] [ALLOW_COMMAND_LIST_BARRIERS] [ALLOW_QUEUE_AND_CPU_SYNC] [N]", "D3DKMTEscape of the driver's DESCRIBE_FENCE: the flags of a native fence, which only a runtime knows";
    "store", "store A words [N..N] = N", "the process writes words of 32 bits of its memory; no call";
    "submit_hw", "submit_hw Q id=N COMMAND ..", "D3DKMTSubmitCommandToHwQueue; it is done when the progress fence is at N";
    "hw_signal", "hw_signal Q [Q ..] F=V [G=V ..] [FLAG ..]", "D3DKMTSubmitSignalSyncObjectsToHwQueue";
    "hw_wait", "hw_wait Q F>=V [G>=V ..]", "D3DKMTSubmitWaitForSyncObjectsToHwQueue";
    "ring", "ring Q id=N COMMAND ..", "a command buffer in the ring and a store to the doorbell: no call";
    "priority", "priority C [N] [in_process]", "D3DKMTSetContextSchedulingPriority, or without N D3DKMTGetContextSchedulingPriority";
    "priority_class", "priority_class [CLASS]", "D3DKMTSetProcessSchedulingPriorityClass, or without a class D3DKMTGetProcessSchedulingPriorityClass";
    "escape", "X = escape A [device=D] [context=C] [kind=KIND] [FLAG ..] [DATA ..]", "D3DKMTEscape: DRIVERPRIVATE unless it says another kind; data of u32(N, ..) u64(N) zeros(BYTES) \"TEXT\" cpu_event_usage(S, USAGE, ..) kmd_cpu_event(X)";
    "event", "E = event", "a new event of the program (an eventfd)";
    "read", "r = read F", "one load of a fence value, in a race";
};

/// What `fault` does.
pub const FAULTS: &[Word] = words! {
    "kill", "fault kill PROCESS", "SIGKILL: the process is gone at once";
    "freeze", "fault freeze PROCESS", "SIGSTOP: it takes no step and hears of nothing until `thaw`";
    "thaw", "fault thaw PROCESS", "SIGCONT";
    "cut", "fault cut PROCESS", "its stream to the host breaks: every call answers DEVICE_REMOVED";
    "hold", "fault hold PROCESS", "nothing of its stream arrives, either way, until `release`";
    "release", "fault release PROCESS", "what was held arrives, in order";
    "delay", "fault delay PROCESS DURATION", "what its stream carries from now on takes so long each way";
    "reorder", "fault reorder", "from now on the streams are served last first; within each the order stays";
    "crash", "fault crash VM", "the VM dies with all its processes";
    "lose_interrupt", "fault lose_interrupt ENGINE", "the engine's next interrupt is lost";
    "hang", "fault hang ENGINE", "what the engine runs, or runs next, never ends";
    "stop_adapter", "fault stop_adapter N", "the adapter stops for good";
    "page_fault", "fault page_fault ENGINE at=N [FLAG ..]", "what the engine runs, or runs next, faults at this GPU address";
    "reset_fails", "fault reset_fails ENGINE", "the engine's next reset fails";
    "power", "fault power N on|off", "the adapter goes to power state D0, or to D3";
    "object_bad", "fault object_bad N usage=K", "the driver finds an object of adapter N bad: it signals the events of this usage";
    "f1", "fault f1 ENGINE", "the engine leaves F0 for F1: its doorbells are disconnected";
    "clock", "fault clock DURATION", "the system's clock is set: it says that it is so long after the start";
    "fill", "fault fill CONTEXT", "its process submits until a queue is full";
    "restart", "fault restart daemon", "the daemon ends and starts anew: to the processes it is a `cut`";
};

/// What `expect` asks.
pub const EXPECTATIONS: &[Word] = words! {
    "=", "expect F = V", "the fence value that its process reads from memory, a register, or the number that a call gave";
    "blocked", "expect W blocked", "the call has not returned";
    "returned", "expect W returned STATUS", "the call has returned this; its thread goes on";
    "set", "expect E set [N]", "the event was set since it was last asked for, N times";
    "clear", "expect E clear", "the event was not set since it was last asked for";
    "data", "expect A data DATA ..", "the private data that the call gave: of a keyed mutex, of an escape; besides what an escape takes, any(BYTES), and some(BYTES) that are not all zero";
    "status", "expect B status STATUS", "what the doorbell's status memory says";
    "state", "expect D state STATE", "D3DKMT_DEVICEEXECUTION_STATE of the device";
    "engine", "expect engine ENGINE idle|running|hung", "what the engine does";
    "report", "expect report \"TEXT\"", "a note with this text since reports were last asked for";
    "no report", "expect no report", "no note since reports were last asked for";
    "words", "expect A words [N..N] = N", "words of 32 bits of an allocation's memory, as its process reads them";
    "message", "expect M message R-NNN [list=N] [command=N] [barrier=N] [resource=R] [\"TEXT\"]", "what the debug layer said, as `debug_messages` read it";
    "no message", "expect M no message", "the debug layer said nothing";
    "race", "expect race \"TEXT\" [\"TEXT\" ..]", "a race was told that has all these texts, since races were last asked for";
    "no race", "expect no race", "no race was told since races were last asked for";
    "messages", "expect messages PROCESS = N", "frames that the process sent since this was last asked";
    "wakes", "expect wakes PROCESS = N", "wakes for the process since this was last asked";
    "waits", "expect waits = N", "CPU waits that are pending in the kernel";
    "why", "expect why PROCESS VERDICT [F>=V]", "what becomes of something that the process waits for: progressing, waits-for, cycle, dead-end, hang, lost-interrupt, frozen, suspended, not-rung, removed; and the fence and value that it comes down to";
    "nothing left", "expect nothing left [of PROCESS]", "the kernel has nothing of the process, or of anybody";
};
