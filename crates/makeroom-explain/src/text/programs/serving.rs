//! LLM servers: vLLM, SGLang, TGI, LMDeploy, TensorRT-LLM.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
