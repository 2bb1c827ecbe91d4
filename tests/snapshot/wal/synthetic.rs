//! Messages and frames that no server wrote for us, put together by hand.

/// A field of bytes; the number is below 16, or its tag is given by `tagged`.
pub(super) fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    tagged(&[number << 3 | 2], content)
}

pub(super) fn tagged(tag: &[u8], content: &[u8]) -> Vec<u8> {
    [tag, &varint(content.len() as u64), content].concat()
}

pub(super) fn number(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

pub(super) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7f) as u8);
    bytes
}

/// Writes segments as etcd does.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

impl Writer {
    pub(super) fn record(&mut self, record_type: u64, data: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, data);
        let mut record = [number(1, record_type), number(2, self.crc.into())].concat();
        if record_type != 4 {
            record.extend(bytes(3, data));
        }
        let padding = (8 - record.len() % 8) % 8;
        let flags = if padding == 0 { 0 } else { 0x80 | padding as u64 };
        self.bytes.extend((record.len() as u64 | flags << 56).to_le_bytes());
        self.bytes.extend(record);
        self.bytes.resize(self.bytes.len() + padding, 0);
    }

    pub(super) fn entry(&mut self, entry_type: u64, term: u64, index: u64, data: &[u8]) {
        let entry = [number(1, entry_type), number(2, term), number(3, index), bytes(4, data)].concat();
        self.record(2, &entry);
    }
}
