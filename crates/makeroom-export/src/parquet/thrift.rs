//! Thrift's compact protocol: the types that Parquet's metadata uses, for writing only.
//!
//! A structure is its fields in ascending order and a stop byte. A field begins with one byte: the difference from the
//! previous field's id, and the type. The protocol supports larger differences, but no structure written here needs them.

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;
const STOP: u8 = 0;

/// List lengths that fit into the first byte of a list.
const SHORT_LIST: usize = 15;

/// Appends a structure.
pub(super) fn structure(to: &mut Vec<u8>, fill: impl FnOnce(&mut Fields<'_>)) {
    fill(&mut Fields { to, last: 0 });
    to.push(STOP);
}

/// Appends an unsigned number, seven bits per byte, lowest bits first.
pub(super) fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Appends an integer of 16 bits or more. The lowest bit would be the sign, but no number written here is negative.
fn integer(number: u64, to: &mut Vec<u8>) {
    varint(number << 1, to);
}

/// The fields of a structure, written in the order of their ids.
pub(super) struct Fields<'to> {
    to: &'to mut Vec<u8>,
    last: u8,
}

impl Fields<'_> {
    fn header(&mut self, id: u8, kind: u8) {
        debug_assert!((1..=15).contains(&(id - self.last)), "fields {} and {id}", self.last);
        self.to.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    pub(super) fn bool(&mut self, id: u8, value: bool) {
        self.header(id, if value { TRUE } else { FALSE });
    }

    pub(super) fn i8(&mut self, id: u8, number: u8) {
        self.header(id, I8);
        self.to.push(number);
    }

    /// Also for enums.
    pub(super) fn i32(&mut self, id: u8, number: u32) {
        self.header(id, I32);
        integer(number.into(), self.to);
    }

    pub(super) fn i64(&mut self, id: u8, number: u64) {
        self.header(id, I64);
        integer(number, self.to);
    }

    pub(super) fn binary(&mut self, id: u8, bytes: &[u8]) {
        self.header(id, BINARY);
        element(bytes, self.to);
    }

    pub(super) fn structure(&mut self, id: u8, fill: impl FnOnce(&mut Fields<'_>)) {
        self.header(id, STRUCT);
        structure(self.to, fill);
    }

    /// A structure that is already encoded.
    pub(super) fn encoded(&mut self, id: u8, structure: &[u8]) {
        self.header(id, STRUCT);
        self.to.extend_from_slice(structure);
    }

    pub(super) fn bools(&mut self, id: u8, values: impl ExactSizeIterator<Item = bool>) {
        self.list(id, TRUE, values.len());
        self.to.extend(values.map(|value| if value { TRUE } else { FALSE }));
    }

    pub(super) fn i32s(&mut self, id: u8, numbers: &[u32]) {
        self.list(id, I32, numbers.len());
        for &number in numbers {
            integer(number.into(), self.to);
        }
    }

    pub(super) fn i64s(&mut self, id: u8, numbers: impl ExactSizeIterator<Item = u64>) {
        self.list(id, I64, numbers.len());
        numbers.for_each(|number| integer(number, self.to));
    }

    pub(super) fn binaries<'bytes>(&mut self, id: u8, values: impl ExactSizeIterator<Item = &'bytes [u8]>) {
        self.list(id, BINARY, values.len());
        values.for_each(|bytes| element(bytes, self.to));
    }

    pub(super) fn structures<Item>(
        &mut self,
        id: u8,
        items: &[Item],
        mut fill: impl FnMut(&mut Fields<'_>, &Item),
    ) {
        self.list(id, STRUCT, items.len());
        for item in items {
            structure(self.to, |fields| fill(fields, item));
        }
    }

    fn list(&mut self, id: u8, kind: u8, length: usize) {
        self.header(id, LIST);
        if length < SHORT_LIST {
            self.to.push((length as u8) << 4 | kind);
        } else {
            self.to.push((SHORT_LIST as u8) << 4 | kind);
            varint(length as u64, self.to);
        }
    }
}

fn element(bytes: &[u8], to: &mut Vec<u8>) {
    varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(fill: impl FnOnce(&mut Fields<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        structure(&mut bytes, fill);
        bytes
    }

    #[test]
    fn numbers_at_the_limits() {
        let bytes = encoded(|fields| {
            fields.i32(1, 0);
            fields.i32(2, 63);
            fields.i32(3, i32::MAX.cast_unsigned());
            fields.i64(4, 64);
            fields.i64(5, i64::MAX.cast_unsigned());
            fields.i8(6, 64);
        });
        let mut expected = vec![0x15, 0, 0x15, 0x7e, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x16, 0x80, 0x01];
        expected.extend([0x16, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x13, 64, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn ids_are_differences_and_start_again_in_a_structure() {
        let bytes = encoded(|fields| {
            fields.bool(3, true);
            fields.bool(8, false);
            fields.structure(9, |fields| fields.binary(2, b"ab"));
            fields.encoded(15, &[0]);
        });
        assert_eq!(bytes, [0x31, 0x52, 0x1c, 0x28, 2, b'a', b'b', 0, 0x6c, 0, 0]);
    }

    #[test]
    fn long_lists_have_their_length_behind_the_type() {
        let of = |length: usize| encoded(|fields| fields.bools(1, vec![true; length].into_iter()));
        assert_eq!(of(0), [0x19, 0x01, 0]);
        assert_eq!(of(14)[..3], [0x19, 0xe1, 1]);
        assert_eq!(of(15)[..4], [0x19, 0xf1, 15, 1]);
        assert_eq!(of(128)[..5], [0x19, 0xf1, 0x80, 1, 1]);
        assert_eq!(encoded(|fields| fields.i32s(1, &[0, 1])), [0x19, 0x25, 0, 2, 0]);
        assert_eq!(encoded(|fields| fields.i64s(1, [3].into_iter())), [0x19, 0x16, 6, 0]);
        let texts: [&[u8]; 2] = [b"", b"a"];
        assert_eq!(encoded(|fields| fields.binaries(1, texts.into_iter())), [0x19, 0x28, 0, 1, b'a', 0]);
        let of_two = encoded(|fields| {
            fields.structures(1, &[false, true], |fields, &value| fields.bool(1, value));
        });
        assert_eq!(of_two, [0x19, 0x2c, 0x12, 0, 0x11, 0, 0]);
    }
}
