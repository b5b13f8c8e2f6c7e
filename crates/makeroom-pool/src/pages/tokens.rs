//! Tokens: the handles that PyTorch gets instead of physical memory.
//!
//! A token has a prefix that no address and no handle of the driver has, so it is recognized without a lookup.

/// The upper 16 bits of a token.
const PREFIX: u64 = 0x6d70 << 48;
const PREFIX_BITS: u64 = 0xffff << 48;
/// The device is in the bits above the index.
const DEVICE_SHIFT: u32 = 40;

/// Whether a handle is a token, and of which device.
pub fn is_token(handle: u64) -> Option<u8> {
    (handle & PREFIX_BITS == PREFIX).then_some((handle >> DEVICE_SHIFT) as u8)
}

/// What a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) bytes: u64,
    /// Where it is mapped.
    pub(super) address: Option<u64>,
    /// PyTorch has released the token, and it ends when it is unmapped.
    is_released: bool,
}

/// The tokens of one device.
#[derive(Debug)]
pub(super) struct Tokens {
    device: u8,
    slots: Vec<Option<Slot>>,
    vacant: Vec<usize>,
    /// Bytes of tokens that are not mapped.
    pub(super) unmapped: u64,
}

impl Tokens {
    pub(super) fn new(device: u8) -> Self {
        Self { device, slots: Vec::new(), vacant: Vec::new(), unmapped: 0 }
    }

    pub(super) fn create(&mut self, bytes: u64) -> u64 {
        let slot = Some(Slot { bytes, address: None, is_released: false });
        let index = self.vacant.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(index) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        self.unmapped += bytes;
        PREFIX | u64::from(self.device) << DEVICE_SHIFT | index as u64
    }

    pub(super) fn get(&self, token: u64) -> Option<Slot> {
        *self.slots.get(self.index(token)?)?
    }

    /// Notes where a token is mapped.
    pub(super) fn map(&mut self, token: u64, address: u64) {
        if let Some(slot) = self.slot_mut(token).and_then(Option::as_mut) {
            slot.address = Some(address);
            let bytes = slot.bytes;
            self.unmapped -= bytes;
        }
    }

    /// Notes that the slot at an address was unmapped.
    pub(super) fn unmap(&mut self, address: u64) {
        let found = self.slots.iter().position(|slot| slot.is_some_and(|slot| slot.address == Some(address)));
        let Some((index, slot)) = found.and_then(|index| Some((index, self.slots.get_mut(index)?.as_mut()?)))
        else {
            return;
        };
        slot.address = None;
        if slot.is_released {
            self.slots[index] = None;
            self.vacant.push(index);
        } else {
            self.unmapped += slot.bytes;
        }
    }

    /// PyTorch released a token. Returns whether it exists.
    pub(super) fn release(&mut self, token: u64) -> bool {
        let Some(index) = self.index(token) else { return false };
        let Some(place) = self.slots.get_mut(index) else { return false };
        match place {
            Some(slot) if slot.is_released => false,
            Some(slot) if slot.address.is_some() => {
                slot.is_released = true;
                true
            }
            Some(slot) => {
                self.unmapped -= slot.bytes;
                *place = None;
                self.vacant.push(index);
                true
            }
            None => false,
        }
    }

    fn index(&self, token: u64) -> Option<usize> {
        let mask = (1 << DEVICE_SHIFT) - 1;
        (is_token(token) == Some(self.device)).then_some((token & mask) as usize)
    }

    fn slot_mut(&mut self, token: u64) -> Option<&mut Option<Slot>> {
        let index = self.index(token)?;
        self.slots.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_when_it_is_released_and_unmapped() {
        let mut tokens = Tokens::new(3);
        let [one, two] = [tokens.create(10), tokens.create(20)];
        assert_eq!((is_token(one), is_token(0x7f00_0000_0000), tokens.unmapped), (Some(3), None, 30));
        tokens.map(one, 0x1000);
        tokens.map(two, 0x2000);
        assert!(tokens.release(one) && !tokens.release(one), "once");
        tokens.unmap(0x1000);
        assert_eq!((tokens.get(one), tokens.unmapped), (None, 0));
        tokens.unmap(0x2000);
        assert_eq!(tokens.unmapped, 20);
        assert!(tokens.release(two) && !tokens.release(two) && !tokens.release(77));
        assert_eq!((tokens.unmapped, tokens.create(5)), (0, two), "used again");
        assert_eq!(Tokens::new(2).get(one), None, "of another device");
    }
}
