//! GPU sizes on the command line. A forgotten unit turns gibibytes into bytes, so sizes below 1 MiB are rejected with the
//! size that was probably meant.

use makeroom_core::Bytes;

/// The smallest size that is accepted.
const LEAST: Bytes = Bytes::mib(1);

/// Parses the size of a GPU or of a limit.
pub(crate) fn card_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size >= LEAST {
        return Ok(size);
    }
    let number = text.trim().trim_end_matches(|character: char| !character.is_ascii_digit());
    Err(match size.get() {
        0 => "a GPU has more memory than that; write a size with a unit, such as 24GiB".to_owned(),
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
