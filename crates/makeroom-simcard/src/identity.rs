//! Names and IDs of GPUs. The same index has the same identity in every process.

/// The driver version that NVML reports.
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

/// A UUID in NVML's format: `GPU-6d616b65-…`.
pub fn uuid_text(device: usize) -> String {
    let number = u128::from_be_bytes(uuid(device));
    let part = |from: u32, bits: u32| (number >> (128 - from - bits)) & ((1 << bits) - 1);
    let parts = [part(0, 32), part(32, 16), part(48, 16), part(64, 16), part(80, 48)];
    format!("GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", parts[0], parts[1], parts[2], parts[3], parts[4])
}

/// PCI bus ID: `00000000:01:00.0`, where the second number is the index plus one.
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
