//! Reading a trace: all intact records, and a report of each loss.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use d3dkmt::text::printable;
use dxgkrnl::{Config, Effects, Input, Nanos, SEMANTIC_VERSION};
use prost::Message as _;
use proto::trace as wire;

use crate::block::{BlockHeader, DEFLATED, HEADER_BYTES, Kind, MAGIC};
use crate::file::{beside, io_error, open_regular};
use crate::scan::{Arranged, BlockPosition, ScanPart, Source, arrange, scan};
use crate::staging::{MissingOpenBlock, NoOpenBlock, OpenBlock, SideFile};
use crate::steps::{Item, Step, Steps};
use crate::stored::read_content;
use crate::times::Times;
use crate::{FORMAT_VERSION, Lost, TraceError, header, staging};

/// The header of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The program that wrote the trace, with its version.
    pub program: String,
    pub config: Config,
    /// Number of the first step that was recorded: 1, unless recording began later.
    pub first_step: u64,
}

/// One record after the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// An input and the kernel's effects; `None` if the kernel did not return.
    Step { sequence: u64, now: Nanos, input: Input, effects: Option<Effects> },
    /// The kernel's state before the step with this number as the recorder's owner saved it, its digest, and the host's
    /// own data.
    Snapshot { sequence: u64, now: Nanos, digest: u64, state: Vec<u8>, host: Vec<u8> },
    /// Timestamps, before or after the step that they belong to. Only with [`Reader::with_times`].
    Times(Times),
    /// A part of the trace is lost.
    Lost(Lost),
    /// A record of an unknown kind that a replay would need.
    Unknown { sequence: u64, kind: u8 },
    /// The end of a trace that was finished properly.
    End { sequence: u64, steps: u64, digest: u64 },
}

impl Record {
    /// Number of the step, or of the next step for other records.
    pub fn sequence(&self) -> u64 {
        match self {
            Record::Step { sequence, .. }
            | Record::Snapshot { sequence, .. }
            | Record::Unknown { sequence, .. }
            | Record::End { sequence, .. } => *sequence,
            Record::Lost(lost) => lost.from,
            Record::Times(times) => times.step,
        }
    }
}

impl fmt::Display for Record {
    /// One line for the input, one indented line for each effect.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Step { sequence, now, input, effects } => {
                write!(f, "#{sequence} {now} ns {input}")?;
                let Some(Effects { moves, stores, answers, events, sync_files, notes, driver_answers }) =
                    effects
                else {
                    return write!(f, "\n    (the kernel did not return)");
                };
                moves.iter().try_for_each(|one| write!(f, "\n    {one}"))?;
                stores.iter().try_for_each(|store| write!(f, "\n    {store}"))?;
                answers.iter().try_for_each(|answer| write!(f, "\n    {answer}"))?;
                events.iter().try_for_each(|event| write!(f, "\n    {event}"))?;
                sync_files.iter().try_for_each(|ready| write!(f, "\n    {ready}"))?;
                notes.iter().try_for_each(|note| write!(f, "\n    {note}"))?;
                driver_answers.iter().try_for_each(|answer| write!(f, "\n    {answer}"))
            }
            Record::Snapshot { sequence, digest, state, .. } => {
                let bytes = state.len();
                write!(f, "snapshot before #{sequence}: {bytes} bytes, state digest {digest:#018x}")
            }
            Record::Times(times) => write!(f, "{times:?}"),
            Record::Lost(lost) => write!(f, "{lost}"),
            Record::Unknown { sequence, kind } => {
                write!(f, "before #{sequence}: a record of kind {kind}, which this program does not know")
            }
            Record::End { sequence, steps, digest } => {
                write!(f, "#{sequence} end: {steps} steps, state digest {digest:#018x}")
            }
        }
    }
}

/// Result of [`Reader::next_into`].
#[expect(clippy::large_enum_variant, reason = "it is seldom anything but a step")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// A step, which was read into the caller's [`Step`].
    Step,
    Other(Record),
    /// The end of the file.
    End,
}

/// Description of a block, from its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    pub kind: Kind,
    pub number: u32,
    pub offset: u64,
    /// Its bytes, header included.
    pub bytes: u64,
    pub first_step: u64,
    pub steps: u32,
    pub first_ns: Nanos,
    pub last_ns: Nanos,
}

