//! Reading a trace. Nothing is believed before its checksum and its number agree.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek as _};
use std::path::{Path, PathBuf};

use dxgkrnl::{Config, Effects, Input, Nanos, SEMANTIC_VERSION};
use prost::Message;
use prost::encoding::decode_varint;
use proto::trace::{self as wire, record::Body};

use crate::block::{BlockHeader, HEADER_BYTES, MAGIC};
use crate::{Damage, FORMAT_VERSION, TraceError, convert, header};

/// What record 0 says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The program that wrote the trace, with its version.
    pub program: String,
    pub config: Config,
}

/// One record after the header.
#[expect(clippy::large_enum_variant, reason = "every record but the last is a step")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The kernel was told `input`, and asked for `effects`; `None`: it did not come back.
    Step { sequence: u64, now: Nanos, input: Input, effects: Option<Effects> },
    /// The trace was ended in good order.
    End { sequence: u64, steps: u64, digest: u64 },
}

impl Record {
    pub fn sequence(&self) -> u64 {
        match self {
            Record::Step { sequence, .. } | Record::End { sequence, .. } => *sequence,
        }
    }
}

impl fmt::Display for Record {
    /// One line for the input, one indented line for each effect.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Step { sequence, now, input, effects } => {
                write!(f, "#{sequence} {now} ns {input}")?;
                let Some(Effects { moves, stores, answers, events, notes }) = effects else {
                    return write!(f, "\n    (the kernel did not come back)");
                };
                moves.iter().try_for_each(|one| write!(f, "\n    {one}"))?;
                stores.iter().try_for_each(|store| write!(f, "\n    {store}"))?;
                answers.iter().try_for_each(|answer| write!(f, "\n    {answer}"))?;
                events.iter().try_for_each(|event| write!(f, "\n    {event}"))?;
                notes.iter().try_for_each(|note| write!(f, "\n    {note}"))
            }
            Record::End { sequence, steps, digest } => {
                write!(f, "#{sequence} end: {steps} steps, state digest {digest:#018x}")
            }
        }
    }
}

/// Reads the records of a trace in order. As an iterator it ends after the End record, at the end of a
/// file without one ([`Reader::ended`] tells which), or after the first error.
pub struct Reader {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    length: u64,
    /// Bytes of the file that were taken in.
    position: u64,
    /// Where the block in `payload` begins.
    block_offset: u64,
    blocks_read: u32,
    payload: Vec<u8>,
    /// Where in `payload` the next record begins.
    next: usize,
    last_good: Option<u64>,
    steps: u64,
    /// The last record was a step without effects.
    unfinished: bool,
    ended: bool,
    failed: bool,
    header: Header,
}

impl Reader {
    /// Opens a trace and reads its header.
    pub fn open(path: &Path) -> Result<Reader, TraceError> {
        let io = |source| TraceError::Io { doing: "open", path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(TraceError::NotATrace { path: path.to_owned(), why: "it is no file".into() });
        }
        let mut head = [0; MAGIC.len()];
        let begun = metadata.len() >= head.len() as u64;
        if begun {
            file.read_exact(&mut head).and_then(|()| file.rewind()).map_err(io)?;
            // A damaged trace still has most of its first word; another file has none of it.
            let alike = head.iter().zip(MAGIC).filter(|(found, expected)| **found == *expected).count();
            if alike < MAGIC.len() / 2 {
                let why = "it does not begin with GPVTRACE".into();
                return Err(TraceError::NotATrace { path: path.to_owned(), why });
            }
        }
        Reader::new(file, metadata.len(), path)
    }

    /// Reads a trace of `length` bytes from `source`; `name` stands in errors.
    pub fn new(source: impl Read + Send + 'static, length: u64, name: &Path) -> Result<Reader, TraceError> {
        let header = Header { program: String::new(), config: Config::default() };
        let mut reader = Reader {
            path: name.to_owned(),
            source: Box::new(source),
            length,
            position: 0,
            block_offset: 0,
            blocks_read: 0,
            payload: Vec::new(),
            next: 0,
            last_good: None,
            steps: 0,
            unfinished: false,
            ended: false,
            failed: false,
            header,
        };
        reader.header = reader.read_header()?;
        Ok(reader)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// This program has not what the kernel of the header is made of.
    pub(crate) fn cannot_build(&self, why: String) -> TraceError {
        TraceError::Config { path: self.path.clone(), why, program: self.header.program.clone() }
    }

    /// True once the End record was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Bytes of the file that were taken in, and all.
    pub fn progress(&self) -> (u64, u64) {
        (self.position, self.length)
    }

    /// Sequence number of the last record read without fault.
    pub fn last_good(&self) -> Option<u64> {
        self.last_good
    }

    fn read_header(&mut self) -> Result<Header, TraceError> {
        if self.length == 0 {
            return Err(TraceError::NotATrace { path: self.path.clone(), why: "it is empty".into() });
        }
        let (_, record) = self.next_record()?.ok_or_else(|| self.damage(0, "the header is missing"))?;
        let Some(Body::Header(header)) = record.body else {
            return Err(self.damage(0, "record 0 is no header"));
        };
        let wire::Header { format_version, semantic_version, program, kernel } = header;
        for (what, file, ours) in
            [("format", format_version, FORMAT_VERSION), ("semantic", semantic_version, SEMANTIC_VERSION)]
        {
            if file != ours {
                let path = self.path.clone();
                return Err(TraceError::Version { path, what, file, ours, program });
            }
        }
        if self.next != self.payload.len() {
            return Err(self.damage(0, "the header shares its block with other records"));
        }
        match header::config_from_wire(kernel.unwrap_or_default()) {
            Ok(config) => Ok(Header { program, config }),
            Err(error) => {
                Err(TraceError::Config { path: self.path.clone(), why: error.to_string(), program })
            }
        }
    }

    /// Damage at an offset from the beginning of the current block.
    fn damage(&self, at: usize, why: impl Into<String>) -> TraceError {
        let damage = Damage {
            offset: self.block_offset + at as u64,
            block: self.blocks_read.saturating_sub(1),
            last_good: self.last_good,
            why: why.into(),
        };
        TraceError::Damaged { path: self.path.clone(), damage }
    }

    /// Fills `self.payload`'s tail from `start` on; what is missing at the end of the file is damage.
    fn fill(&mut self, start: usize, what: &str) -> Result<(), TraceError> {
        let wanted = self.payload.len() - start;
        match self.source.read_exact(&mut self.payload[start..]) {
            Ok(()) => {
                self.position += wanted as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.damage(0, format!("the file ends inside its {what}")))
            }
            Err(source) => Err(TraceError::Io { doing: "read", path: self.path.clone(), source }),
        }
    }

