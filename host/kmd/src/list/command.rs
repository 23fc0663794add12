//! One command that works: what it touches, when it may, and what it does to bytes.
//!
//! It reads its sources when it starts and writes its results when it ends. Of each use the first
//! [`CACHED_BYTES_PER_USE_MAX`] bytes go through the cache of its type of access; what is behind them goes past it, from
//! memory to memory, when the command ends. That is all that a barrier that is missing can spoil, and enough to see it. So much
//! takes time: a command lasts at least as long as its engine needs for those bytes ([`PASSED_BYTES_PER_NS`]).

use alloc::vec::Vec;

use d3dkmt::isa::{
    ALL_SUBRESOURCES, BarrierAccess, BarrierSync, Kernel, ResourceDesc, Use, WHOLE, WorkKind, scope,
};
use d3dkmt::limits::{CACHED_BYTES_PER_USE_MAX, ORDERED_USES_PER_COMMAND_MAX};
use dxgkrnl::ddi::PageFaultFlags;
use dxgkrnl::{EngineType, MoveKernel, Nanos, Place};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::Trouble;
use super::cache::{Caches, DEPTH_STENCIL, Range};
use super::memory::{CHUNK_BYTES, DISCARDED, Mover, Parts, ahead};
use crate::page_table::{Access, PageFault};

/// What an engine moves in a nanosecond past its caches.
pub(super) const PASSED_BYTES_PER_NS: u64 = 16;

/// Accesses that a fixed stage of the pipeline makes in the order of draws. Documents except render targets alone from
/// "sequential writes need a barrier"; of depth and stream output see `barriers::policy::FixedFunctionWrites`, whose
/// default this is.
const IN_ORDER: [BarrierAccess; 3] =
    [BarrierAccess::RENDER_TARGET, DEPTH_STENCIL, BarrierAccess::STREAM_OUTPUT];

/// One range that it touches.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Touch {
    pub access: BarrierAccess,
    pub range: Range,
    pub writes: bool,
}

/// Where accesses of a command are among the scopes of synchronization.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ScopeSet {
    /// Without umbrellas.
    scopes: BarrierSync,
    /// Named by its umbrella, as those of the root calls are: a barrier holds it up only with all of it (BAR-094).
    whole: bool,
}

impl ScopeSet {
    fn of(scope: BarrierSync) -> Self {
        ScopeSet { scopes: scope.expanded(), whole: !BarrierSync::SCOPES.contains(scope) }
    }

    fn is_held_by(self, sync_after: BarrierSync) -> bool {
        if self.whole { sync_after.contains(self.scopes) } else { sync_after.intersects(self.scopes) }
    }
}

/// One that a fixed stage keeps in order: which one of [`IN_ORDER`].
#[derive(Serialize, Deserialize)]
struct Ordered {
    stage: usize,
    range: Range,
    writes: bool,
}

