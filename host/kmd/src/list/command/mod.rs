//! One command: the ranges that it accesses, what orders it, and its effect on bytes.
//!
//! ```text
//!   Reading   its uses are looked up, sources are read      when it starts
//!   Passing   what goes past the caches, in pieces          meanwhile: see `command/pass.rs`
//!   Writing   results are written                           when it ends
//! ```
//! Of each use the first [`CACHED_BYTES_PER_USE_MAX`] bytes go through the cache of its type of access; the rest
//! bypasses the cache, from memory to memory. The cached part is all that a missing barrier can corrupt, and enough to
//! show it. The bypassed part takes time: a command lasts at least as long as the engine needs for those bytes. In each
//! stage, a command that finds no bandwidth left continues later.

use alloc::vec::Vec;

use d3dkmt::isa::{
    ALL_SUBRESOURCES, BarrierAccess, BarrierSync, Kernel, ResourceDesc, ScopeReading, Use, WHOLE, WorkKind,
    other_scopes, scope,
};
use d3dkmt::limits::{CACHED_BYTES_PER_USE_MAX, ORDERED_USES_PER_COMMAND_MAX, OWN_SOURCES_PER_COMMAND_MAX};
use dxgkrnl::ddi::PageFaultFlags;
use dxgkrnl::{ComputeOp, EngineType, Nanos};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::ListError;
use super::cache::{Caches, Range};
use super::memory::{DISCARDED, Mover};
use crate::page_table::{Access, PageFault};
use pass::{fold, words_to_fold};

mod pass;

/// One range that a command accesses.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Touch {
    pub access: BarrierAccess,
    pub range: Range,
    pub writes: bool,
}

/// Synchronization scopes of a command's access.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ScopeSet {
    /// Umbrella scopes are expanded.
    scopes: BarrierSync,
    /// The access uses an umbrella scope, as root calls do: only a barrier with the whole umbrella blocks it (BAR-094).
    umbrella: bool,
}

impl ScopeSet {
    fn of(scope: BarrierSync) -> Self {
        ScopeSet { scopes: scope.expanded(), umbrella: !BarrierSync::SCOPES.contains(scope) }
    }

    fn is_held_by(self, sync_after: BarrierSync) -> bool {
        if self.umbrella { sync_after.contains(self.scopes) } else { sync_after.intersects(self.scopes) }
    }
}

/// An access that a stage keeps in order; `stage` indexes [`BarrierAccess::IN_ORDER`].
#[derive(Serialize, Deserialize)]
struct Ordered {
    stage: usize,
    range: Range,
    writes: bool,
}

/// The ordered accesses of a command. If a stage has more than the limit, they are merged into one.
fn ordered(touches: &[Touch]) -> Vec<Ordered> {
    let mut all: Vec<Ordered> = Vec::new();
    for (stage, accesses) in BarrierAccess::IN_ORDER.iter().enumerate() {
        let own = || touches.iter().filter(|touch| accesses.contains(touch.access));
        let one = |touch: &Touch| Ordered { stage, range: touch.range, writes: touch.writes };
        if own().count() <= ORDERED_USES_PER_COMMAND_MAX {
            all.extend(own().map(one));
        } else {
            all.extend(own().map(one).reduce(|a, b| Ordered {
                stage,
                range: (a.range.0.min(b.range.0), a.range.1.max(b.range.1)),
                writes: a.writes || b.writes,
            }));
        }
    }
    all
}

/// Stage of a command's execution; the module draws them.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Stage {
    Reading,
    Passing,
    Writing,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Command {
    kind: WorkKind,
    kernel: Kernel,
    operand: u32,
    duration_ns: Nanos,
    touches: SmallVec<[Touch; 2]>,
    /// Index of the first touch that only reads.
    source: Option<usize>,
    /// Distinct scope sets of its touches, or those of its kind if it touches nothing.
    scope_sets: SmallVec<[ScopeSet; 2]>,
    /// Union of their scopes.
    scopes: BarrierSync,
    ordered: Vec<Ordered>,
    /// Why it cannot start, if it cannot.
    flaw: Option<ListError>,
    /// Staging buffers with the bytes that it read: one, or one for each destination that is its own source.
    read: Vec<u32>,
    stage: Stage,
    /// The current touch of this stage, the number of destinations before it, and how many of its bytes were passed.
    at: usize,
    destinations: usize,
    passed: u64,
    /// Earliest end of a command that has started.
    until: Nanos,
}

