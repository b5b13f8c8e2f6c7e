//! Inference runtimes: TensorRT, ONNX Runtime, OpenVINO, CTranslate2.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
