//! Every word that can begin a statement or name what an actor does, with its form: what error messages
//! suggest and the reference page lists.

/// A word of the language.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    /// What it does; a verb's begins with the C name of its call.
    pub about: &'static str,
}

macro_rules! words {
    ($($name:literal, $form:literal, $about:literal;)+) => {
        &[$(Word { name: $name, form: $form, about: $about }),+]
    };
}

/// Words that begin a line.
pub const STATEMENTS: &[Word] = words! {
    "scenario", "scenario \"TITLE\"", "the first line of a scenario";
    "litmus", "litmus \"TITLE\"", "the first line of a file with a race";
    "covers", "covers ID ID ..", "the rules that the file is about";
    "tags", "tags WORD ..", "words to choose files by";
    "skip", "skip ARM \"REASON\"", "an arm that cannot run the file, and why";
    "config", "config adapters = N; config async_submission; config SWITCH = VALUE", "hardware and policy switches";
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

/// What an actor does.
pub const VERBS: &[Word] = words! {
    "adapters", "A = adapters [capacity=N]", "D3DKMTEnumAdapters2: binds the first adapter";
    "open_adapter", "A = open_adapter N", "D3DKMTOpenAdapterFromLuid of adapter number N";
    "close_adapter", "close_adapter A", "D3DKMTCloseAdapter";
    "query_adapter", "query_adapter A kind=N bytes=N", "D3DKMTQueryAdapterInfo";
    "device", "D = device [on N]", "D3DKMTOpenAdapterFromLuid of adapter N (0) and D3DKMTCreateDevice";
    "create_device", "D = create_device A", "D3DKMTCreateDevice";
    "destroy_device", "destroy_device D", "D3DKMTDestroyDevice";
    "device_state", "device_state D [type=N]", "D3DKMTGetDeviceState";
    "context", "C = context D ENGINE [FLAG ..]", "D3DKMTCreateContextVirtual on the node of this engine";
    "destroy_context", "destroy_context C", "D3DKMTDestroyContext";
    "fence", "F = fence D [initial=N] [FLAG ..] [affinity=N]", "D3DKMTCreateSynchronizationObject2 of a MONITORED_FENCE";
    "object", "S = object D TYPE [initial=N] [count=N] [max=N] [owned] [event=E] [FLAG ..] [legacy]", "D3DKMTCreateSynchronizationObject2, or with `legacy` D3DKMTCreateSynchronizationObject";
    "destroy", "destroy F", "D3DKMTDestroySynchronizationObject";
    "share", "N = share F", "D3DKMTShareObjects: binds the NT handle";
    "open", "G = open D N [FLAG ..]", "D3DKMTOpenSyncObjectFromNtHandle2";
    "close_share", "close_share N", "CloseHandle of an NT handle";
    "signal", "signal D F=V [G=V ..] [rewind] [FLAG ..]", "D3DKMTSignalSynchronizationObjectFromCpu";
    "wait", "wait D F>=V [G>=V ..] [any] [event=E]", "D3DKMTWaitForSynchronizationObjectFromCpu; without an event it returns when it is over";
    "gpu_signal", "gpu_signal C [C ..] F=V [G=V ..] [rewind] [FLAG ..], or gpu_signal C event=E", "D3DKMTSignalSynchronizationObjectFromGpu2: a packet in each context";
    "gpu_wait", "gpu_wait C F>=V [G>=V ..]", "D3DKMTWaitForSynchronizationObjectFromGpu: a packet in the context's queue";
    "submit", "submit C [C ..] COMMAND ..", "D3DKMTSubmitCommand of write(F,V) busy(TIME) hang, or opaque(BYTES)";
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
    "fill", "fault fill CONTEXT", "its process submits until a queue is full";
    "restart", "fault restart daemon", "the daemon ends and starts anew: to the processes it is a `cut`";
};

/// What `expect` asks.
pub const EXPECTATIONS: &[Word] = words! {
    "=", "expect F = V", "the fence value that its process reads from memory, or a register";
    "blocked", "expect W blocked", "the call has not returned";
    "returned", "expect W returned STATUS", "the call has returned this; its thread goes on";
    "set", "expect E set [N]", "the event was set since it was last asked for, N times";
    "clear", "expect E clear", "the event was not set since it was last asked for";
    "state", "expect D state STATE", "D3DKMT_DEVICEEXECUTION_STATE of the device";
    "engine", "expect engine ENGINE idle|running|hung", "what the engine does";
    "report", "expect report \"TEXT\"", "a note with this text since reports were last asked for";
    "no report", "expect no report", "no note since reports were last asked for";
    "messages", "expect messages PROCESS = N", "frames that the process sent since this was last asked";
    "wakes", "expect wakes PROCESS = N", "wakes for the process since this was last asked";
    "waits", "expect waits = N", "CPU waits that are pending in the kernel";
    "nothing left", "expect nothing left [of PROCESS]", "the kernel has nothing of the process, or of anybody";
};
