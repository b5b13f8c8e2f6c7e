//! Everything that advice depends on: the failure, its account, the program, the machine, what is already set.

use std::cell::OnceCell;

use makeroom_core::{Bytes, DeviceIndex};

use crate::context::Context;
use crate::environment::Environment;
use crate::facts::Facts;
use crate::judge::Account;
use crate::knobs::Knob;
use crate::language::Language;
use crate::log::Log;
use crate::programs::{self, Program, Work};
use crate::searched::Searched;
use crate::settings::{EXPANDABLE, Settings};
use crate::smaller::BATCH;
use crate::smi_table::{self, Table};

/// A failure with all that surrounds it.
pub(crate) struct Situation<'log> {
    pub(crate) facts: &'log Facts,
    pub(crate) account: Account<'log>,
    pub(crate) context: &'log Context,
    pub(crate) environment: Environment,
    pub(crate) settings: Settings<'log>,
    pub(crate) program: &'static Program,
    pub(crate) language: Language,
    /// The text's own settings, read once they are needed.
    pub(crate) knobs: OnceCell<Vec<Knob>>,
    /// The tables of devices in the text, read once they are needed.
    pub(crate) device_tables: OnceCell<Vec<Table>>,
}

impl<'log> Situation<'log> {
    /// Looks at the text around the failure in this line of a log.
    pub(crate) fn new(log: &'log Log, failure: usize, facts: &'log Facts, context: &'log Context) -> Self {
        let text = Searched::around(log.text(), log.offset(failure));
        Self {
            facts,
            account: Account::new(facts),
            context,
            environment: Environment::read(text, facts.framework),
            settings: Settings::new(text),
            program: programs::detect(text, facts),
            language: Language::from_text(text),
            knobs: OnceCell::new(),
            device_tables: OnceCell::new(),
        }
    }

    /// Whether the program serves or generates, so that batches and gradients are not its levers.
    pub(crate) fn is_inference(&self) -> bool {
        match self.program.work {
            Work::Training => false,
            Work::Inference => true,
            Work::Other => {
                !self.is_training() && INFERENCE_WORDS.iter().any(|words| self.settings.mentions(words))
            }
        }
    }

    /// Whether the program trains.
    pub(crate) fn is_training(&self) -> bool {
        match self.program.work {
            Work::Training => true,
            Work::Inference => false,
            Work::Other => {
                let says = |words: &[&str]| words.iter().any(|words| self.settings.mentions(words));
                // Ranks without a word of inference train.
                says(&TRAINING_WORDS) || self.settings.mentions("[rank") && !says(&INFERENCE_WORDS)
            }
        }
    }

    /// The batch size, if the text names it: near the failure, or as an option anywhere.
    pub(crate) fn batch(&self) -> Option<u64> {
        let option = || {
            let batch = self.settings.number(BATCH).or_else(|| self.settings.number(&["samples_per_gpu"]));
            batch.filter(|&batch| batch >= 1.0).map(|batch| batch as u64)
        };
        self.facts.batch.or(self.context.batch).or_else(option).or(self.context.batch_told)
    }

    /// Whether PyTorch is older than 1.10, which has no allocator settings. Messages of 1.4 and before say "cached"
    /// where later ones say "reserved"; the library below was called THC.
    pub(crate) fn is_early_torch(&self) -> bool {
        let quote = &self.facts.quote;
        let is_early_wording = quote.contains(" already allocated; ")
            && quote.contains(" cached)")
            && !quote.contains("reserved")
            || quote.contains("/THC/")
            || quote.contains("(malloc at ")
            || quote.contains("THCudaCheck");
        let is_early_python = self.environment.python.is_some_and(|version| version < (3, 6));
        let is_torch = self.facts.framework.is_torch() || is_early_wording;
        is_torch
            && self.environment.torch.map_or(is_early_wording || is_early_python, |version| version < (1, 10))
    }

    /// Whether PyTorch's expandable segments are on.
    pub(crate) fn is_expandable_on(&self) -> bool {
        self.settings.configures_allocator(EXPANDABLE)
    }

