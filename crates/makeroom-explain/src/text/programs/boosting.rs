//! Gradient boosting on the GPU: XGBoost, LightGBM, CatBoost.

use super::Program;

pub(super) const PROGRAMS: &[&Program] = &[];