/// Reads the records of a trace in order. As an iterator it continues after each loss and ends at the end of the file,
/// or earlier at an I/O error. [`Reader::ended`] returns whether the trace was finished.
///
/// A trace whose recorder was killed or still runs continues in `FILE.gvt.open`, which is read with it. A trace that
/// continues another one may have its initial state in `FILE.gvt.state`, which is then its first record.
pub struct Reader {
    path: PathBuf,
    source: Box<dyn Source>,
    length: u64,
    /// The state before the first step, from `FILE.gvt.state`.
    state: Option<Record>,
    arranged: Arranged,
    /// Index of the part that is read next.
    at: usize,
    /// The open block, from `FILE.gvt.open`.
    open_block: Option<OpenBlock>,
    /// Index of the part that is the open block.
    open_block_at: Option<usize>,
    missing_open_block: Option<MissingOpenBlock>,
    /// The data block that is being read.
    steps: Option<(Steps, Vec<u8>, BlockPosition)>,
    /// Records to return before reading on.
    due: VecDeque<Record>,
    /// Bytes of the file that were read.
    position: u64,
    last_good: Option<u64>,
    /// Whether the last step had no effects.
    unfinished: bool,
    skipped: u64,
    ended: bool,
    failed: bool,
    returns_times: bool,
    header: Header,
}

impl Reader {
    /// Opens a trace and reads its header.
    pub fn open(path: &Path) -> Result<Reader, TraceError> {
        let file = open_regular(path).map_err(|source| match source.kind() {
            io::ErrorKind::Unsupported => {
                TraceError::NotATrace { path: path.to_owned(), why: source.to_string() }
            }
            _ => io_error("open", path, source),
        })?;
        Reader::read(Box::new(file), path, true)
    }

    /// Reads a trace from `source`; errors show `name`.
    pub fn new(source: impl io::Read + io::Seek + Send + 'static, name: &Path) -> Result<Reader, TraceError> {
        Reader::read(Box::new(source), name, false)
    }

    fn read(mut source: Box<dyn Source>, path: &Path, with_open_block: bool) -> Result<Reader, TraceError> {
        let io = |source| io_error("read", path, source);
        // Read the open block first: a block that is written after that is within the file's length, which is read
        // later.
        let mut head = [0; HEADER_BYTES];
        let head_bytes = source.read(&mut head).map_err(io)?;
        let open_block = with_open_block.then(|| staging::read(path));
        let length = source.seek(io::SeekFrom::End(0)).map_err(io)?;
        let scan = scan(&mut *source, length).map_err(io)?;
        if let Some(file) = scan.other_version {
            let (path, ours, program) =
                (path.to_owned(), FORMAT_VERSION, "not named in this version's header".into());
            return Err(TraceError::Version { path, what: "format", file, ours, program });
        }
        let is_trace = !scan.positions.is_empty() || looks_like_trace(&head[..head_bytes]);
        if !is_trace {
            let why = if length == 0 { "it is empty" } else { "it does not begin with GPVTRACE" };
            return Err(TraceError::NotATrace { path: path.to_owned(), why: why.into() });
        }
        let header = find_header(&mut *source, &scan.positions, path)?.ok_or_else(|| {
            let why = "block 0 (header) is damaged, and there is no copy of it".to_owned();
            let lost = Lost { from: 1, to: None, bytes: length, offset: 0, why };
            TraceError::Damaged { path: path.to_owned(), lost }
        })?;
        let arranged = arrange(&scan.positions, length, header.first_step);
        let mut reader = Reader {
            path: path.to_owned(),
            source,
            length,
            state: None,
            arranged,
            at: 0,
            open_block: None,
            open_block_at: None,
            missing_open_block: None,
            steps: None,
            due: VecDeque::new(),
            position: 0,
            last_good: None,
            unfinished: false,
            skipped: 0,
            ended: false,
            failed: false,
            returns_times: false,
            header,
        };
        let trace = scan.positions[0].header.trace;
        let has_data = scan.positions.iter().any(|position| position.header.kind == Kind::Data);
        let is_complete = scan.positions.iter().any(|position| position.header.kind == Kind::Complete);
        let can_miss_steps = !is_complete && !reader.arranged.ended;
        let missing = open_block.and_then(|found| reader.take_open_block(found, trace, has_data));
        reader.missing_open_block = missing.filter(|_| can_miss_steps).map(|why| MissingOpenBlock {
            path: staging::path_of(path),
            why,
            had_all_steps: !has_data,
        });
        if with_open_block && reader.header.first_step > 1 {
            reader.state = state_beside(path, &reader.header);
            reader.go_to(0);
        }
        Ok(reader)
    }

