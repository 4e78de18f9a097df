//! The script's numbers: a `MessagePack` array of whole numbers, as the server's own library writes it.

/// How -1 is read: never, or endless.
pub(super) const ENDLESS: u64 = u64::MAX;

/// Numbers of an array, one after the other.
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

impl Numbers<'_> {
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
    fn what_is_cut_short_is_none() {
        assert!(read(&[]).is_none());
        assert!(read(&[0xdc, 0]).is_none());
        assert_eq!(read(&[0x91]).expect("an array").next(), None);
        assert_eq!(read(&[0x91, 0xcd, 1]).expect("an array").next(), None);
        assert_eq!(read(&[0x80]).expect("an empty one").len(), 0);
    }
}