    /// Reads the next block into `payload`; false at the end of the file.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        self.payload.clear();
        self.next = 0;
        if self.position == self.length {
            return Ok(false);
        }
        self.block_offset = self.position;
        let number = self.blocks_read;
        self.blocks_read += 1;
        if self.ended {
            return Err(self.damage(0, "it comes after the end of the trace"));
        }
        self.payload.resize(HEADER_BYTES, 0);
        self.fill(0, "header")?;
        let bytes = self.payload[..].try_into().expect("a header's length");
        let header = BlockHeader::from_bytes(bytes).map_err(|why| self.damage(0, why))?;
        if header.number != number {
            return Err(self.damage(0, format!("it is numbered {}, not {number}", header.number)));
        }
        let left = self.length - self.position;
        if header.payload_length == 0 || u64::from(header.payload_length) > left {
            let length = header.payload_length;
            return Err(self.damage(0, format!("it has {length} bytes, the file has {left} left")));
        }
        self.payload.resize(header.payload_length as usize, 0);
        self.fill(0, "payload")?;
        let (expected, actual) = (header.payload_crc, crc32c::crc32c(&self.payload));
        if expected != actual {
            return Err(
                self.damage(0, format!("its payload has checksum {actual:#010x}, not {expected:#010x}"))
            );
        }
        Ok(true)
    }

    /// The next record with the offset of its beginning in the block.
    fn next_record(&mut self) -> Result<Option<(usize, wire::Record)>, TraceError> {
        if self.next == self.payload.len() && !self.next_block()? {
            return Ok(None);
        }
        let at = HEADER_BYTES + self.next;
        let mut rest = &self.payload[self.next..];
        if self.ended {
            return Err(self.damage(at, "a record comes after the end of the trace"));
        }
        let length = decode_varint(&mut rest).ok().and_then(|length| usize::try_from(length).ok());
        let Some(bytes) = length.and_then(|length| rest.get(..length)) else {
            return Err(self.damage(at, "a record's length does not fit the block"));
        };
        let record = match wire::Record::decode(bytes) {
            Ok(record) => record,
            Err(error) => return Err(self.damage(at, format!("a record cannot be decoded: {error}"))),
        };
        let expected = self.last_good.map_or(0, |last| last.wrapping_add(1));
        if record.sequence != expected {
            let why = format!("a record is numbered #{}, not #{expected}", record.sequence);
            return Err(self.damage(at, why));
        }
        self.next = self.payload.len() - rest.len() + bytes.len();
        self.last_good = Some(expected);
        Ok(Some((at, record)))
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        let before = self.last_good;
        let Some((at, record)) = self.next_record()? else { return Ok(None) };
        let result = self.record(record);
        result.map(Some).map_err(|why| {
            self.last_good = before;
            self.damage(at, why)
        })
    }

    /// What a record says; the error says why it makes no sense here.
    fn record(&mut self, record: wire::Record) -> Result<Record, String> {
        let (sequence, now) = (record.sequence, record.now_ns);
        if self.unfinished {
            return Err(format!("step #{} has no effects and is not the last", sequence - 1));
        }
        match record.body {
            Some(Body::Step(step)) => {
                let input = step.input.ok_or("a step has no input")?;
                let input = convert::input_from_wire(input).map_err(|error| error.to_string())?;
                let effects = step.effects.map(convert::effects_from_wire).transpose();
                let effects = effects.map_err(|error| error.to_string())?;
                self.steps += 1;
                self.unfinished = effects.is_none();
                Ok(Record::Step { sequence, now, input, effects })
            }
            Some(Body::End(end)) if end.steps == self.steps => {
                self.ended = true;
                Ok(Record::End { sequence, steps: end.steps, digest: end.state_digest })
            }
            Some(Body::End(end)) => {
                Err(format!("the end counts {} steps, the file has {}", end.steps, self.steps))
            }
            Some(Body::Header(_)) => Err("a second header".into()),
            None => Err("a record of a kind that this program does not know".into()),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = self.read();
        self.failed = result.is_err();
        result.transpose()
    }
}