    /// Adds the steps of a trace's open block, or the loss of them. Returns why they are not known, if so.
    fn take_open_block(
        &mut self,
        found: Result<SideFile, NoOpenBlock>,
        trace: u64,
        has_data: bool,
    ) -> Option<NoOpenBlock> {
        match found {
            Err(why) => return Some(why),
            Ok(SideFile::Open(open_block)) if open_block.header.trace == trace => self.fold_in(open_block),
            Ok(SideFile::Unreadable { trace: of, number, why }) if of == trace => self.lose_open(number, why),
            Ok(SideFile::Empty { trace: of }) if of == trace || (of == 0 && !has_data) => {}
            Ok(SideFile::Open(_) | SideFile::Unreadable { .. } | SideFile::Empty { .. }) => {
                return Some(NoOpenBlock::OfAnotherTrace);
            }
        }
        None
    }

    /// Reports an open block that cannot be read as a loss.
    fn lose_open(&mut self, number: Option<u32>, why: &str) {
        let arranged = &mut self.arranged;
        let is_in_file = number.is_some_and(|number| number < arranged.next_number);
        let is_told = matches!(arranged.parts.last(), Some(ScanPart::Lost(Lost { to: None, .. })));
        if !(arranged.ended || is_in_file || is_told) {
            let (from, offset) = (arranged.next_step, self.length);
            let lost = Lost { from, to: None, bytes: 0, offset, why: why.to_owned() };
            arranged.parts.push(ScanPart::Lost(lost));
        }
    }

    /// Appends the open block after the file's blocks, unless the file has it by now.
    fn fold_in(&mut self, mut open_block: OpenBlock) {
        let (arranged, length) = (&mut self.arranged, self.length);
        if arranged.ended {
            return;
        }
        let has_steps = !open_block.content.is_empty();
        let BlockHeader { number, first_step, .. } = open_block.header;
        // Otherwise the file has the whole block: it was not open any more.
        let last_whole = arranged.parts.iter().rev().find_map(|part| match part {
            ScanPart::Block(position) => Some(position.header.number),
            ScanPart::Lost(_) => None,
        });
        let is_new = last_whole.is_none_or(|last| number > last);
        let tail = match arranged.parts.last_mut() {
            Some(ScanPart::Lost(lost)) if lost.offset + lost.bytes == length && lost.bytes > 0 => Some(lost),
            _ => None,
        };
        let half_written = tail.filter(|lost| has_steps && lost.from == first_step && lost.loses_steps());
        let offset = match half_written.map(|lost| lost.offset) {
            // The file has only the beginning of this block.
            Some(offset) => {
                arranged.parts.pop();
                (arranged.next_number, arranged.next_step) = (number, first_step);
                offset
            }
            None => length,
        };
        if let Some(ScanPart::Lost(lost @ Lost { to: None, .. })) = arranged.parts.last_mut() {
            // The open block shows where this loss ends.
            lost.to = Some(first_step.max(lost.from));
            if is_new {
                (arranged.next_number, arranged.next_step) = (number, first_step.max(lost.from));
            }
        }
        if has_steps && is_new && number >= arranged.next_number {
            (open_block.header.steps, open_block.header.last_ns) =
                crate::steps::count(&open_block.header, &open_block.content);
            let end = offset + HEADER_BYTES as u64 + open_block.content.len() as u64;
            let position = BlockPosition { offset, end, header: open_block.header, crc: 0 };
            arranged.missing_before(&position, None);
            self.open_block_at = Some(arranged.parts.len());
            arranged.parts.push(ScanPart::Block(position));
            arranged.next_step = position.header.next_step();
        }
        if open_block.dropped > 0 {
            let error = io::Error::from_raw_os_error(open_block.error);
            let (from, why) = (arranged.next_step, format!("recording stopped: {error}"));
            let to = Some(from.saturating_add(open_block.dropped));
            arranged.parts.push(ScanPart::Lost(Lost { from, to, bytes: 0, offset: length, why }));
        }
        self.open_block = Some(open_block);
    }

