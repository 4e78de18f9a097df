//! Little-endian integers in fixed layouts, read and written without a way to panic.
//!
//! Reading past the end gives zeros and writing past it does nothing: the layouts' lengths are constants,
//! and the tests of each layout would show it.

/// Reads one field after another.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    /// `None` if there are not so many.
    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// An integer of `N` bytes, at most 8.
    pub(crate) fn uint<const N: usize>(&mut self) -> u64 {
        let mut wide = [0; 8];
        if let Some(low) = wide.first_chunk_mut::<N>() {
            *low = self.array();
        }
        u64::from_le_bytes(wide)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn rest_is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

/// Writes one field after another.
pub(crate) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self, value: [u8; N]) {
        if let Some((head, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut::<N>() {
            *head = value;
            self.0 = rest;
        }
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    /// The low `N` bytes, at most 8.
    pub(crate) fn uint<const N: usize>(&mut self, value: u64) {
        if let Some(low) = value.to_le_bytes().first_chunk::<N>() {
            self.array(*low);
        }
    }
}

/// Numbers in groups of seven bits, low first, the high bit set on all but the last.
pub(crate) mod varint {
    use alloc::vec::Vec;

    const GROUP_BITS: u32 = 7;
    const MORE: u8 = 0x80;

    pub(crate) fn write(mut value: u64, out: &mut Vec<u8>) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= GROUP_BITS;
            if value == 0 {
                out.push(low);
                return;
            }
            out.push(low | MORE);
        }
    }

    /// `None` if there is no whole number, it is longer than it need be, or it passes 63 bits.
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0_u64;
        let mut shift = 0_u32;
        loop {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            let group = u64::from(byte & !MORE);
            if shift > 56 || (group == 0 && shift > 0 && byte & MORE == 0) {
                return None;
            }
            value |= group.checked_shl(shift)?;
            if byte & MORE == 0 {
                return Some(value);
            }
            shift = shift.saturating_add(GROUP_BITS);
        }
    }
}
