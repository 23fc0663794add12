//! Draws resources, command lists and expectations on them by number.

use d3dkmt::isa::{
    ALL_SUBRESOURCES, Barrier, BarrierAccess, BarrierGroup, BarrierLayout, BarrierSync, BufferBarrier,
    FenceValue, HeapType, Kernel, LegacyBarrier, LegacyFlags, LegacyState, ListFlags, Packet, QueueType,
    RangedBarrier, RangedFlags, ResourceDesc, ResourceFlags, ResourceKind, ResourceName, SubresourceRange,
    TextureBarrier, TextureFlags, Use, UseFlags, WHOLE, WorkKind,
};
use d3dkmt::list_escape::FenceFlags;
use scenario::program::*;

use crate::programs::Drawing;

impl Drawing {
    pub fn of_lists(&mut self, thread: Thread) -> Operation {
        let device = self.handle();
        let resource = self.binding(|named| named.kind == Kind::Resource);
        match (self.below(7), resource) {
            (0, Some(resource)) => Operation::DestroyResource { device, resource },
            (1, _) => Operation::DescribeFence {
                device,
                fence: self.handle(),
                flags: FenceFlags::from_bits_retain(self.value32()),
            },
            (2, _) => Operation::SetDebug { device, level: self.below(3) as u32 },
            (3, _) => Operation::ReadMessages { device },
            (4, _) => match self.own(Kind::Allocation, thread) {
                Some(allocation) => {
                    let (first, count) = self.word_range();
                    Operation::Store { allocation, first, count, word: self.value32() }
                }
                None => Operation::ReadMessages { device },
            },
            (5, _) => {
                let queue = QueueType::ALL[self.below(6) as usize];
                let flags = match queue {
                    QueueType::Direct if self.random.one_in(2) => ListFlags::BUNDLE,
                    _ => ListFlags::empty(),
                };
                Operation::NewList { queue, flags, label: self.random.one_in(2).then(|| self.text()) }
            }
            _ => {
                let at = match self.binding(|named| named.kind == Kind::Address) {
                    Some(binding) => Address::Bound(binding),
                    None => Address::Number(self.value()),
                };
                Operation::CreateResource { device, at, desc: self.desc() }
            }
        }
    }

    pub fn word_range(&mut self) -> (u64, Option<u64>) {
        match self.random.one_in(2) {
            true => (0, None),
            false => (self.below(1 << 40), Some(1 + self.below(1 << 40))),
        }
    }

    fn desc(&mut self) -> ResourceDesc {
        let kind = ResourceKind::ALL[self.below(4) as usize];
        ResourceDesc {
            kind,
            heap: HeapType::ALL[self.below(3) as usize],
            flags: ResourceFlags::from_bits_truncate(self.value32()),
            initial_layout: self.layout(),
            bytes: 1 + self.below(1 << 40),
            width: self.value32(),
            height: self.value32(),
            depth: self.value32(),
            mips: self.value32(),
            array_size: self.value32(),
            planes: self.value32(),
            texel_bytes: self.value32(),
            initial_state: self.state(),
            name: ResourceName::new(&self.text()),
            ..ResourceDesc::buffer("", self.value(), 0)
        }
    }

    fn layout(&mut self) -> BarrierLayout {
        if self.random.one_in(3) {
            BarrierLayout(self.value32())
        } else {
            BarrierLayout(self.below(32) as u32)
        }
    }

    fn state(&mut self) -> LegacyState {
        LegacyState::from_bits_truncate(self.value32())
    }

    fn words(&mut self) -> Barrier {
        let (known, all) = (BarrierSync::all().bits(), BarrierAccess::all().bits());
        Barrier {
            sync_before: BarrierSync::from_bits_retain(self.bits(known)),
            sync_after: BarrierSync::from_bits_retain(self.bits(known)),
            access_before: BarrierAccess::from_bits_retain(self.bits(all)),
            access_after: BarrierAccess::from_bits_retain(self.bits(all)),
        }
    }