    /// Makes the reader return records of times as well.
    #[must_use]
    pub fn with_times(mut self) -> Reader {
        self.returns_times = true;
        self
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The error for a kernel configuration that this program does not support.
    pub(crate) fn cannot_build(&self, why: String) -> TraceError {
        TraceError::Config { path: self.path.clone(), why, program: self.header.program.clone() }
    }

    /// Whether the End record was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The open block of a trace without an end, if it is not known.
    pub fn missing_open_block(&self) -> Option<&MissingOpenBlock> {
        self.missing_open_block.as_ref()
    }

    /// Whether the trace has its end block.
    pub(crate) fn has_end(&self) -> bool {
        self.arranged.ended
    }

    /// The snapshot in `FILE.gvt.state`, if the trace begins with it: a reader of that file.
    pub(crate) fn open_state(&self) -> Result<Option<Reader>, TraceError> {
        if self.state.is_none() {
            return Ok(None);
        }
        let path = state_path(&self.path);
        let file = open_regular(&path).map_err(|source| io_error("open", &path, source))?;
        Reader::read(Box::new(file), &path, false).map(Some)
    }

    /// Bytes of the file that were read, and its length.
    pub fn progress(&self) -> (u64, u64) {
        (self.position, self.length)
    }

    /// Number of the last step that was read.
    pub fn last_good(&self) -> Option<u64> {
        self.last_good
    }

    /// Number of skipped records, of unknown kinds that may be ignored.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of blocks that are out of order in the file; they are read in order.
    pub fn out_of_place(&self) -> u32 {
        self.arranged.out_of_place
    }

    /// Every block with a valid header, in order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo> + '_ {
        let positions = self.arranged.parts.iter().filter_map(|part| match part {
            ScanPart::Block(position) => Some(position),
            ScanPart::Lost(_) => None,
        });
        positions.map(|position| {
            let BlockHeader { kind, number, first_step, steps, first_ns, last_ns, .. } = position.header;
            BlockInfo {
                kind,
                number,
                offset: position.offset,
                bytes: position.bytes(),
                first_step,
                steps,
                first_ns,
                last_ns,
            }
        })
    }

    /// Goes to a step, forwards or backwards. The next record is that step, or the record in its place.
    pub fn seek(&mut self, sequence: u64) -> Result<(), TraceError> {
        self.go_to_step(sequence);
        self.skip(|record| record_end(record) <= sequence)
    }

    /// As [`Reader::seek`], but the next record is the snapshot before that step, if there is one.
    pub fn seek_before(&mut self, sequence: u64) -> Result<(), TraceError> {
        self.go_to_step(sequence);
        let is_its_snapshot =
            |record: &Record| matches!(record, Record::Snapshot { sequence: at, .. } if *at == sequence);
        self.skip(|record| record_end(record) <= sequence && !is_its_snapshot(record))
    }

    /// Goes to the first part with this step.
    fn go_to_step(&mut self, sequence: u64) {
        let parts = &self.arranged.parts;
        let at = parts.partition_point(|part| part.first_step() <= sequence).saturating_sub(1);
        // Of several parts at one step the first counts: a loss or a snapshot.
        let first = parts.get(at).map_or(0, ScanPart::first_step);
        let at = parts.partition_point(|part| part.first_step() < first).min(at);
        self.go_to(at);
    }

    /// Goes to the first step at this time or after it.
    pub fn seek_time(&mut self, now: Nanos) -> Result<(), TraceError> {
        let before =
            |part: &ScanPart| matches!(part, ScanPart::Block(position) if position.header.last_ns < now);
        let at = self.arranged.parts.iter().rposition(before).map_or(0, |at| at + 1);
        self.go_to(at);
        self.skip(|record| !matches!(record, Record::Step { now: at, .. } if *at >= now))
    }

