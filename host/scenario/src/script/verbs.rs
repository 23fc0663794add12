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
    /// What it does, in one paragraph; a verb's begins with the C name of its call.
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
    "tags", "tags WORD ..", "words by which files are selected";
    "skip", "skip BACKEND \"REASON\"", "a backend that cannot run the file, and why";
    "config", "config adapters = N; config async_submission; config SWITCH = VALUE; config adapter|engine|engines|target|registry|feature|tdr|grant|vm|system ..", "sets hardware, policy switches, TDR settings, and the resources and rights of VMs";
    "matrix", "matrix NAME = VALUE VALUE ..", "a case for each value; `$NAME` stands for it";
    "given", "given NAME = VALUE when AXIS is|not|below|at_least VALUE and ..; .. otherwise", "a value that is computed for each case";
    "vm", "vm NAME", "starts a VM";
    "process", "process NAME [in VM]", "starts a guest process, which attaches";
    "thread", "thread NAME in PROCESS", "starts a further thread of a process";
    "exit", "exit PROCESS", "exits a process in order";
    "at", "at DURATION", "advances virtual time to this time since the start";
    "fault", "fault FAULT ..", "injects a fault";
    "expect", "expect CONDITION", "checks a condition";
    "race", "race ACTOR | ACTOR ..", "runs columns concurrently; each following line is a step of each column";
    "allowed", "allowed TERM TERM .., TERM ..", "allowed outcomes of a race; each must be reached";
    "forbidden", "forbidden TERM TERM .., TERM ..", "forbidden outcomes of a race";
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
        let doc = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        if let (Some((verb, page)), Some(about)) = (form.page(name), form.summary(name, &doc)) {
            words.push(Word { name: verb, form: page.into(), about: about.into() });
        }
    }
    words.extend(by_hand);
    words
});

