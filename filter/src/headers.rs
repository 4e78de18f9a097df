//! The ABI's serialised header map, read in place: one host call brings all headers, and nothing is copied.
//!
//! Little-endian: the number of pairs, then for each pair the lengths of name and value, then for each pair
//! the name, a zero byte, the value, a zero byte.

/// The most headers that are looked at; a proxy allows fewer.
const PAIRS_MAX: usize = 10_000;

const LENGTH_BYTES: usize = 4;

/// A header map that was checked to be whole.
#[derive(Clone, Copy)]
pub(crate) struct Headers<'a> {
    lengths: &'a [u8],
    texts: &'a [u8],
}

impl<'a> Headers<'a> {
    /// `None` if the bytes are not a header map.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok().filter(|count| *count <= PAIRS_MAX)?;
        let (lengths, texts) = rest.split_at_checked(count.checked_mul(2 * LENGTH_BYTES)?)?;
        let headers = Self { lengths, texts };
        (headers.iter().count() == count).then_some(headers)
    }

    /// The pairs in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (lengths, _) = self.lengths.as_chunks::<LENGTH_BYTES>();
        let (pairs, _) = lengths.as_chunks::<2>();
        let mut texts = self.texts;
        pairs
            .iter()
            .map_while(move |[name, value]| Some((text(&mut texts, *name)?, text(&mut texts, *value)?)))
    }
}

/// Splits a text of the given length and the zero behind it off the front.
fn text<'a>(texts: &mut &'a [u8], length: [u8; LENGTH_BYTES]) -> Option<&'a [u8]> {
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    let (text, rest) = texts.split_at_checked(length)?;
    let (zero, rest) = rest.split_first()?;
    *texts = rest;
    (*zero == 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn serialise(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let length = |text: &[u8]| u32::try_from(text.len()).expect("a short text").to_le_bytes();
        let mut bytes = u32::try_from(pairs.len()).expect("few pairs").to_le_bytes().to_vec();
        for (name, value) in pairs {
            bytes.extend(length(name));
            bytes.extend(length(value));
        }
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend(text);
            bytes.push(0);
        }
        bytes
    }

    proptest! {
        #[test]
        fn reads_back_every_map(pairs in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..20)) {
            let bytes = serialise(&pairs);
            let headers = Headers::parse(&bytes).expect("a whole map");
            let read: Vec<_> = headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn a_map_that_is_cut_short_is_refused(
            pairs in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 1..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = serialise(&pairs);
            let cut = cut.index(bytes.len());
            prop_assert!(bytes.get(..cut).and_then(Headers::parse).is_none());
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in any::<Vec<u8>>()) {
            if let Some(headers) = Headers::parse(&bytes) {
                prop_assert!(headers.iter().count() <= bytes.len());
            }
        }
    }
}
