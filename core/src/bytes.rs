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

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u40(&mut self) -> u64 {
        let mut wide = [0; 8];
        if let Some(low) = wide.first_chunk_mut::<5>() {
            *low = self.array();
        }
        u64::from_le_bytes(wide)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
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

    pub(crate) fn u8(&mut self, value: u8) {
        self.array([value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.array(value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    /// The low 40 bits.
    pub(crate) fn u40(&mut self, value: u64) {
        if let Some(low) = value.to_le_bytes().first_chunk::<5>() {
            self.array(*low);
        }
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }
}