    /// Goes to the last intact snapshot at or before a step. Returns the number of the step after it. `None` without
    /// such a snapshot; the next record is then the trace's first.
    pub fn seek_snapshot(&mut self, sequence: u64) -> Result<Option<u64>, TraceError> {
        for at in (0..self.arranged.parts.len()).rev() {
            let ScanPart::Block(position) = self.arranged.parts[at] else { continue };
            if position.header.kind != Kind::Snapshot || position.header.first_step > sequence {
                continue;
            }
            let is_intact = match self.content(at, &position)? {
                Ok(content) => self.snapshot(at, &position, &content)?.is_ok(),
                Err(_) => false,
            };
            if is_intact {
                self.go_to(at);
                return Ok(Some(position.header.first_step));
            }
        }
        self.go_to(0);
        let of_state = self.state.as_ref().map(Record::sequence);
        Ok(of_state.filter(|first_step| *first_step <= sequence))
    }

    fn go_to(&mut self, part: usize) {
        self.at = part;
        self.steps = None;
        self.due.clear();
        if part == 0 {
            self.due.extend(self.state.clone());
        }
        self.ended = false;
        self.failed = false;
        self.unfinished = false;
        self.last_good = None;
    }

    /// Skips records while they are unwanted.
    fn skip(&mut self, is_skipped: impl Fn(&Record) -> bool) -> Result<(), TraceError> {
        while let Some(record) = self.next_record()? {
            if !is_skipped(&record) {
                self.due.push_front(record);
                break;
            }
        }
        Ok(())
    }

    /// A block's content, or its loss if it is damaged.
    fn content(
        &mut self,
        part: usize,
        position: &BlockPosition,
    ) -> Result<Result<Vec<u8>, Lost>, TraceError> {
        if self.open_block_at == Some(part) {
            return Ok(Ok(self
                .open_block
                .as_ref()
                .map(|open_block| open_block.content.clone())
                .unwrap_or_default()));
        }
        let content = read_content(&mut *self.source, position).map_err(|source| self.io(source))?;
        Ok(content.map_err(|why| position.lost(why)))
    }