/// Verbs that are no call, or that no form of a row can say.
const BY_HAND: &[Word] = words! {
    "device", "D = device [on N]", "D3DKMTOpenAdapterFromLuid of adapter N (0) and D3DKMTCreateDevice";
    "context", "C = context D ENGINE [FLAG ..]", "D3DKMTCreateContextVirtual on the node of this engine";
    "fence", "F = fence D [initial=N] [FLAG ..] [affinity=N]", "D3DKMTCreateSynchronizationObject2 of a MONITORED_FENCE";
    "object", "S = object D TYPE [initial=N] [count=N] [max=N] [owned] [event=E] [adapter=A] [target=N] [time=TIME] [FLAG ..] [legacy]", "D3DKMTCreateSynchronizationObject2, or with `legacy` D3DKMTCreateSynchronizationObject";
    "close_share", "close_share N", "CloseHandle of a process's NT handle";
    "signal", "signal D F=V [G=V ..] [rewind] [FLAG ..]", "D3DKMTSignalSynchronizationObjectFromCpu";
    "wait", "wait D F>=V [G>=V ..] [any] [event=E]", "D3DKMTWaitForSynchronizationObjectFromCpu; without an event the call returns when the wait ends";
    "gpu_signal", "gpu_signal C [C ..] F=V [G=V ..] [rewind] [FLAG ..], or gpu_signal C event=E, or gpu_signal C legacy S [T ..] [value=V]", "D3DKMTSignalSynchronizationObjectFromGpu2, with `legacy` D3DKMTSignalSynchronizationObject2: a packet in each context";
    "gpu_wait", "gpu_wait C F>=V [G>=V ..], or gpu_wait C legacy S [T ..] [value=V]", "D3DKMTWaitForSynchronizationObjectFromGpu, with `legacy` D3DKMTWaitForSynchronizationObject2: a packet in the context's queue";
    "submit", "submit C [C ..] [flags=N] COMMAND ..", "D3DKMTSubmitCommand of list(L) write(F,V) marker_in(F,V) marker_out(F,V) busy(TIME) hang, or opaque(BYTES) or u32(N, ..) alone";
    "open_keyed_mutex", "L = open_keyed_mutex M [buffer=N] [data=\"TEXT\"], or L = open_keyed_mutex N ..", "D3DKMTOpenKeyedMutex2 by the global handle of M, or D3DKMTOpenKeyedMutexFromNtHandle";
    "update_address", "update_address D C fence=F value=V [OPERATION ..] [DO_NOT_WAIT]", "D3DKMTUpdateGpuVirtualAddress";
    "allocate", "A = allocate D bytes=N [described|private=BYTES|local [invisible]|non_local [invisible]] [shared]", "D3DKMTCreateAllocation2 of the process's own memory, or of the device's; with `shared`, its resource can have NT handles";
    "open_allocation", "B = open_allocation D N [private=BYTES]", "D3DKMTOpenResourceFromNtHandle: the allocation of a resource, whose memory stays its creator's";
    "resource", "R = resource D buffer|texture1d|texture2d|texture3d at=V [offset=N] [bytes=N] [width=N] [height=N] [depth=N] [mips=N] [slices=N] [planes=N] [texel=N] [layout=LAYOUT] [state=STATE] [upload|readback] [FLAG ..] [name=\"TEXT\"]", "D3DKMTEscape of the driver's CREATE_RESOURCE: creates a resource for commands, `offset` bytes after V";
    "destroy_resource", "destroy_resource D R", "D3DKMTEscape of the driver's DESTROY_RESOURCE";
    "list", "L = list [DIRECT|BUNDLE|COMPUTE|COPY|VIDEO_DECODE|VIDEO_PROCESS|VIDEO_ENCODE] [\"TEXT\"]", "creates a command list; lines that begin with its name record into it, and `submit` submits its current commands";
    "debug", "debug D off|errors|all", "D3DKMTEscape of the driver's SET_DEBUG: sets the level of the process's debug layer";
    "debug_messages", "M = debug_messages D", "D3DKMTEscape of the driver's READ_MESSAGES: reads the messages of the debug layer since the last read";
    "describe_fence", "describe_fence D F [SHARED] [SHARED_CROSS_ADAPTER] [NON_MONITORED] [ALLOW_COMMAND_LIST_BARRIERS] [ALLOW_QUEUE_AND_CPU_SYNC] [N]", "D3DKMTEscape of the driver's DESCRIBE_FENCE: declares the flags of a native fence, which only a runtime knows";
    "store", "store A words [N..N] = N", "the process writes words of 32 bits of its memory; no call";
    "submit_hw", "submit_hw Q id=N COMMAND ..", "D3DKMTSubmitCommandToHwQueue; the buffer is complete when the progress fence reaches N";
    "hw_signal", "hw_signal Q [Q ..] F=V [G=V ..] [FLAG ..]", "D3DKMTSubmitSignalSyncObjectsToHwQueue";
    "hw_wait", "hw_wait Q F>=V [G>=V ..]", "D3DKMTSubmitWaitForSyncObjectsToHwQueue";
    "ring", "ring Q id=N COMMAND ..", "writes a command buffer into the ring and rings the doorbell; no call";
    "priority", "priority C [N] [in_process]", "D3DKMTSetContextSchedulingPriority, or without N D3DKMTGetContextSchedulingPriority";
    "priority_class", "priority_class [CLASS]", "D3DKMTSetProcessSchedulingPriorityClass, or without a class D3DKMTGetProcessSchedulingPriorityClass";
    "escape", "X = escape A [device=D] [context=C] [kind=KIND] [FLAG ..] [DATA ..]", "D3DKMTEscape: DRIVERPRIVATE unless it says another kind; data of u32(N, ..) u64(N) zeros(BYTES) \"TEXT\" cpu_event_usage(S, USAGE, ..) kmd_cpu_event(X)";
    "event", "E = event", "creates an event of the program (an eventfd)";
    "read", "r = read F", "loads a fence value once, in a race";
};

