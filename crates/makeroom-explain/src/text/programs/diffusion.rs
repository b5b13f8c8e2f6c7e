//! Image and video generation: ComfyUI, web UIs, diffusers.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