    /// Calls `take` for every block and its content, in order.
    ///
    /// # Errors
    ///
    /// Fails if a part of the trace is lost, and with the errors of `take`.
    pub(crate) fn each_block(
        &mut self,
        mut take: impl FnMut(&BlockPosition, Vec<u8>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        for at in 0..self.arranged.parts.len() {
            let lost = match self.arranged.parts[at].clone() {
                ScanPart::Lost(lost) => lost,
                ScanPart::Block(position) => match self.content(at, &position)? {
                    Ok(content) => {
                        take(&position, content)?;
                        continue;
                    }
                    Err(lost) => lost,
                },
            };
            return Err(TraceError::NotWhole { path: self.path.clone(), lost });
        }
        Ok(())
    }

    fn io(&self, source: io::Error) -> TraceError {
        io_error("read", &self.path, source)
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        let mut step = Step::default();
        Ok(match self.next_into(&mut step)? {
            Next::Step => {
                let Step { sequence, now, input, effects, finished } = step;
                Some(Record::Step { sequence, now, input, effects: finished.then_some(effects) })
            }
            Next::Other(record) => Some(record),
            Next::End => None,
        })
    }

    /// As the iterator, but faster: a step is read into `step`, whose memory is reused.
    pub fn next_into(&mut self, step: &mut Step) -> Result<Next, TraceError> {
        loop {
            match self.due.pop_front() {
                Some(Record::Step { sequence, now, input, effects }) => {
                    let finished = effects.is_some();
                    *step = Step { sequence, now, input, effects: effects.unwrap_or_default(), finished };
                    return Ok(Next::Step);
                }
                Some(record) => return Ok(Next::Other(record)),
                None => {}
            }
            if let Some(next) = self.next_of_block(step) {
                return Ok(next);
            }
            // Times after the block's last step.
            if !self.due.is_empty() {
                continue;
            }
            let Some(part) = self.arranged.parts.get(self.at) else { return Ok(Next::End) };
            let part = part.clone();
            self.at += 1;
            match part {
                ScanPart::Lost(lost) => {
                    self.position += lost.bytes;
                    return Ok(Next::Other(Record::Lost(lost)));
                }
                ScanPart::Block(position) => {
                    self.position = (self.position + position.bytes()).min(self.length);
                    match self.content(self.at - 1, &position)? {
                        Ok(content) => self.begin_block(position, content)?,
                        Err(lost) => return Ok(Next::Other(Record::Lost(lost))),
                    }
                }
            }
        }
    }

    /// The next item of the data block that is being read.
    fn next_of_block(&mut self, step: &mut Step) -> Option<Next> {
        let (steps, content, position) = self.steps.as_mut()?;
        let item = steps.next(content, step);
        self.skipped += std::mem::take(&mut steps.skipped);
        if let Some(times) = &mut steps.times {
            self.due.extend(times.drain(..).map(Record::Times));
        }
        Some(match item {
            Some(Item::Step) => {
                self.last_good = Some(step.sequence);
                self.unfinished = !step.finished;
                Next::Step
            }
            Some(Item::Unknown { sequence, kind }) => Next::Other(Record::Unknown { sequence, kind }),
            Some(Item::Damaged { sequence, at, why }) => {
                // An offset in deflated content gives no offset in the file.
                let at = if position.header.codec == 0 { HEADER_BYTES as u64 + at as u64 } else { 0 };
                let why = format!("{}: {why}", position.name());
                let (bytes, offset) = (position.bytes() - at, position.offset + at);
                let lost = Lost { from: sequence, to: Some(position.header.next_step()), bytes, offset, why };
                self.steps = None;
                Next::Other(Record::Lost(lost))
            }
            None => {
                self.steps = None;
                return None;
            }
        })
    }

    /// Begins a block whose content is intact.
    fn begin_block(&mut self, position: BlockPosition, content: Vec<u8>) -> Result<(), TraceError> {
        let BlockHeader { kind, first_step: sequence, codec, .. } = position.header;
        if codec > DEFLATED {
            self.lost(&position, "is stored in a way that this program does not know");
            return Ok(());
        }
        if kind == Kind::Data && std::mem::take(&mut self.unfinished) {
            let (from, to) = (sequence.saturating_sub(1), Some(sequence));
            let why = format!("step #{from} has no effects and is not the last");
            self.due.push_back(Record::Lost(Lost { from, to, bytes: 0, offset: position.offset, why }));
        }
        match kind {
            // Pieces were read with their snapshot.
            Kind::Header | Kind::Index | Kind::Piece | Kind::Complete => {}
            Kind::Data => {
                let mut steps = Steps::new(&position.header);
                steps.times = self.returns_times.then(Vec::new);
                self.steps = Some((steps, content, position));
            }
            Kind::Snapshot => match self.snapshot(self.at - 1, &position, &content)? {
                Ok(snapshot) => self.due.push_back(snapshot),
                Err(why) => self.lost(&position, &why),
            },
            Kind::End => match wire::End::decode(&content[..]) {
                Ok(end) => self.end(&position, &end),
                Err(_) => self.lost(&position, "cannot be decoded"),
            },
            Kind::Other(kind) if position.header.kind.is_semantic() => {
                self.due.push_back(Record::Unknown { sequence, kind });
            }
            Kind::Other(_) => self.skipped += 1,
        }
        Ok(())
    }

    /// The snapshot in this part, with the pieces from the blocks after it; or what is wrong with it.
    fn snapshot(
        &mut self,
        part: usize,
        position: &BlockPosition,
        content: &[u8],
    ) -> Result<Result<Record, String>, TraceError> {
        let Ok(snapshot) = wire::Snapshot::decode(content) else {
            return Ok(Err("cannot be decoded".into()));
        };
        let wire::Snapshot { state_digest: digest, mut state, mut host, state_pieces, host_pieces } =
            snapshot;
        let pieces = u64::from(state_pieces) + u64::from(host_pieces);
        for at in 0..pieces {
            let at = at as usize;
            let piece = match self.arranged.parts.get(part + 1 + at) {
                Some(ScanPart::Block(piece)) if piece.header.kind == Kind::Piece => *piece,
                _ => return Ok(Err("is not followed by all of its pieces".into())),
            };
            match self.content(part + 1 + at, &piece)? {
                Ok(bytes) if at < state_pieces as usize => state.extend_from_slice(&bytes),
                Ok(bytes) => host.extend_from_slice(&bytes),
                Err(lost) => return Ok(Err(format!("has a piece that is damaged: {}", lost.why))),
            }
        }
        let BlockHeader { first_step: sequence, first_ns: now, .. } = position.header;
        Ok(Ok(Record::Snapshot { sequence, now, digest, state, host }))
    }

    fn lost(&mut self, position: &BlockPosition, why: &str) {
        self.due.push_back(Record::Lost(position.lost(format!("{} {why}", position.name()))));
    }

    fn end(&mut self, position: &BlockPosition, end: &wire::End) {
        let wire::End { steps, state_digest: digest, dropped, ref why, .. } = *end;
        let sequence = position.header.first_step;
        // A damaged file may have the header of another recording, which begins after this end.
        let counted = sequence.checked_sub(self.header.first_step);
        if counted != Some(steps) {
            let extent = counted.map_or_else(
                || format!("begins after it, at step #{}", self.header.first_step),
                |counted| format!("has {counted}"),
            );
            self.lost(position, &format!("counts {steps} steps, the trace {extent}"));
            return;
        }
        if dropped > 0 {
            let (offset, why) = (position.offset, format!("recording stopped: {}", printable(why)));
            let to = Some(sequence.saturating_add(dropped));
            self.due.push_back(Record::Lost(Lost { from: sequence, to, bytes: 0, offset, why }));
        }
        self.ended = true;
        self.due.push_back(Record::End { sequence, steps, digest });
    }
}

/// Number of the step after a record.
fn record_end(record: &Record) -> u64 {
    match record {
        Record::Step { sequence, .. } => sequence.saturating_add(1),
        Record::Lost(lost) => lost.to.unwrap_or(u64::MAX),
        Record::Snapshot { sequence, .. } | Record::Unknown { sequence, .. } => *sequence,
        Record::Times(_) => 0,
        Record::End { .. } => u64::MAX,
    }
}

/// Path of the file with the initial state of a trace: `FILE.gvt.state`.
pub fn state_path(trace: &Path) -> PathBuf {
    beside(trace, ".state")
}

/// The snapshot in `FILE.gvt.state`, if it is one before the trace's first step.
fn state_beside(trace: &Path, header: &Header) -> Option<Record> {
    let path = state_path(trace);
    let mut reader = Reader::read(Box::new(open_regular(&path).ok()?), &path, false).ok()?;
    let of_trace = |record: &Record| matches!(record, Record::Snapshot { sequence, .. } if *sequence == header.first_step);
    if reader.header.config != header.config {
        return None;
    }
    loop {
        let record = reader.next_record().ok()??;
        if of_trace(&record) {
            return Some(record);
        }
    }
}

/// The first intact header of a trace; all are the same.
fn find_header(
    source: &mut dyn Source,
    positions: &[BlockPosition],
    path: &Path,
) -> Result<Option<Header>, TraceError> {
    for position in positions.iter().filter(|position| position.header.kind == Kind::Header) {
        // A header that is cut off cannot be read; that is not an I/O error.
        let Ok(Ok(content)) = read_content(source, position) else { continue };
        let Ok(wire) = wire::Header::decode(&content[..]) else { continue };
        let wire::Header { semantic_version: file, program, kernel, first_step } = wire;
        let program = printable(&program);
        if file != SEMANTIC_VERSION {
            let (path, what, ours) = (path.to_owned(), "semantic", SEMANTIC_VERSION);
            return Err(TraceError::Version { path, what, file, ours, program });
        }
        let path = path.to_owned();
        return match header::config_from_wire(kernel.unwrap_or_default()) {
            Ok(config) => match config.check() {
                Ok(()) => Ok(Some(Header { program, config, first_step })),
                Err(flaw) => {
                    let why = format!("{}: {}", flaw.path, flaw.message);
                    Err(TraceError::Config { path, why, program })
                }
            },
            Err(error) => Err(TraceError::Config { path, why: error.to_string(), program }),
        };
    }
    Ok(None)
}

/// Whether a file's first bytes resemble the magic: a damaged trace still has most of it.
fn looks_like_trace(head: &[u8]) -> bool {
    let matching = head.iter().zip(MAGIC).filter(|(found, expected)| **found == *expected).count();
    !head.is_empty() && (matching >= MAGIC.len() / 2 || matching == head.len())
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.next_record();
        self.failed = result.is_err();
        result.transpose()
    }
}
