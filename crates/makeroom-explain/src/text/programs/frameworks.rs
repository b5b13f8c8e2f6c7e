//! Frameworks themselves, where no application is recognized: JAX, TensorFlow, PaddlePaddle, MXNet, Julia.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
