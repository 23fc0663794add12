//! The rules, by the numbers that messages carry.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a rule violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Severity {
    /// The rule permits something: it is never reported.
    Fine,
    Warning,
    /// Each barrier is valid by itself, but two commands race.
    Hazard,
    Error,
    /// An error that also removes the command list.
    Removed,
}

macro_rules! rules {
    ($($name:ident = $number:expr, $severity:ident, $id:expr, $text:expr;)*) => {
        /// Rules `R-001` to `R-106` concern barriers; `R-107` (FEN-131) and `R-108` (FEN-132) concern fences. If one
        /// rule is a special case of another, the special one is reported. The exceptions are R-024 (reported as R-022)
        /// and R-080 (as R-041), which only name an example.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Rule {
            /// No barrier rule: an invalid command, such as a use of a resource that does not exist.
            Command = 0,
            $(#[doc = $text] $name = $number,)*
        }

        impl Rule {
            pub const ALL: &[Rule] = &[Rule::Command, $(Rule::$name,)*];

            pub fn severity(self) -> Severity {
                match self {
                    Rule::Command => Severity::Error,
                    $(Rule::$name => Severity::$severity,)*
                }
            }

            /// `D3D12_MESSAGE_ID`, where one is published for it.
            pub fn message_id(self) -> Option<u32> {
                let id = match self {
                    Rule::Command => 0,
                    $(Rule::$name => $id,)*
                };
                Some(id).filter(|id| *id != 0)
            }

            /// The condition that the rule describes.
            pub fn condition(self) -> &'static str {
                match self {
                    Rule::Command => "a command that cannot be",
                    $(Rule::$name => $text,)*
                }
            }
        }
    };
}