    /// Draws a line for a list, if there is one.
    pub fn record(&mut self) -> Option<Action> {
        let list = self.binding(|named| named.kind == Kind::List)?;
        let mut names = Vec::new();
        let packet = self.packet(&mut names);
        Some(Action::Record { list, command: ListCommand { packet, names } })
    }

    /// Returns the position of a name, as the parser assigns it.
    fn position_of(names: &mut Vec<HandleRef>, name: HandleRef) -> u32 {
        if name == HandleRef::Raw(0) {
            return 0;
        }
        let existing = names.iter().position(|existing| *existing == name);
        existing.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        }) as u32
            + 1
    }

    fn resource(&mut self, names: &mut Vec<HandleRef>) -> u32 {
        let name = match self.binding(|named| named.kind == Kind::Resource) {
            Some(binding) if !self.random.one_in(4) => HandleRef::Bound(binding),
            _ => HandleRef::Raw(self.value32()),
        };
        Self::position_of(names, name)
    }

    fn fence(&mut self, names: &mut Vec<HandleRef>) -> FenceValue {
        let name = self.handle();
        FenceValue { gpu_address: Self::position_of(names, name).into(), value: self.value() }
    }

    fn sub(&mut self) -> u32 {
        if self.random.one_in(2) { ALL_SUBRESOURCES } else { self.below(100) as u32 }
    }

    fn packet(&mut self, names: &mut Vec<HandleRef>) -> Packet {
        match self.below(10) {
            0 => Packet::Barrier { groups: self.groups(names, 1) },
            1 => {
                let (resource, barrier) = (self.resource(names), self.words());
                let flags = RangedFlags::from_bits_truncate(self.value32());
                let (offset, bytes) = (self.value(), self.value());
                let one = RangedBarrier { resource, barrier, flags, offset, bytes };
                Packet::Barrier { groups: vec![BarrierGroup::Ranged(vec![one])] }
            }
            2 => {
                let resource = self.resource(names);
                let flags = LegacyFlags::from_bits_truncate(self.value32());
                let (subresource, before, after) = (self.sub(), self.state(), self.state());
                let one = LegacyBarrier::Transition { flags, resource, subresource, before, after };
                Packet::LegacyBarrier { barriers: vec![one] }
            }
            3 => {
                let (before, after) = (self.resource(names), self.resource(names));
                let one = LegacyBarrier::Aliasing { flags: LegacyFlags::empty(), before, after };
                Packet::LegacyBarrier { barriers: vec![one] }
            }
            4 => {
                let (flags, resource) = (LegacyFlags::empty(), self.resource(names));
                Packet::LegacyBarrier { barriers: vec![LegacyBarrier::UnorderedAccess { flags, resource }] }
            }
            5 => Packet::SignalBarrier { fence: self.fence(names), groups: self.groups(names, 0) },
            6 => {
                let fences = (0..1 + self.below(3)).map(|_| self.fence(names)).collect();
                Packet::WaitBarrier { fences, groups: self.groups(names, 0) }
            }
            7 => {
                let (resource, access) = (self.resource(names), self.words().access_before);
                Packet::AssertResourceAccess { resource, subresource: self.sub(), access }
            }
            8 => {
                let (resource, layout) = (self.resource(names), self.layout());
                Packet::AssertTextureLayout { resource, subresource: self.sub(), layout }
            }
            _ => self.work(names),
        }
    }

    fn work(&mut self, names: &mut Vec<HandleRef>) -> Packet {
        let kind = WorkKind::ALL[self.below(20) as usize];
        let kernel = Kernel::ALL[self.below(6) as usize];
        let uses = (0..self.below(4)).map(|_| self.one_use(names)).collect();
        Packet::Work { kind, kernel, operand: self.value32(), duration_ns: self.value(), uses }
    }

    fn one_use(&mut self, names: &mut Vec<HandleRef>) -> Use {
        let access = BarrierAccess::from_bits_retain(1 << self.below(32));
        let resource = self.resource(names);
        let one = match self.below(4) {
            0 => Use::whole(resource, access),
            1 => Use::range(resource, access, self.below(1 << 40), self.below(1 << 40)),
            2 => Use::subresource(resource, access, self.below(100) as u32),
            _ => Use { count: 2 + self.below(9) as u32, ..Use::whole(resource, access) },
        };
        Use { flags: UseFlags::from_bits_truncate(self.value32()), ..one }
    }

    /// Draws groups of barriers; neighbours of one type form one group.
    fn groups(&mut self, names: &mut Vec<HandleRef>, at_least: u64) -> Vec<BarrierGroup> {
        let count = at_least + self.below(3);
        let mut groups: Vec<BarrierGroup> = Vec::new();
        for _ in 0..count {
            let one = self.group(names);
            match (groups.last_mut(), one) {
                (Some(BarrierGroup::Global(all)), BarrierGroup::Global(one)) => all.extend(one),
                (Some(BarrierGroup::Buffer(all)), BarrierGroup::Buffer(one)) => all.extend(one),
                (Some(BarrierGroup::Texture(all)), BarrierGroup::Texture(one)) => all.extend(one),
                (_, one) => groups.push(one),
            }
        }
        groups
    }

    fn group(&mut self, names: &mut Vec<HandleRef>) -> BarrierGroup {
        match self.below(3) {
            0 => BarrierGroup::Global(vec![self.words()]),
            1 => {
                let (resource, barrier) = (self.resource(names), self.words());
                let (offset, bytes) =
                    if self.random.one_in(2) { (0, WHOLE) } else { (self.value(), self.value()) };
                BarrierGroup::Buffer(vec![BufferBarrier { resource, barrier, offset, bytes }])
            }
            _ => {
                let (resource, barrier) = (self.resource(names), self.words());
                let subresources = match self.below(3) {
                    0 => SubresourceRange::ALL,
                    1 => SubresourceRange::one(self.below(100) as u32),
                    _ => SubresourceRange {
                        first_mip: self.below(100) as u32,
                        mips: 1 + self.below(100) as u32,
                        first_slice: self.below(100) as u32,
                        slices: self.below(100) as u32,
                        first_plane: self.below(100) as u32,
                        planes: self.below(100) as u32,
                    },
                };
                let (layout_before, layout_after) = (self.layout(), self.layout());
                let flags = TextureFlags::from_bits_truncate(self.value32());
                let one =
                    TextureBarrier { barrier, layout_before, layout_after, resource, flags, subresources };
                BarrierGroup::Texture(vec![one])
            }
        }
    }

    /// Draws an expectation on memory, the debug layer or races.
    pub fn expect_of_lists(&mut self) -> Option<Expectation> {
        let (word, text) = (self.value32(), self.text());
        let messages = self.binding(|named| named.kind == Kind::Messages);
        let resource = self.binding(|named| named.kind == Kind::Resource);
        Some(match self.below(4) {
            0 => {
                let (first, count) = self.word_range();
                let allocation = self.alive_binding(Kind::Allocation)?;
                Expectation::Words { allocation, first, count, word }
            }
            1 => Expectation::Message(WantedMessage {
                messages: messages?,
                rule: self.below(107) as u32,
                list: self.random.one_in(2).then(|| self.value32()),
                command: self.random.one_in(2).then(|| self.value32()),
                barrier: self.random.one_in(2).then(|| self.value32()),
                resource: resource.filter(|_| word % 2 == 0),
                text: (word % 3 == 0).then_some(text),
            }),
            2 => Expectation::NoMessage { messages: messages? },
            _ if word % 2 == 0 => Expectation::NoRace,
            _ => Expectation::Race { texts: (0..1 + self.below(3)).map(|_| self.text()).collect() },
        })
    }
}
