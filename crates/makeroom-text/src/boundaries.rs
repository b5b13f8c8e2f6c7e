//! Byte offsets that do not split a character.

/// The last character boundary at or before this offset.
pub(crate) fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The first character boundary at or after this offset.
pub(crate) fn ceil(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset += 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_inside_a_character_moves_to_its_edge() {
        let text = "a显b";
        assert_eq!([0, 1, 2, 3, 4, 9].map(|offset| floor(text, offset)), [0, 1, 1, 1, 4, 5]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(|offset| ceil(text, offset)), [0, 1, 4, 4, 4, 5]);
    }
}
