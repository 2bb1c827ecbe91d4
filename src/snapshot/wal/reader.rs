//! Reads one segment after the other (etcd `wal/decoder.go`, `WAL.ReadAll`).

use std::collections::VecDeque;

use super::frame::{Frame, HEAD_BYTES, LENGTH_BYTES, MAX_RECORD_BYTES, SECTOR_BYTES, is_torn};
use super::record::{CRC_TYPE, Raw};
use super::window::Window;
use super::{
    Check, Corruption, Damage, DamageKind, End, Error, Item, Leftover, LeftoverPlace, Metadata, Mode, Position, Record,
    RecordKind, Segment,
};

/// What a log holds, one thing after the other. Memory is bounded by the longest record.
#[derive(Debug)]
pub struct Records<'w> {
    segments: &'w [Segment],
    mode: Mode,
    window: Window,
    /// Where the next frame is looked for.
    at: Position,
    phase: Phase,
    /// CRC-32C of the data of all records so far. 0 agrees with any record of type crc, as it does for etcd.
    running: u32,
    metadata: Option<Metadata>,
    /// What was found and not yet handed out.
    found: VecDeque<Found>,
    first_damage: Option<Damage>,
    unverified_starts: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Each frame follows the one before.
    Frames,
    /// Frames are where they are recognized.
    Scan {
        place: LeftoverPlace,
        run: Option<Run>,
    },
    Finished,
}

/// Bytes that are not zero, from the first to behind the last.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
}

#[derive(Debug)]
enum Found {
    Record { at: Position, frame: Frame, check: Check },
    Damage(Damage),
    Leftover(Leftover),
}

/// What a frame's record comes to.
struct Judgement {
    running: u32,
    metadata: Option<Metadata>,
    wrong: Option<Corruption>,
    /// Whether a sector of zeros would explain what is wrong.
    may_be_torn: bool,
    /// Whether the record can be shown all the same.
    is_readable: bool,
    starts_chain: bool,
}

impl<'w> Records<'w> {
    pub(super) fn new(segments: &'w [Segment], mode: Mode) -> Self {
        Self {
            segments,
            mode,
            window: Window::new(),
            at: Position { segment: 0, offset: 0 },
            phase: if segments.is_empty() { Phase::Finished } else { Phase::Frames },
            running: 0,
            metadata: None,
            found: VecDeque::new(),
            first_damage: None,
            unverified_starts: Vec::new(),
        }
    }