/// Those of a command; of one stage not more than there may be.
fn ordered(touches: &[Touch]) -> Vec<Ordered> {
    let mut all: Vec<Ordered> = Vec::new();
    for (stage, accesses) in IN_ORDER.iter().enumerate() {
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

#[derive(Serialize, Deserialize)]
pub(super) struct Command {
    kind: WorkKind,
    kernel: Kernel,
    operand: u32,
    duration_ns: Nanos,
    touches: SmallVec<[Touch; 2]>,
    /// Where it is: of each touch that is elsewhere, or of its kind if it touches nothing.
    places: SmallVec<[ScopeSet; 2]>,
    /// All scopes of them.
    scopes: BarrierSync,
    ordered: Vec<Ordered>,
    /// Why it cannot start.
    flaw: Option<Trouble>,
    /// Shadows with what it read: one, or one for each destination that is its own source.
    read: Vec<u32>,
}

/// Whether an engine of this type has such commands: D3D12's lists of the queues of this type have them.
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

/// Where a use is; or where the first byte is that is not the resource's.
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

fn length((begin, end): Range) -> u64 {
    end - begin
}

/// The part that goes through a cache, and the part that goes past it, of the first so many bytes.
fn split((begin, _): Range, bytes: u64) -> (Range, Range) {
    let middle = begin + bytes.min(CACHED_BYTES_PER_USE_MAX);
    ((begin, middle), (middle, begin + bytes))
}

/// What a command of a list does, without what it touches.
pub(super) struct Draw {
    pub kind: WorkKind,
    pub kernel: Kernel,
    pub operand: u32,
    pub duration_ns: Nanos,
}

impl Command {
    /// `find` knows the resources. What cannot be is found when the command would start.
    pub fn new<'a>(
        Draw { kind, kernel, operand, duration_ns }: Draw,
        uses: &[Use],
        engine: EngineType,
        find: impl Fn(u32) -> Option<&'a ResourceDesc>,
    ) -> Self {
        let mut flaw = (!is_legal(engine, kind)).then_some(Trouble::Illegal);
        let mut touches = SmallVec::with_capacity(uses.len());
        let mut places = SmallVec::<[ScopeSet; 2]>::new();
        let mut is_at = |scope: BarrierSync| {
            let place = ScopeSet::of(scope);
            if !places.contains(&place) {
                places.push(place);
            }
        };
        for item in uses {
            let (scope, access) = (item.scope(kind), item.access);
            let Some(desc) = find(item.resource).filter(|_| !scope.is_empty()) else {
                flaw = flaw.or(Some(Trouble::Illegal));
                continue;
            };
            match range_of(desc, item) {
                Ok(range) => {
                    touches.push(Touch { access, range, writes: item.writes() });
                    is_at(scope);
                }
                Err(gpu_address) => {
                    let flags = if item.writes() { PageFaultFlags::WRITE } else { PageFaultFlags::empty() };
                    flaw = flaw.or(Some(Trouble::PageFault(PageFault { gpu_address, flags })));
                }
            }
        }
        if touches.is_empty() {
            is_at(scope_of(kind));
        }
        let scopes = places.iter().fold(BarrierSync::NONE, |sum, place| sum | place.scopes);
        let ordered = ordered(&touches);
        let read = Vec::new();
        Command { kind, kernel, operand, duration_ns, touches, places, scopes, ordered, flaw, read }
    }

    /// A present comes after everything.
    pub fn comes_last(&self) -> bool {
        self.kind == WorkKind::Present
    }

    pub fn scopes(&self) -> BarrierSync {
        self.scopes
    }

    /// A barrier that has one of its scopes in SyncAfter holds it up: none is named by its umbrella.
    pub fn meets_all_alike(&self) -> bool {
        self.places.iter().all(|place| !place.whole)
    }

    /// Whether a barrier with this SyncAfter holds it up: one use is enough.
    pub fn is_held_by(&self, sync_after: BarrierSync) -> bool {
        self.places.iter().any(|place| place.is_held_by(sync_after))
    }

    /// Whether a barrier with this SyncBefore waits for it: a use all of whose scopes it names.
    pub fn is_waited_for(&self, sync_before: BarrierSync) -> bool {
        self.places.iter().any(|place| sync_before.contains(place.scopes))
    }

    /// There may be others that [`Command::is_in_order_with`] it.
    pub fn is_ordered(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// A fixed stage of the pipeline keeps the accesses of two draws to one place in the order of the list, without a
    /// barrier (BAR-077).
    pub fn is_in_order_with(&self, other: &Command) -> bool {
        let meet = |a: &Ordered, b: &Ordered| {
            a.stage == b.stage && (a.writes || b.writes) && a.range.0 < b.range.1 && b.range.0 < a.range.1
        };
        self.ordered.iter().any(|a| other.ordered.iter().any(|b| meet(a, b)))
    }

    fn source(&self) -> Option<&Touch> {
        self.touches.iter().find(|touch| !touch.writes)
    }

    fn destinations(&self) -> impl Iterator<Item = &Touch> {
        self.touches.iter().filter(|touch| touch.writes)
    }

    fn needs_source(&self) -> bool {
        match self.kernel {
            Kernel::None | Kernel::Fill => false,
            Kernel::Copy | Kernel::Add | Kernel::Xor | Kernel::Sum => true,
        }
    }

    /// Bytes of a destination that are written: whole words.
    fn written(&self, to: &Touch) -> u64 {
        let source = self.source().unwrap_or(to);
        match self.kernel {
            Kernel::None => 0,
            Kernel::Fill => length(to.range) & !3,
            Kernel::Copy | Kernel::Add | Kernel::Xor => length(to.range).min(length(source.range)) & !3,
            Kernel::Sum => length(to.range).min(4) & !3,
        }
    }

    /// Bytes that go past the caches.
    fn passed(&self) -> u64 {
        let beyond = |bytes: u64| bytes.saturating_sub(CACHED_BYTES_PER_USE_MAX);
        self.destinations().fold(0, |sum: u64, to| {
            let source = self.source().unwrap_or(to);
            let read = if self.kernel == Kernel::Sum { length(source.range) } else { 0 };
            sum.saturating_add(beyond(self.written(to)).max(beyond(read)))
        })
    }

    /// It starts: what it touches is there, and its sources are read. Until when it takes.
    pub fn start(
        &mut self,
        clock: Nanos,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<Nanos, Trouble> {
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        for Touch { range, writes, .. } in &self.touches {
            let access = if *writes { Access::Write } else { Access::Read };
            mover.parts(range.0, length(*range), access)?;
        }
        let own = self.source().is_none();
        for touch in &self.touches {
            if touch.writes && !(own && self.needs_source()) || touch.access == BarrierAccess::COMMON {
                continue;
            }
            let is_source = self.needs_source() && (own || self.read.is_empty());
            let to = is_source.then(|| {
                self.read.push(mover.new_shadow());
                mover.place(self.read[self.read.len() - 1], 0)
            });
            let whole = !touch.writes || self.kernel == Kernel::Sum;
            let (cached, _) =
                split(touch.range, if whole { length(touch.range) } else { self.written(touch) });
            caches.read(touch.access, cached, to, mover)?;
        }
        let passing = self.passed() / PASSED_BYTES_PER_NS;
        // The end of time is a time like any other: such a command just never ends.
        Ok(clock.saturating_add(self.duration_ns.max(passing)))
    }

    /// It ends: its results are written.
    pub fn finish(&mut self, caches: &mut Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        let mut read = core::mem::take(&mut self.read);
        if self.kernel == Kernel::Sum {
            self.add_up(&read, caches, mover)?;
        }
        for (number, to) in self.destinations().enumerate() {
            let from = read.get(if self.source().is_some() { 0 } else { number }).copied();
            self.write(to, from, caches, mover)?;
            if self.kind == WorkKind::Discard {
                discard(&[to.range], caches, mover)?;
            }
        }
        read.drain(..).for_each(|shadow| mover.release(shadow));
        Ok(())
    }

    /// The first bytes into the cache, the others past it.
    fn write(
        &self,
        to: &Touch,
        from: Option<u32>,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<(), PageFault> {
        let (cached, passing) = split(to.range, self.written(to));
        if length(cached) == 0 {
            return Ok(());
        }
        let target = caches.write(to.access, cached, mover)?;
        let compute = |kernel, from: Option<u32>, mover: &mut Mover<'_>| {
            if let Some(from) = from.map(|from| mover.place(from, 0)) {
                mover.compute(kernel, from, target, length(cached), self.operand);
            }
        };
        match self.kernel {
            Kernel::None => {}
            Kernel::Fill => mover.fill(target, length(cached), self.operand),
            Kernel::Copy => {
                if let Some(from) = from.map(|from| mover.place(from, 0)) {
                    mover.copy(from, target, length(cached));
                }
            }
            Kernel::Add | Kernel::Sum => compute(MoveKernel::Add, from, mover),
            Kernel::Xor => compute(MoveKernel::Xor, from, mover),
        }
        if length(passing) == 0 { Ok(()) } else { self.pass(to, passing, caches, mover) }
    }

    /// What is behind the part that is cached.
    fn pass(
        &self,
        to: &Touch,
        passing: Range,
        caches: &mut Caches,
        mover: &mut Mover<'_>,
    ) -> Result<(), PageFault> {
        let source = self.source().unwrap_or(to);
        let from = source.range.0 + (passing.0 - to.range.0);
        let read = (from, from + length(passing));
        if self.kernel == Kernel::Copy {
            let parts = caches.peek(source.access, read, mover)?;
            caches.pass(to.access, passing);
            return copy_parts(parts, passing, mover);
        }
        let shadow = mover.new_shadow();
        let buffer = mover.place(shadow, 0);
        let mut parts = match self.kernel {
            Kernel::Fill => {
                mover.fill(buffer, length(passing).min(CHUNK_BYTES), self.operand);
                None
            }
            _ => Some(caches.peek(source.access, read, mover)?),
        };
        caches.pass(to.access, passing);
        for begin in (passing.0..passing.1).step_by(CHUNK_BYTES as usize) {
            let bytes = CHUNK_BYTES.min(passing.1 - begin);
            if let Some(parts) = &mut parts {
                gather(parts, buffer, bytes, mover);
                let kernel = if self.kernel == Kernel::Xor { MoveKernel::Xor } else { MoveKernel::Add };
                mover.compute(kernel, buffer, buffer, bytes, self.operand);
            }
            mover.store(buffer, begin, bytes)?;
        }
        mover.release(shadow);
        Ok(())
    }

    /// The first word of each shadow becomes the sum of all words of its source.
    fn add_up(&self, read: &[u32], caches: &Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
        match self.source() {
            Some(source) => read.iter().try_for_each(|shadow| sum_of(source, *shadow, caches, mover)),
            None => {
                let mut own = self.destinations().zip(read);
                own.try_for_each(|(source, shadow)| sum_of(source, *shadow, caches, mover))
            }
        }
    }
}

fn sum_of(source: &Touch, shadow: u32, caches: &Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    let sum = mover.place(shadow, 0);
    let (cached, passing) = split(source.range, length(source.range) & !3);
    if length(cached) == 0 {
        mover.fill(sum, 4, 0);
        return Ok(());
    }
    fold(sum, length(cached) / 4, mover);
    let mut parts = caches.peek(source.access, passing, mover)?;
    let buffer = ahead(sum, 4);
    for begin in (passing.0..passing.1).step_by(CHUNK_BYTES as usize) {
        let bytes = CHUNK_BYTES.min(passing.1 - begin);
        gather(&mut parts, buffer, bytes, mover);
        fold(buffer, bytes / 4, mover);
        mover.compute(MoveKernel::Accumulate, buffer, sum, 4, 0);
    }
    Ok(())
}

/// The first of so many words becomes the sum of all: the upper half onto the lower, again and again.
fn fold(words: Place, mut count: u64, mover: &mut Mover<'_>) {
    while count > 1 {
        let kept = count.div_ceil(2);
        let upper = ahead(words, kept * 4);
        mover.compute(MoveKernel::Accumulate, upper, words, (count - kept) * 4, 0);
        count = kept;
    }
}

/// The first so many bytes of these parts, which they lose.
fn gather(parts: &mut Parts, mut to: Place, mut bytes: u64, mover: &mut Mover<'_>) {
    let mut used = 0;
    for (from, length) in parts.iter_mut() {
        let taken = bytes.min(*length);
        match from {
            Some(from) => {
                mover.copy(*from, to, taken);
                *from = ahead(*from, taken);
            }
            None => mover.zero(to, taken),
        }
        (to, bytes, *length) = (ahead(to, taken), bytes - taken, *length - taken);
        used += usize::from(*length == 0);
        if bytes == 0 {
            break;
        }
    }
    parts.drain(..used);
}

/// From wherever it is to these addresses, without a detour.
fn copy_parts(from: Parts, to: Range, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    let mut targets = mover.parts(to.0, length(to), Access::Write)?.into_iter();
    let mut target = targets.next();
    for (mut source, mut left) in from {
        while left > 0 {
            let Some((place, room)) = target else { return Ok(()) };
            let bytes = left.min(room);
            match (source, place) {
                (Some(from), Some(to)) => mover.copy(from, to, bytes),
                (None, Some(to)) => mover.zero(to, bytes),
                (Some(_) | None, None) => {}
            }
            source = source.map(|source| ahead(source, bytes));
            left -= bytes;
            target = match room - bytes {
                0 => targets.next(),
                rest => Some((place.map(|place| ahead(place, bytes)), rest)),
            };
        }
    }
    Ok(())
}

/// What is there is gone: of each range as much as goes through a cache is garbage now.
pub(super) fn discard(ranges: &[Range], caches: &mut Caches, mover: &mut Mover<'_>) -> Result<(), PageFault> {
    caches.drop_ranges(ranges);
    for range in ranges {
        let ((begin, end), _) = split(*range, length(*range) & !3);
        let shadow = mover.new_shadow();
        let garbage = mover.place(shadow, 0);
        mover.fill(garbage, end - begin, DISCARDED);
        mover.store(garbage, begin, end - begin)?;
        mover.release(shadow);
    }
    Ok(())
}

/// Every scope of a kind of command: where one that touches nothing is.
fn scope_of(kind: WorkKind) -> BarrierSync {
    let predicated = kind == WorkKind::ExecuteIndirect;
    let accesses = BarrierAccess::all().iter();
    let scopes = accesses
        .filter(|access| predicated || *access != BarrierAccess::PREDICATION)
        .fold(BarrierSync::NONE, |sum, access| sum | scope(kind, access));
    if scopes.is_empty() { scope(kind, BarrierAccess::COMMON) } else { scopes }
}