/// Whether an engine of this type supports such commands, as D3D12 lists for queues of this type do.
pub(super) fn is_legal(engine: EngineType, kind: WorkKind) -> bool {
    use WorkKind as K;
    let video = matches!(kind, K::VideoDecode | K::VideoProcess | K::VideoEncode);
    match engine {
        EngineType::ThreeD => !video,
        EngineType::Compute => matches!(
            kind,
            K::Dispatch
                | K::DispatchRays
                | K::Copy
                | K::ClearUnorderedAccess
                | K::ExecuteIndirect
                | K::BuildRtas
                | K::CopyRtas
                | K::EmitRtasPostbuildInfo
                | K::SetComputeRoot
                | K::Discard
        ),
        EngineType::Copy => kind == K::Copy,
        EngineType::VideoDecode => kind == K::VideoDecode,
        EngineType::VideoProcessing => kind == K::VideoProcess,
        EngineType::VideoEncode => kind == K::VideoEncode,
    }
}

/// Address range of a use. The error is the first address outside of the resource.
pub(super) fn range_of(desc: &ResourceDesc, item: &Use) -> Result<Range, u64> {
    let end = desc.gpu_address.saturating_add(desc.bytes);
    let (first, begin) = (item.first_subresource, |(offset, _)| desc.gpu_address + offset);
    let region = begin(desc.subresource(first).ok_or(end)?);
    let count = match item.count {
        ALL_SUBRESOURCES => desc.subresources() - first,
        count => count,
    };
    let Some(last) = count.checked_sub(1) else { return Ok((region, region)) };
    let last = desc.subresource(first.checked_add(last).ok_or(end)?).ok_or(end)?;
    let region_end = begin(last) + last.1;
    let from = region.checked_add(item.offset).filter(|from| *from <= region_end).ok_or(region_end)?;
    let to = match item.bytes {
        WHOLE => region_end,
        bytes => from.checked_add(bytes).filter(|to| *to <= region_end).ok_or(region_end)?,
    };
    Ok((from, to))
}

fn needs_source(kernel: Kernel) -> bool {
    match kernel {
        Kernel::None | Kernel::Fill => false,
        Kernel::Copy | Kernel::Add | Kernel::Xor | Kernel::Sum => true,
    }
}

fn length((begin, end): Range) -> u64 {
    end - begin
}

/// Splits the first `bytes` bytes of a range into the cached part and the part that bypasses the cache.
fn split((begin, _): Range, bytes: u64) -> (Range, Range) {
    let middle = begin + bytes.min(CACHED_BYTES_PER_USE_MAX);
    ((begin, middle), (middle, begin + bytes))
}

/// The operation of a command, without its uses.
pub(super) struct Draw {
    pub kind: WorkKind,
    pub kernel: Kernel,
    pub operand: u32,
    pub duration_ns: Nanos,
}

