//! What a card is called. The same index has the same identity in every process.

/// The driver version that NVML shows.
pub fn driver_version() -> &'static str {
    "580.0.0"
}

/// The name of a card.
pub fn name(device: usize) -> String {
    format!("makeroom simulated GPU {device}")
}

/// The sixteen bytes of a card's UUID.
pub fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"makeroom simgpu0";
    bytes[15] += device as u8;
    bytes
}

/// A UUID as NVML writes it: `GPU-6d616b65-…`.
pub fn uuid_text(device: usize) -> String {
    let mut text = String::from("GPU");
    for (position, byte) in uuid(device).iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&position) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Where a card sits: `00000000:01:00.0`, the second number counting the cards.
pub fn bus_id(device: usize) -> String {
    format!("00000000:{:02X}:00.0", device + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_differ_by_device() {
        assert_eq!(uuid_text(0), "GPU-6d616b65-726f-6f6d-2073-696d67707530");
        assert_ne!(uuid_text(0), uuid_text(15));
        assert_eq!(bus_id(1), "00000000:02:00.0");
    }
}
