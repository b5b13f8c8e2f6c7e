//! Simulation and cryo-EM: LAMMPS, GROMACS, OpenMM, AMBER, Relion, AlphaFold.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
