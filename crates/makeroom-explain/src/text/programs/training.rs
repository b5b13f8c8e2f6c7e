//! Training programs on PyTorch: Trainer, Lightning, DeepSpeed, detectors, speech.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
