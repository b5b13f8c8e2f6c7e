//! What is there by address: a last-writer-wins register for each, ordered by the events' own times.
//!
//! A free is stamped before its call and recorded after it, which can be seconds later. If the address was reused in
//! between, the new block is newer than the free and stays.

use makeroom_core::FastMap;

use super::Seen;
use crate::room::ContextHandle;

/// Kinds of addresses, which do not end each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Block,
    Array,
    Graph,
    Tensor,
    Pinned,
    Addresses,
    Foreign,
    Import,
    Code,
    Pool,
    Context,
}

impl Class {
    /// Whether the memory ends with its context.
    fn ends_with_context(self) -> bool {
        matches!(self, Self::Block | Self::Array | Self::Graph | Self::Tensor)
    }
}

/// The registers.
#[derive(Clone, Debug, Default)]
pub(super) struct Register {
    began: FastMap<(Class, u64), Seen>,
}

impl Register {
    /// An event that begins something.
    pub(super) fn begin(&mut self, class: Class, key: u64, seen: Seen) {
        let place = self.began.entry((class, key)).or_insert(seen);
        if place.event.time_ns <= seen.event.time_ns {
            *place = seen;
        }
    }

    /// An event that ends it.
    pub(super) fn end(&mut self, class: Class, key: u64, time_ns: u64) {
        let key = (class, key);
        if self.began.get(&key).is_some_and(|seen| seen.event.time_ns <= time_ns) {
            self.began.remove(&key);
        }
    }

    /// Everything that ends with a context.
    pub(super) fn end_context(&mut self, context: ContextHandle) {
        if context.0 != 0 {
            self.began
                .retain(|&(class, _), seen| seen.event.context != context || !class.ends_with_context());
        }
    }

    /// The events that began what is still there.
    pub(super) fn events(&self) -> impl Iterator<Item = &Seen> {
        self.began.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{Event, ThreadNumber};

    #[test]
    fn a_free_that_is_recorded_late_leaves_the_next_block() {
        let at = |time_ns| Seen { thread: ThreadNumber(1), event: Event { time_ns, ..Event::default() } };
        let mut register = Register::default();
        register.begin(Class::Block, 7, at(1));
        register.begin(Class::Tensor, 7, at(2));
        register.begin(Class::Block, 7, at(5));
        register.end(Class::Block, 7, 3);
        assert_eq!(register.events().count(), 2, "the block of 5 and the tensor");
        register.end(Class::Block, 7, 6);
        assert_eq!(register.events().map(|seen| seen.event.time_ns).collect::<Vec<_>>(), [2]);
    }
}
