//! The groups of allocations as columns: kind, module, stage and thread, as `makeroom why --by` names them.
//!
//! All devices share the dictionary of a column: pyarrow cannot group by a column whose pieces have different ones.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, DictionaryArray, StringArray, UInt32Array};
use makeroom_core::{DeviceIndex, DeviceTrace, Trace};
use makeroom_explain::{By, GroupNames};
use makeroom_kind::{Allocation, Kinds};

/// The columns, in order. Every allocation has a kind.
pub(crate) const COLUMNS: [(&str, bool); 4] =
    [("kind", false), ("module", true), ("stage", true), ("thread", true)];

/// The entries of a dictionary, each text once.
#[derive(Default)]
pub(crate) struct Texts {
    keys: HashMap<String, u32>,
    texts: StringBuilder,
}

impl Texts {
    /// The key of a text, which is added if it is new.
    pub(crate) fn key(&mut self, text: &str) -> u32 {
        if let Some(&key) = self.keys.get(text) {
            return key;
        }
        let key = self.keys.len() as u32;
        self.keys.insert(text.to_owned(), key);
        self.texts.append_value(text);
        key
    }

    /// The texts, by key.
    pub(crate) fn finish(mut self) -> Arc<StringArray> {
        Arc::new(self.texts.finish())
    }
}

/// The groups of all allocations of some devices.
pub(crate) struct Groups {
    texts: [Arc<StringArray>; 4],
    /// The groups of each allocation, in the order of `makeroom_core::lifetimes`.
    keys: HashMap<DeviceIndex, [Vec<Option<u32>>; 4]>,
}

impl Groups {
    pub(crate) fn new<'trace>(
        trace: &'trace Trace,
        devices: impl Iterator<Item = &'trace DeviceTrace>,
    ) -> Self {
        let mut texts: [Texts; 4] = Default::default();
        let keys = devices
            .map(|device| {
                let kinds = Kinds::new(trace, device);
                let all = kinds.allocations();
                let [of_kind, of_module, of_stage, of_thread] = &mut texts;
                let keys = [
                    all.iter().map(|one| Some(of_kind.key(one.kind.id()))).collect(),
                    named(trace, device, By::Module, all, of_module),
                    named(trace, device, By::Stage, all, of_stage),
                    named(trace, device, By::Thread, all, of_thread),
                ];
                (device.device, keys)
            })
            .collect();
        Self { texts: texts.map(Texts::finish), keys }
    }

    /// The columns of the allocations at these positions.
    pub(crate) fn columns(&self, device: DeviceIndex, listed: &[usize]) -> impl Iterator<Item = ArrayRef> {
        self.texts.iter().enumerate().map(move |(column, texts)| {
            let keys = self.keys.get(&device).map(|columns| columns[column].as_slice()).unwrap_or_default();
            let keys: UInt32Array = listed.iter().map(|&at| keys.get(at).copied().flatten()).collect();
            Arc::new(DictionaryArray::<UInt32Type>::new(keys, texts.clone())) as ArrayRef
        })
    }
}

/// The groups of all allocations, which must be named in their order.
fn named(
    trace: &Trace,
    device: &DeviceTrace,
    by: By,
    all: &[Allocation],
    texts: &mut Texts,
) -> Vec<Option<u32>> {
    let mut names = GroupNames::new(trace, device, by);
    all.iter().map(|one| names.find(one).map(|name| texts.key(&name))).collect()
}