    /// The next thing, or `None` at the end.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read. Reading ends there.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        loop {
            match self.found.pop_front() {
                Some(Found::Damage(damage)) => return Ok(Some(Item::Damage(damage))),
                Some(Found::Leftover(leftover)) => return Ok(Some(Item::Leftover(leftover))),
                Some(Found::Record { at, frame, check }) => return self.record(at, frame, check),
                None if matches!(self.phase, Phase::Finished) => return Ok(None),
                None => {}
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Finished);
            self.phase = match phase {
                Phase::Frames => self.step()?,
                Phase::Scan { place, run } => self.scan(place, run)?,
                Phase::Finished => Phase::Finished,
            };
        }
    }

    /// How the log ends, as far as it has been read: at its first damage, if there was any.
    #[must_use]
    pub fn end(&self) -> End {
        self.first_damage.clone().map_or(End::Clean, End::Damaged)
    }

    /// The segments whose checksums begin with one that there is nothing to compare with, so far: the first one, unless
    /// it is the first of all, and those behind damage.
    #[must_use]
    pub fn unverified_starts(&self) -> &[usize] {
        &self.unverified_starts
    }

    fn record(&mut self, at: Position, frame: Frame, check: Check) -> Result<Option<Item<'_>>, Error> {
        let bytes = self.window.at(self.segments, at.segment, at.offset + LENGTH_BYTES, frame.record)?;
        let bytes = usize::try_from(frame.record).ok().and_then(|len| bytes.get(..len)).unwrap_or_default();
        Ok(Some(match Raw::parse(bytes).and_then(|raw| Ok((raw.crc, raw.kind()?))) {
            Ok((crc, kind)) => {
                Item::Record(Record { position: at, length: frame.record, padding: frame.padding, crc, check, kind })
            }
            // The file was overwritten between two looks at it.
            Err(corruption) => Item::Damage(Damage { at, kind: DamageKind::Corrupt(corruption) }),
        }))
    }

    fn len(&self) -> u64 {
        self.segments.get(self.at.segment).map_or(0, Segment::len)
    }

    fn next_segment(&mut self) -> Phase {
        let before = self.segments.get(self.at.segment).and_then(Segment::sequence);
        self.at = Position { segment: self.at.segment + 1, offset: 0 };
        let Some(segment) = self.segments.get(self.at.segment) else { return Phase::Finished };
        let expected = before.and_then(|before| before.checked_add(1)).filter(|_| segment.sequence().is_some());
        match expected {
            Some(expected) if segment.sequence() != Some(expected) => {
                self.running = 0;
                self.damage(DamageKind::Corrupt(Corruption::MissingSegment { expected }));
                if self.mode == Mode::Strict { Phase::Finished } else { Phase::Frames }
            }
            _ => Phase::Frames,
        }
    }

    fn damage(&mut self, kind: DamageKind) {
        let damage = Damage { at: self.at, kind };
        self.first_damage.get_or_insert_with(|| damage.clone());
        self.found.push_back(Found::Damage(damage));
    }

    /// What follows damage in this segment.
    fn after(&mut self, kind: DamageKind) -> Phase {
        self.damage(kind);
        match self.mode {
            Mode::Strict => Phase::Finished,
            Mode::Salvage => {
                // The checksums of the next segment start anew.
                self.running = 0;
                Phase::Scan { place: LeftoverPlace::Damaged, run: None }
            }
        }
    }

    /// Reads the frame that has to be here.
    fn step(&mut self) -> Result<Phase, Error> {
        let rest = self.len().saturating_sub(self.at.offset);
        if rest == 0 {
            return Ok(self.next_segment());
        }
        if rest < LENGTH_BYTES {
            return Ok(self.after(DamageKind::Truncated));
        }
        let Position { segment, offset } = self.at;
        let head = self.window.at(self.segments, segment, offset, LENGTH_BYTES)?;
        let field = u64::from_le_bytes(*head.first_chunk().unwrap_or(&[0; 8]));
        if field == 0 {
            return Ok(Phase::Scan { place: LeftoverPlace::BehindEnd, run: None });
        }
        let frame = Frame::decode(field);
        if frame.bytes() > rest {
            return Ok(self.after(DamageKind::Truncated));
        }
        if frame.record > MAX_RECORD_BYTES {
            return Ok(self.after(DamageKind::Corrupt(Corruption::TooLong { bytes: frame.record })));
        }
        let payload_len = frame.bytes() - LENGTH_BYTES;
        let payload = self.window.at(self.segments, segment, offset + LENGTH_BYTES, payload_len)?;
        let payload = usize::try_from(payload_len).ok().and_then(|len| payload.get(..len)).unwrap_or_default();
        let (record, padding) = payload.split_at(payload.len().saturating_sub(frame.padding.into()));
        let judgement = judge(record, self.running, self.metadata);
        let is_last = segment + 1 == self.segments.len();
        let is_torn = is_last && judgement.may_be_torn && is_torn(payload, offset + LENGTH_BYTES);
        let padding_run = not_zero(padding, offset + LENGTH_BYTES + frame.record);

        let Some(wrong) = judgement.wrong else {
            (self.running, self.metadata) = (judgement.running, judgement.metadata);
            if judgement.starts_chain {
                self.unverified_starts.push(segment);
            }
            self.pass(frame, Check::Ok, padding_run);
            return Ok(Phase::Frames);
        };
        let phase = self.after(if is_torn { DamageKind::Torn } else { DamageKind::Corrupt(wrong) });
        if judgement.is_readable && self.mode == Mode::Salvage {
            self.pass(frame, Check::Unverified, padding_run);
        }
        Ok(phase)
    }

    /// Takes the frame that is here, and goes on behind it.
    fn pass(&mut self, frame: Frame, check: Check, padding: Option<Run>) {
        self.found.push_back(Found::Record { at: self.at, frame, check });
        self.leftover(padding, LeftoverPlace::Padding);
        self.at.offset += frame.bytes();
    }

    fn leftover(&mut self, run: Option<Run>, place: LeftoverPlace) {
        let Some(Run { start, end }) = run else { return };
        let at = Position { segment: self.at.segment, offset: start };
        self.found.push_back(Found::Leftover(Leftover { at, bytes: end - start, place }));
    }

    /// Goes through bytes that need not be frames, up to something to report or to the end of the segment.
    fn scan(&mut self, place: LeftoverPlace, mut run: Option<Run>) -> Result<Phase, Error> {
        loop {
            let Position { segment, offset } = self.at;
            let rest = self.len().saturating_sub(offset);
            if rest == 0 {
                self.leftover(run, place);
                return Ok(self.next_segment());
            }
            let bytes = self.window.at(self.segments, segment, offset, rest.min(HEAD_BYTES))?;
            let zeros = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len()) as u64;
            // Frames begin at multiples of 8 only.
            let piece = match offset % 8 {
                0 => (zeros / 8 * 8).max(8),
                unaligned => 8 - unaligned,
            };
            let piece = piece.min(rest);
            if self.mode == Mode::Salvage
                && offset % 8 == 0
                && let Some(frame) = Frame::recognize(bytes, rest)
            {
                self.leftover(run, place);
                let end = offset + LENGTH_BYTES + frame.record;
                let padding = self.window.at(self.segments, segment, end, frame.padding.into())?;
                let padding = padding.get(..frame.padding.into()).and_then(|padding| not_zero(padding, end));
                self.pass(frame, Check::Unverified, padding);
                return Ok(Phase::Scan { place, run: None });
            }
            let bytes = usize::try_from(piece).ok().and_then(|len| bytes.get(..len)).unwrap_or_default();
            let end = offset + piece;
            match (not_zero(bytes, offset), &mut run) {
                (Some(more), Some(run)) => run.end = more.end,
                (Some(more), None) => run = Some(more),
                (None, Some(Run { end: last, .. })) if end - *last >= SECTOR_BYTES => {
                    self.leftover(run, place);
                    self.at.offset = end;
                    return Ok(Phase::Scan { place, run: None });
                }
                (None, _) => {}
            }
            self.at.offset = end;
        }
    }
}

