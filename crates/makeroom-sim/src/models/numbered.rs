//! A model's data for each allocation, by number.

/// A value for each live allocation.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    values: Vec<Option<T>>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T> Numbered<T> {
    pub(crate) fn insert(&mut self, number: u32, value: T) {
        let index = number as usize;
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        self.values[index] = Some(value);
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        self.values.get_mut(number as usize)?.take()
    }
}