    /// The factor to shrink the program's own memory by so that the request fits with a margin: live memory plus
    /// the request must come down to the room there is. `None` where the figures do not say.
    pub(crate) fn shrink_factor(&self) -> Option<f64> {
        let (live, request) = (self.facts.live?, self.facts.request?);
        let short = self.account.missing()?;
        let needed = live + request;
        let margin = needed.scaled(MARGIN);
        Some(((needed - short) - margin).share_of(needed)).filter(|&factor| factor > 0.0 && factor < 1.0)
    }

    /// A count scaled down so that memory that grows with it fits; half where the figures do not say.
    pub(crate) fn smaller(&self, count: u64) -> u64 {
        let factor = self.shrink_factor().unwrap_or(0.5);
        ((count as f64 * factor).floor() as u64).clamp(1, count.saturating_sub(1).max(1))
    }

    /// A batch that fits and divides the present one, so that accumulated gradients keep the effective batch.
    pub(crate) fn smaller_batch(&self, batch: u64) -> u64 {
        let most = self.smaller(batch);
        (1..=most.min(LARGEST_BATCH)).rev().find(|divisor| batch.is_multiple_of(*divisor)).unwrap_or(1)
    }

    /// A device with room for the request, where the text has a table of all devices.
    pub(crate) fn emptier_device(&self) -> Option<(DeviceIndex, Bytes)> {
        let failed = self.facts.device.unwrap_or(DeviceIndex(0));
        let devices = self.last_device_table()?.devices.iter();
        let devices = devices.filter_map(|row| Some((row.device?, row.total - row.used)));
        devices
            .filter(|&(device, free)| {
                device != failed && self.facts.request.is_none_or(|request| free > request)
            })
            .filter(|&(_, free)| free >= Bytes::gib(1))
            .max_by_key(|&(_, free)| free)
    }

    /// The number of devices, where the text has a table of them.
    pub(crate) fn device_count(&self) -> Option<usize> {
        self.last_device_table().map(|table| table.devices.len()).filter(|&count| count > 0)
    }

    fn last_device_table(&self) -> Option<&Table> {
        let read = || smi_table::tables(self.settings.parts().into_iter().flat_map(str::lines));
        self.device_tables.get_or_init(read).last()
    }

    /// Whether the failure came while the program started: it loads, initializes or moves a model.
    pub(crate) fn is_at_start(&self) -> bool {
        START_WORDS.iter().any(|words| self.settings.mentions(words))
    }

    /// Memory that must be freed for the request to fit, where size is what failed it: the request less what is free.
    pub(crate) fn to_free(&self) -> Option<Bytes> {
        self.account.missing().filter(|_| !self.account.is_contradictory())
    }

    /// A twentieth of the GPU, if that is more: the allocations after the one that failed need memory too.
    pub(crate) fn margin(&self, to_free: Bytes) -> Option<Bytes> {
        self.facts.total.map(|total| total.scaled(MARGIN)).filter(|&margin| margin > to_free)
    }
}

/// Batches above this are not batches.
const LARGEST_BATCH: u64 = 1 << 20;
/// Words of a training loop.
const TRAINING_WORDS: [&str; 14] = [
    "训练",
    "微调",
    "fine tune",
    "backward(",
    "optimizer",
    "trainer",
    "train.py",
    "training",
    "to train ",
    "train_",
    "finetune",
    "finetuning",
    "fine-tuning",
    "epoch",
];
/// Words of a program that starts.
const START_WORDS: [&str; 17] = [
    "model.to(",
    ".cuda()",
    "module.to(",
    "load_state_dict",
    "torch.load",
    "during initialization",
    "device_put",
    "CtxCreate",
    "PRNGKey",
    "require 'cutorch'",
    "StreamCreate",
    "cudaSetDevice",
    "cuInit",
    "cudaGetDevice",
    "cublasCreate",
    "cudnnCreate",
    "init_cublas",
];
/// Words of a program that only runs a model.
const INFERENCE_WORDS: [&str; 9] = [
    "inference",
    "generate(",
    "predict",
    "demo.py",
    "pipeline(",
    "infer.py",
    "no_grad",
    "sampling",
    "decode",
];

/// The allocation after the failed one needs memory too: aim for this much more than the shortfall.
const MARGIN: f64 = 0.05;