/// Whether a frame's bytes are the record that continues the log.
fn judge(record: &[u8], running: u32, metadata: Option<Metadata>) -> Judgement {
    let mut judgement =
        Judgement { running, metadata, wrong: None, may_be_torn: true, is_readable: false, starts_chain: false };
    let raw = match Raw::parse(record) {
        Ok(raw) => raw,
        Err(wrong) => return Judgement { wrong: Some(wrong), ..judgement },
    };
    let kind = raw.kind();
    judgement.is_readable = kind.is_ok();
    if raw.record_type == CRC_TYPE {
        judgement.may_be_torn = false;
        if running != 0 && running != raw.crc {
            judgement.wrong = Some(Corruption::Chain { stored: raw.crc, computed: running });
        }
        judgement.starts_chain = running == 0 && raw.crc != 0;
        judgement.running = raw.crc;
        return judgement;
    }
    judgement.running = crc32c::crc32c_append(running, raw.data);
    if judgement.running != raw.crc {
        judgement.wrong = Some(Corruption::Checksum { stored: raw.crc, computed: judgement.running });
        return judgement;
    }
    judgement.may_be_torn = false;
    match kind {
        Ok(RecordKind::Metadata(found)) if *judgement.metadata.get_or_insert(found) != found => {
            judgement.wrong = Some(Corruption::MetadataConflict);
        }
        Ok(_) => {}
        Err(wrong) => judgement.wrong = Some(wrong),
    }
    judgement
}

/// The bytes that are not zero, from the first to behind the last. The first of all has the offset `start`.
fn not_zero(bytes: &[u8], start: u64) -> Option<Run> {
    let first = bytes.iter().position(|byte| *byte != 0)?;
    let last = bytes.iter().rposition(|byte| *byte != 0)?;
    Some(Run { start: start + first as u64, end: start + last as u64 + 1 })
}
