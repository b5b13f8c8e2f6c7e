//! A model's data for each live allocation, by slot.

/// A value for each slot in use.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    values: Vec<Option<T>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, slot: u32, value: T) {
        let index = slot as usize;
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        self.values[index] = Some(value);
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<T> {
        self.values.get_mut(slot as usize)?.take()
    }
}
