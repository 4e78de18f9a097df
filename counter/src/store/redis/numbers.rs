//! The script's numbers and texts: a `MessagePack` array of either, as the server's own library writes it.

/// How -1 is read: never, or endless.
pub(super) const ENDLESS: u64 = u64::MAX;

/// Numbers or texts of an array, one after the other.
pub(super) struct Numbers<'a> {
    left: usize,
    rest: &'a [u8],
}

/// The array at the beginning of `bytes`; none if there is none.
pub(super) fn read(bytes: &[u8]) -> Option<Numbers<'_>> {
    let (head, mut rest) = bytes.split_first()?;
    let left = match head {
        // An empty table of Lua is a map to the library, for all it knows.
        0x80 => 0,
        0x90..=0x9f => u64::from(head & 0x0f),
        0xdc => big_endian::<2>(&mut rest)?,
        0xdd => big_endian::<4>(&mut rest)?,
        _ => return None,
    };
    Some(Numbers { left: usize::try_from(left).ok()?, rest })
}

impl<'a> Numbers<'a> {
    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// The next; none if there is none, or it is not whole.
    pub(super) fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let (head, rest) = self.rest.split_first()?;
        self.rest = rest;
        match head {
            0x00..=0x7f => Some(u64::from(*head)),
            0xff => Some(ENDLESS),
            0xcc => big_endian::<1>(&mut self.rest),
            0xcd => big_endian::<2>(&mut self.rest),
            0xce => big_endian::<4>(&mut self.rest),
            0xcf => big_endian::<8>(&mut self.rest),
            _ => None,
        }
    }

    /// The next; none if there is none, or it is no text.
    pub(super) fn next_text(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (head, rest) = self.rest.split_first()?;
        self.rest = rest;
        let length = match head {
            0xa0..=0xbf => u64::from(head & 0x1f),
            0xd9 => big_endian::<1>(&mut self.rest)?,
            0xda => big_endian::<2>(&mut self.rest)?,
            0xdb => big_endian::<4>(&mut self.rest)?,
            _ => return None,
        };
        let (text, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(text)
    }

    /// What follows those that were read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

fn big_endian<const N: usize>(rest: &mut &[u8]) -> Option<u64> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_are_read() {
        let bytes = [
            0x98, 0x07, 0xff, 0xcc, 0x80, 0xcd, 1, 0, 0xce, 0, 1, 0, 0, 0xcf, 0, 16, 0, 0, 0, 0, 0, 0, 0xd0,
            1, 0x00,
        ];
        let mut numbers = read(&bytes).expect("an array");
        assert_eq!(numbers.len(), 8);
        for expected in [7, ENDLESS, 128, 256, 65_536, 1 << 52] {
            assert_eq!(numbers.next(), Some(expected));
        }
        assert_eq!(numbers.next(), None, "a form that no number of ours has");
    }

    #[test]
    fn texts_of_every_length_are_read() {
        let lengths = [0, 31, 32, 255, 256, 65_536];
        let mut bytes = vec![0x96];
        for length in lengths {
            let head = match length {
                0..32 => vec![0xa0 | u8::try_from(length).expect("short")],
                32..256 => vec![0xd9, u8::try_from(length).expect("short")],
                256..65_536 => vec![0xda, 1, 0],
                _ => vec![0xdb, 0, 1, 0, 0],
            };
            bytes.extend(head);
            bytes.extend(vec![7; length]);
        }
        bytes.push(9);
        let mut texts = read(&bytes).expect("an array");
        for length in lengths {
            assert_eq!(texts.next_text().map(<[u8]>::len), Some(length));
        }
        assert_eq!((texts.next_text(), texts.rest()), (None, [9].as_slice()));
        assert_eq!(read(&[0x91, 0xa2, 1]).expect("an array").next_text(), None, "cut short");
        assert_eq!(read(&[0x91, 0x07]).expect("an array").next_text(), None, "a number");
    }

    #[test]
    fn what_is_cut_short_is_none() {
        assert!(read(&[]).is_none());
        assert!(read(&[0xdc, 0]).is_none());
        assert_eq!(read(&[0x91]).expect("an array").next(), None);
        assert_eq!(read(&[0x91, 0xcd, 1]).expect("an array").next(), None);
        assert_eq!(read(&[0x80]).expect("an empty one").len(), 0);
    }
}