impl Command {
    /// Builds a command; `find` looks up resources. An invalid command is reported when it starts.
    pub fn new<'a>(
        Draw { kind, kernel, operand, duration_ns }: Draw,
        uses: &[Use],
        (engine, reading): (EngineType, ScopeReading),
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) -> Self {
        let mut flaw = (!is_legal(engine, kind)).then_some(ListError::Illegal);
        let mut touches = SmallVec::<[Touch; 2]>::with_capacity(uses.len());
        let mut scope_sets = SmallVec::<[ScopeSet; 2]>::new();
        let mut is_at = |scope: BarrierSync| {
            let scope_set = ScopeSet::of(scope);
            if !scope_sets.contains(&scope_set) {
                scope_sets.push(scope_set);
            }
        };
        for item in uses {
            let (scope, access) = (item.scope(kind), item.access);
            let Some(desc) = find(item.resource).filter(|_| !scope.is_empty()) else {
                flaw = flaw.or(Some(ListError::Illegal));
                continue;
            };
            match range_of(desc, item) {
                Ok(range) => {
                    touches.push(Touch { access, range, writes: item.writes() });
                    is_at(scope);
                    other_scopes(kind, access, reading).iter().for_each(&mut is_at);
                }
                Err(gpu_address) => {
                    let flags = if item.writes() { PageFaultFlags::WRITE } else { PageFaultFlags::empty() };
                    flaw = flaw.or(Some(ListError::PageFault(PageFault { gpu_address, flags })));
                }
            }
        }
        if touches.is_empty() {
            is_at(scope_of(kind));
        }
        let scopes = scope_sets.iter().fold(BarrierSync::NONE, |sum, scope_set| sum | scope_set.scopes);
        let ordered = ordered(&touches);
        let source = touches.iter().position(|touch| !touch.writes);
        if source.is_none() && needs_source(kernel) && touches.len() > OWN_SOURCES_PER_COMMAND_MAX {
            flaw = flaw.or(Some(ListError::Illegal));
        }
        Command {
            kind,
            kernel,
            operand,
            duration_ns,
            touches,
            source,
            scope_sets,
            scopes,
            ordered,
            flaw,
            read: Vec::new(),
            stage: Stage::Reading,
            at: 0,
            destinations: 0,
            passed: 0,
            until: 0,
        }
    }

    /// Bytes charged for its uses: of a touch, of its order, and of a staging buffer's number.
    pub fn use_bytes(&self) -> usize {
        const USE_BYTES: usize = 80;
        const { assert!(size_of::<Touch>() + size_of::<Ordered>() + size_of::<u32>() <= USE_BYTES) };
        self.touches.len() * USE_BYTES
    }

    /// Whether it waits for everything before it, as a present does.
    pub fn comes_last(&self) -> bool {
        self.kind == WorkKind::Present
    }

    pub fn scopes(&self) -> BarrierSync {
        self.scopes
    }

    /// Whether any barrier with one of its scopes in SyncAfter blocks it, because it uses no umbrella scope.
    pub fn meets_all_alike(&self) -> bool {
        self.scope_sets.iter().all(|scope_set| !scope_set.umbrella)
    }

    /// Whether a barrier with this SyncAfter blocks it: one use is enough.
    pub fn is_held_by(&self, sync_after: BarrierSync) -> bool {
        self.scope_sets.iter().any(|scope_set| scope_set.is_held_by(sync_after))
    }

    /// Whether a barrier with this SyncBefore waits for it: the barrier names all scopes of one of its uses.
    pub fn is_waited_for(&self, sync_before: BarrierSync) -> bool {
        self.scope_sets.iter().any(|scope_set| sync_before.contains(scope_set.scopes))
    }

    /// Whether [`Command::is_in_order_with`] can be true for it.
    pub fn is_ordered(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// Whether a stage keeps overlapping accesses of the two commands in list order without a barrier (BAR-077).
    pub fn is_in_order_with(&self, other: &Command) -> bool {
        let meet = |a: &Ordered, b: &Ordered| {
            a.stage == b.stage && (a.writes || b.writes) && a.range.0 < b.range.1 && b.range.0 < a.range.1
        };
        self.ordered.iter().any(|a| other.ordered.iter().any(|b| meet(a, b)))
    }

    /// Whether it touches bytes of this range.
    pub fn meets(&self, range: Range) -> bool {
        self.touches.iter().any(|touch| touch.range.0 < range.1 && range.0 < touch.range.1)
    }

    fn source(&self) -> Option<&Touch> {
        self.touches.get(self.source?)
    }

    /// Number of bytes written to a destination: whole words.
    fn written(&self, to: &Touch) -> u64 {
        let source = self.source().unwrap_or(to);
        match self.kernel {
            Kernel::None => 0,
            Kernel::Fill => length(to.range) & !3,
            Kernel::Copy | Kernel::Add | Kernel::Xor => length(to.range).min(length(source.range)) & !3,
            Kernel::Sum => length(to.range).min(4) & !3,
        }
    }

    /// Starts the command. Returns when it continues.
    pub fn start(
        &mut self,
        clock: Nanos,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<Nanos, ListError> {
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        // A time beyond the range saturates: such a command never ends.
        self.until = clock.saturating_add(self.duration_ns);
        mover.begin_command();
        Ok(self.advance(clock, caches, mover)?.unwrap_or(clock))
    }

    /// Advances as far as possible at this time. Returns when the command continues; `None` if it is complete.
    pub fn advance(
        &mut self,
        clock: Nanos,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<Option<Nanos>, PageFault> {
        while !mover.is_spent() {
            let touch = self.touches.get(self.at).copied();
            match (self.stage, touch) {
                (Stage::Reading, Some(touch)) => {
                    self.read_use(touch, caches, mover)?;
                    self.at += 1;
                }
                (Stage::Reading, None) => self.enter(Stage::Passing),
                (Stage::Passing, _) => return self.pass(clock, caches, mover).map(Some),
                (Stage::Writing, Some(touch)) => {
                    if touch.writes {
                        self.write(touch, caches, mover)?;
                        self.destinations += 1;
                    }
                    self.at += 1;
                }
                (Stage::Writing, None) => {
                    self.read.drain(..).for_each(|staging_buffer| mover.release(staging_buffer));
                    return Ok(None);
                }
            }
        }
        Ok(Some(mover.next()))
    }

    fn enter(&mut self, stage: Stage) {
        (self.stage, self.at, self.destinations, self.passed) = (stage, 0, 0, 0);
    }

    /// Checks the page table for the whole use, and reads its cached part.
    fn read_use(
        &mut self,
        touch: Touch,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<(), PageFault> {
        let own = self.source.is_none();
        mover.check(touch.range, if touch.writes { Access::Write } else { Access::Read })?;
        if touch.writes && !(own && needs_source(self.kernel)) || touch.access == BarrierAccess::COMMON {
            return Ok(());
        }
        let is_source = needs_source(self.kernel) && (own || self.read.is_empty());
        let to = is_source.then(|| {
            self.read.push(mover.new_staging_buffer());
            mover.staging_ref(self.read[self.read.len() - 1], 0)
        });
        let whole = !touch.writes || self.kernel == Kernel::Sum;
        let bytes = if whole { length(touch.range) } else { self.written(&touch) };
        let (cached, _) = split(touch.range, bytes);
        caches.read(touch.access, cached, to, mover)
    }

    /// Staging buffer with the source of the current destination.
    fn source_staging_buffer(&self) -> Option<u32> {
        let number = if self.source.is_some() { 0 } else { self.destinations };
        self.read.get(number).copied()
    }

    /// Writes the cached part of a destination.
    fn write(&mut self, to: Touch, caches: &mut Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let from = self.source_staging_buffer().map(|from| mover.staging_ref(from, 0));
        if self.kernel == Kernel::Sum && (self.source.is_none() || self.destinations == 0) {
            let source = self.source().unwrap_or(&to);
            from.into_iter().for_each(|sum| fold(sum, words_to_fold(source.range), mover));
        }
        let (cached, _) = split(to.range, self.written(&to));
        if length(cached) > 0 {
            let target = caches.write(to.access, cached, mover)?;
            match (self.kernel, from) {
                (Kernel::Fill, _) => mover.fill(target, length(cached), self.operand),
                (Kernel::Copy, Some(from)) => mover.copy(from, target, length(cached)),
                (Kernel::Add | Kernel::Sum, Some(from)) => {
                    mover.compute(ComputeOp::Add, from, target, length(cached), self.operand);
                }
                (Kernel::Xor, Some(from)) => {
                    mover.compute(ComputeOp::Xor, from, target, length(cached), self.operand);
                }
                (Kernel::None, _) | (Kernel::Copy | Kernel::Add | Kernel::Xor | Kernel::Sum, None) => {}
            }
        }
        if self.kind == WorkKind::Discard {
            discard(to.range, caches, mover)?;
        }
        Ok(())
    }
}

/// Discards a range: overwrites its cached part with garbage.
pub(super) fn discard(range: Range, caches: &mut Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    caches.drop_ranges(&[range]);
    let ((begin, end), _) = split(range, length(range) & !3);
    let staging_buffer = mover.new_staging_buffer();
    let garbage = mover.staging_ref(staging_buffer, 0);
    mover.fill(garbage, end - begin, DISCARDED);
    mover.store(garbage, begin, end - begin)?;
    mover.release(staging_buffer);
    Ok(())
}

/// All scopes of a kind of command, for a command that touches nothing.
fn scope_of(kind: WorkKind) -> BarrierSync {
    let predicated = kind == WorkKind::ExecuteIndirect;
    let accesses = BarrierAccess::all().iter();
    let scopes = accesses
        .filter(|access| predicated || *access != BarrierAccess::PREDICATION)
        .fold(BarrierSync::NONE, |sum, access| sum | scope(kind, access));
    if scopes.is_empty() { scope(kind, BarrierAccess::COMMON) } else { scopes }
}