rules! {
    R001 = 1, Error, 1343,
        "The device does not report EnhancedBarriersSupported and Barrier (or a Create with InitialLayout) is \
        called";
    R002 = 2, Error, 0, "A barrier in a bundle";
    R003 = 3, Warning, 954, "Number of groups is 0, or NumBarriers of a group is 0";
    R004 = 4, Error, 1335, "Barrier type unknown (not 0..2 API, 0..3 DDI)";
    R005 = 5, Error, 0, "Texture/buffer barrier with NULL resource";
    R006 = 6, Error, 1335, "Texture barrier on a buffer, or buffer barrier on a texture";
    R007 = 7, Error, 1336, "Texture subresource range outside the texture";
    R008 = 8, Fine, 0, "NumMipLevels=0 with index 0xFFFFFFFF";
    R009 = 9, Fine, 0, "NumMipLevels=0 and garbage in array/plane fields";
    R010 = 10, Error, 1340, "Buffer Offset != 0, or Size neither UINT64_MAX nor the buffer size";
    R011 = 11, Error, 1333, "SyncBefore or SyncAfter contains undefined bits";
    R012 = 12, Error, 1417, "Access contains undefined bits";
    R013 = 13, Removed, 1341, "Layout is an unknown or LEGACY_* value";
    R014 = 14, Error, 1333,
        "NONE combined with other sync bits: impossible by value (0); SPLIT combined with other bits";
    R015 = 15, Error, 1331, "SyncBefore NONE and AccessBefore != NO_ACCESS (non-fence barrier)";
    R016 = 16, Error, 1331, "SyncAfter NONE and AccessAfter != NO_ACCESS";
    R017 = 17, Fine, 0, "SyncBefore NONE, AccessBefore NO_ACCESS, AccessAfter anything";
    R018 = 18, Fine, 0, "NO_ACCESS with a non-NONE sync (aliasing)";
    R019 = 19, Error, 1332, "NO_ACCESS combined with another access bit";
    R020 = 20, Fine, 0, "COMMON access (0) with any valid sync";
    R021 = 21, Warning, 0, "AccessBefore COMMON";
    R022 = 22, Error, 1333, "An access bit has none of its sync bits on that side";
    R023 = 23, Fine, 0, "DRAW with VERTEX_BUFFER, INDEX_BUFFER, CONSTANT_BUFFER, RT, UAV, DSV, SRV, SO";
    R024 = 24, Error, 1333, "COPY_DEST with sync COMPUTE_SHADING only";
    R025 = 25, Fine, 0, "PREDICATION access with sync EXECUTE_INDIRECT";
    R026 = 26, Fine, 0, "UNORDERED_ACCESS with CLEAR_UNORDERED_ACCESS_VIEW";
    R027 = 27, Hazard, 0, "UAV clear then shader read with SyncBefore COMPUTE_SHADING only (clear scope missing)";
    R028 = 28, Warning, 0, "BUILD_RTAS or COPY_RTAS sync and that side lacks RTAS_WRITE";
    R029 = 29, Error, 0, "RTAS_READ/WRITE on a resource not created for acceleration structures";
    R030 = 30, Error, 1334, "Access incompatible with that side's layout";
    R031 = 31, Error, 1331, "Layout of only one side UNDEFINED with that side's access other than NO_ACCESS";
    R032 = 32, Fine, 0, "Both layouts UNDEFINED, any access";
    R033 = 33, Error, 1436, "DISCARD flag and LayoutBefore != UNDEFINED";
    R034 = 34, Fine, 0, "DISCARD with any LayoutAfter valid for resource and queue (not only RT/DSV)";
    R035 = 35, Error, 1436, "Unknown texture flags";
    R036 = 36, Error, 1341, "Layout not in the queue column";
    R037 = 37, Error, 0, "Compute queue transitions into/out of DIRECT_QUEUE_GENERIC_READ_COMPUTE_QUEUE_ACCESSIBLE";
    R038 = 38, Error, 0, "Copy queue: any layout change";
    R039 = 39, Error, 1431, "Copy queue: resource not COMMON";
    R040 = 40, Error, 537, "Access/sync bit not in the queue list";
    R041 = 41, Error, 1333,
        "Barrier SyncBefore does not contain the previous SyncAfter (same subresource, same \
        ExecuteCommandLists, expanded masks)";
    R042 = 42, Fine, 0, "The previous SyncAfter was SPLIT and this is its end";
    R043 = 43, Error, 0,
        "Barrier after a SyncAfter=NONE barrier on that subresource in the same ExecuteCommandLists";
    R044 = 44, Error, 0, "Access after a SyncAfter=NONE barrier in the same ExecuteCommandLists";
    R045 = 45, Error, 0,
        "Barrier with SyncBefore=NONE when the subresource was already used/barriered in the same \
        ExecuteCommandLists";
    R046 = 46, Fine, 0, "SyncBefore=NONE in the next ExecuteCommandLists";
    R047 = 47, Error, 1334,
        "LayoutBefore differs from known layout (record time) or from the actual one at ExecuteCommandLists \
        time";
    R048 = 48, Error, 1332, "AccessBefore differs from known access";
    R049 = 49, Fine, 0,
        "First reference in a list: layout assumed, no record-time error; checked at ExecuteCommandLists";
    R050 = 50, Error, 0, "Global barrier where the wanted access change needs a layout change";
    R051 = 51, Error, 0, "Global barrier with SPLIT";
    R052 = 52, Error, 534, "End-split without begin, same ExecuteCommandLists, texture";
    R053 = 53, Error, 0, "Begin-split followed by a different barrier on that subresource";
    R054 = 54, Error, 0, "End-split with different access/layout than begin, same ExecuteCommandLists";
    R055 = 55, Fine, 0,
        "Begin in ExecuteCommandLists n, end in ExecuteCommandLists n+1, texture: layout equal, access \
        different";
    R056 = 56, Warning, 1329,
        "Begin/end across ExecuteCommandListss for buffer, simultaneous texture, or COMMON layout";
    R057 = 57, Error, 0, "Use of the subresource between begin and end";
    R058 = 58, Error, 0, "Read outside barrier-free list in COMMON layout without barrier (e.g. RT)";
    R059 = 59, Error, 0, "Two different write types without barrier in one ExecuteCommandLists";
    R060 = 60, Hazard, 0, "Two UAV writes without barrier";
    R061 = 61, Fine, 0, "Read and write of one buffer in one queue, disjoint regions, no barrier";
    R062 = 62, Hazard, 0, "Two writers, disjoint regions, no barrier";
    R063 = 63, Fine, 0, "Copy inside one subresource, COMMON layout, disjoint boxes";
    R064 = 64, Error, 998, "Copy inside one subresource, intersecting boxes";
    R065 = 65, Error, 0, "Copy between different layouts (COPY_SOURCE layout used as dest)";
    R066 = 66, Error, 741, "Upload-heap buffer used as UAV / COPY_DEST";
    R067 = 67, Error, 0, "Readback-heap buffer used as COPY_SOURCE";
    R068 = 68, Error, 1342, "Buffer created with InitialLayout != UNDEFINED";
    R069 = 69, Error, 0, "Present when back buffer layout is not COMMON";
    R070 = 70, Error, 1351, "Enhanced barrier on resource in non-COMMON legacy state";
    R071 = 71, Error, 1350, "Legacy barrier on texture not in COMMON layout";
    R072 = 72, Warning, 1356, "ExecuteCommandLists with nothing but barriers, other than layout latching";
    R073 = 73, Error, 0,
        "Access on a resource deactivated by AccessAfter=NO_ACCESS before re-activation in the same \
        ExecuteCommandLists";
    R074 = 74, Error, 0, "AssertResourceAccess not allowed by layout/creation flags";
    R075 = 75, Error, 0, "AssertTextureLayout differs";
    R076 = 76, Error, 0, "Asserted resource destroyed/evicted before the assert ran on the GPU timeline";
    R077 = 77, Error, 0,
        "DATA_STATIC_WHILE_SET_AT_EXECUTE: barrier SyncAfter not DRAW / COMPUTE_SHADING, or placed after \
        Set*Root";
    R078 = 78, Error, 0,
        "ACCESS_GLOBAL in a non-fence barrier, in SignalBarrier.AccessBefore or in WaitBarrier.AccessAfter";
    R079 = 79, Fine, 0,
        "SyncAfter=DRAW then SyncBefore=INDEX_INPUT+VERTEX+PIXEL+DEPTH_STENCIL+RENDER_TARGET on the same \
        subresource";
    R080 = 80, Error, 1333, "SyncAfter=ALL_SHADING then SyncBefore=PIXEL_SHADING";
    R081 = 81, Fine, 0, "SyncAfter=PIXEL_SHADING then SyncBefore=ALL";
    R082 = 82, Fine, 0, "Two adjacent barriers on one subresource, no command between: A/X then X/B";
    R083 = 83, Error, 0, "SPLIT on both sides of one barrier";
    R084 = 84, Error, 0, "Simultaneous-access texture moved to a layout other than COMMON";
    R085 = 85, Error, 0, "Graphics-only sync (DRAW, PIXEL_SHADING, ...) recorded on a compute list";
    R086 = 86, Error, 1341,
        "DIRECT_QUEUE_* layout named in a compute list, or COMPUTE_QUEUE_* in a direct list (either side)";
    R087 = 87, Error, 0, "Video list with any non-video access except COMMON/NO_ACCESS";
    R088 = 88, Fine, 0,
        "Texture left in layout L by ExecuteCommandLists n, first barrier of ExecuteCommandLists n+1 says \
        LayoutBefore=L";
    R089 = 89, Error, 1334,
        "Texture left in layout L, first barrier of the next ExecuteCommandLists says M != L (M != UNDEFINED)";
    R090 = 90, Fine, 0, "Buffer written in ExecuteCommandLists n, read in ExecuteCommandLists n+1 with no barrier";
    R091 = 91, Hazard, 0,
        "Buffer written then read in one ExecuteCommandLists across two command lists, no barrier";
    R092 = 92, Error, 0,
        "RT in ExecuteCommandLists n, SRV in ExecuteCommandLists n+1 without barrier (layout stays \
        RENDER_TARGET)";
    R093 = 93, Error, 0, "GENERIC_READ layout used for a write";
    R094 = 94, Error, 0, "Present from DIRECT_QUEUE_COMMON";
    R095 = 95, Error, 0, "Enhanced path re-uses legacy promotion (COMMON texture used as RT without barrier)";
    R096 = 96, Error, 0, "SignalBarrier/WaitBarrier when tier is NOT_SUPPORTED";
    R097 = 97, Error, 0, "WaitBarrier at tier 1 on a fence with ALLOW_QUEUE_AND_CPU_SYNC";
    R098 = 98, Error, 1007, "Create fence: ALLOW_QUEUE_AND_CPU_SYNC without ALLOW_COMMAND_LIST_BARRIERS";
    R099 = 99, Error, 1007, "Create fence: SHARED* + ALLOW_COMMAND_LIST_BARRIERS without ALLOW_QUEUE_AND_CPU_SYNC";
    R100 = 100, Error, 1078, "Queue Wait/Signal or SetEventOnCompletion on a command-list-scoped fence";
    R101 = 101, Fine, 0, "GetCompletedValue on a command-list-scoped fence";
    R102 = 102, Error, 0,
        "WaitBarrier on a command-list-scoped fence value not yet satisfied by the latest preceding signal";
    R103 = 103, Fine, 0, "SignalBarrier SyncAfter=NONE with AccessAfter != NO_ACCESS";
    R104 = 104, Error, 0,
        "Two layout-changing SignalBarriers on a subresource with no WaitBarrier between (or two \
        WaitBarriers)";
    R105 = 105, Error, 0, "WaitBarrier LayoutBefore neither equal to the SignalBarrier LayoutAfter nor UNDEFINED";
    R106 = 106, Error, 0, "Return-trip dependency chain";
    R107 = 107, Error, 1007, "Create fence: bits that D3D12_FENCE_FLAGS does not have";
    R108 = 108, Warning, 1424, "Wait for the value 0 of a fence";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Command => f.write_str("command"),
            rule => write!(f, "R-{:03}", *rule as u8),
        }
    }
}