/// What `fault` does.
pub const FAULTS: &[Word] = words! {
    "kill", "fault kill PROCESS", "SIGKILL: the process is killed at once";
    "freeze", "fault freeze PROCESS", "SIGSTOP: the process takes no step and receives no wake until `thaw`";
    "thaw", "fault thaw PROCESS", "SIGCONT";
    "cut", "fault cut PROCESS", "the process's stream to the host breaks: every call answers DEVICE_REMOVED";
    "hold", "fault hold PROCESS", "the process's stream is held in both directions until `release`";
    "release", "fault release PROCESS", "the held messages are delivered, in order";
    "delay", "fault delay PROCESS DURATION", "later messages of the process's stream take this long in each direction";
    "reorder", "fault reorder", "from now on streams are served in reverse order; the order within each stays";
    "crash", "fault crash VM", "the VM is killed with all its processes";
    "pause", "fault pause VM", "the VM is paused: none of its processes takes a step or receives a wake, and its timeouts do not run";
    "resume", "fault resume VM", "the paused VM runs again";
    "lose_interrupt", "fault lose_interrupt ENGINE", "the engine's next interrupt is lost";
    "hang", "fault hang ENGINE", "the engine's current or next submission never completes";
    "stop_adapter", "fault stop_adapter N", "the adapter stops, as by a removal";
    "start_adapter", "fault start_adapter N", "the stopped adapter starts again, as by an arrival; what was there before stays dead";
    "remove_adapter", "fault remove_adapter N VM", "the adapter is removed from this VM alone, while the VM runs: a surprise removal";
    "add_adapter", "fault add_adapter N VM", "the adapter is added to this VM while the VM runs: an arrival";
    "update_driver", "fault update_driver N A.B.C.D", "the adapter's driver is updated to this version: the adapter is removed and arrives in all VMs that have it";
    "page_fault", "fault page_fault ENGINE at=N [FLAG ..]", "the engine's current or next submission faults at this GPU address";
    "reset_fails", "fault reset_fails ENGINE", "the engine's next reset fails";
    "power", "fault power N on|off", "the adapter enters power state D0 (on) or D3 (off)";
    "object_bad", "fault object_bad N usage=K", "the driver detects a bad object of adapter N and signals the events of this usage";
    "f1", "fault f1 ENGINE", "the engine leaves F0 for F1: its doorbells are disconnected";
    "clock", "fault clock DURATION", "sets the system's clock to this time after the start";
    "fill", "fault fill CONTEXT", "the context's process submits until a queue is full";
    "restart", "fault restart daemon", "the daemon stops and a new one starts: the processes see a `cut`";
};

/// What `expect` asks.
pub const EXPECTATIONS: &[Word] = words! {
    "=", "expect F = V", "the fence value that its process reads from memory, a register, or the number that a call returned";
    "blocked", "expect W blocked", "the call has not returned";
    "returned", "expect W returned STATUS", "the call has returned this status; its thread may take steps again";
    "set", "expect E set [N]", "the event was set, N times, since it was last checked";
    "clear", "expect E clear", "the event was not set since it was last checked";
    "data", "expect A data DATA ..", "the private data that the call returned, of a keyed mutex or an escape; pieces as in `escape`, any(BYTES), and some(BYTES) that are not all zero";
    "status", "expect B status STATUS", "the value of the doorbell's status memory";
    "state", "expect D state STATE", "D3DKMT_DEVICEEXECUTION_STATE of the device";
    "engine", "expect engine ENGINE idle|running|hung", "the state of the engine";
    "report", "expect report \"TEXT\"", "a note with this text exists since reports were last checked";
    "no report", "expect no report", "no note exists since reports were last checked";
    "words", "expect A words [N..N] = N", "words of 32 bits of an allocation's memory, as its process reads them";
    "message", "expect M message R-NNN [list=N] [command=N] [barrier=N] [resource=R] [\"TEXT\"]", "a message of the debug layer, as read by `debug_messages`";
    "no message", "expect M no message", "the debug layer has no messages";
    "race", "expect race \"TEXT\" [\"TEXT\" ..]", "a race report with all these texts exists since races were last checked";
    "no race", "expect no race", "no race was reported since races were last checked";
    "messages", "expect messages PROCESS = N", "frames that the process sent since the last check";
    "wakes", "expect wakes PROCESS = N", "wakes for the process since the last check";
    "waits", "expect waits = N", "CPU waits that are pending in the kernel";
    "why", "expect why PROCESS VERDICT [F>=V]", "the verdict on a wait of the process, and the fence and value at its root";
    "nothing left", "expect nothing left [of PROCESS]", "the kernel has no object of the process, or of any process";
};
