//! Sizes of cards on the command line. A forgotten unit makes bytes of gibibytes, and an answer for a card of 24 bytes is
//! worse than none.

use makeroom_core::Bytes;

/// No card and no limit on one is smaller than this.
const LEAST: Bytes = Bytes::mib(1);

/// Reads the size of a card, or of a limit on one.
pub(crate) fn card_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size >= LEAST {
        return Ok(size);
    }
    let number = text.trim().trim_end_matches(|character: char| !character.is_ascii_digit());
    Err(match size.get() {
        0 => "no card is that small; a size has a unit: 24GiB".to_owned(),
        bytes => format!("{} is {bytes} bytes; did you mean {number}GiB?", text.trim()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_a_few_bytes_is_a_forgotten_unit() {
        assert_eq!(card_size("24"), Err("24 is 24 bytes; did you mean 24GiB?".to_owned()));
        assert_eq!(card_size("80 kB"), Err("80 kB is 80000 bytes; did you mean 80GiB?".to_owned()));
        assert!(card_size("0").is_err_and(|error| error.contains("24GiB")));
        assert!(card_size("1 parsec").is_err_and(|error| error.contains("is not a size")));
        assert_eq!(card_size("1MiB"), Ok(Bytes::mib(1)));
        assert_eq!(card_size("25769803776"), Ok(Bytes::gib(24)));
    }
}
