//! The objects that dicts and lists of a snapshot become.

use makeroom_core::{FrameId, StackId};

/// The state or the meaning of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// Open, and empty so far.
    NewDict,
    NewList,
    /// Open, with an index in the heap's table of open dicts or open lists.
    OpenDict(u32),
    OpenList(u32),
    /// Closed: an empty list or tuple.
    Empty,
    /// Closed: a row of the event columns.
    Event(u32),
    Frame(FrameId),
    Stack(StackId),
    /// Closed, with an index in the heap's table of the same name.
    EventList(u32),
    Pool(u32),
    Block(u32),
    Segment(u32),
    Annotation(u32),
    Tenant(u32),
    List(u32),
    Record(u32),
    /// Closed: irrelevant.
    Nothing,
}

impl Object {
    /// The index of an event list.
    pub(super) fn event_list(self) -> Option<u32> {
        if let Self::EventList(position) = self { Some(position) } else { None }
    }

    /// The index of a block.
    pub(super) fn block(self) -> Option<u32> {
        if let Self::Block(position) = self { Some(position) } else { None }
    }

    /// The index of a segment.
    pub(super) fn segment(self) -> Option<u32> {
        if let Self::Segment(position) = self { Some(position) } else { None }
    }

    /// The index of an annotation.
    pub(super) fn annotation(self) -> Option<u32> {
        if let Self::Annotation(position) = self { Some(position) } else { None }
    }

    /// The index of a list.
    pub(super) fn list(self) -> Option<u32> {
        if let Self::List(position) = self { Some(position) } else { None }
    }

    /// Whether keys or items may be added.
    #[inline]
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::NewDict | Self::NewList | Self::OpenDict(_) | Self::OpenList(_))
    }
}
