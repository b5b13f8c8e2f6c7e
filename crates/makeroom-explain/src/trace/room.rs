//! How much memory the recorded allocator could have had.

use makeroom_core::{Bytes, Taken};

use super::Subject;
use crate::{Explanation, Fix};

/// What the user says about the memory there was. A recording itself does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The allocator could take this much; nothing is deducted.
    Limit(Bytes),
    /// A card of this size; what driver and context take is deducted.
    Card(Bytes),
}

/// The share of a card that the driver keeps: 616 MiB of 143 771 MiB, as NVML reports it for an H200.
const DRIVER_SHARE: f64 = 616.0 / 143_771.0;
/// The context of a PyTorch process after its first tensor, measured on an H200 with PyTorch 2.11.
pub(crate) const CONTEXT: Bytes = Bytes::mib(621);

impl Room {
    /// What the driver keeps of a card.
    pub(crate) fn driver_reserve(self) -> Option<Bytes> {
        match self {
            Self::Card(card) => Some(card.scaled(DRIVER_SHARE)),
            _ => None,
        }
    }

    /// What the allocator could take.
    pub fn limit(self) -> Option<Bytes> {
        match self {
            Self::Unknown => None,
            Self::Limit(limit) => Some(limit),
            Self::Card(card) => Some(card - card.scaled(DRIVER_SHARE) - CONTEXT),
        }
    }
}

impl Subject<'_> {
    /// The most that the run held at once.
    pub(super) fn peak_held(&self) -> Bytes {
        let taken = match self.trace.process {
            Some(_) => Taken::peak(self.device, &self.history.start),
            None => self.history.peak_live,
        };
        taken.max(self.history.peak_reserved.unwrap_or(Bytes::ZERO))
    }
}

/// The room that was named, unless the run held more than that.
pub(super) fn possible_room(room: Room, held: Bytes, explanation: &mut Explanation) -> Room {
    match room.limit() {
        Some(limit) if held > limit => {
            explanation.notes.insert(
                0,
                format!("the run held up to {held}, more than {limit}, so that limit is ignored here"),
            );
            explanation.next.push(
                Fix::new(format!("to check whether the run fits in {limit}"))
                    .command(format!("makeroom replay --memory {}MiB …", limit.get() >> 20)),
            );
            Room::Unknown
        }
        _ => room,
    }
}
