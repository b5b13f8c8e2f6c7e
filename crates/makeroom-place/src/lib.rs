//! Placement policies over offsets: where a block goes, without memory and without unsafe code.
//!
//! A policy assigns offsets in a space of regions. It knows neither the contents of blocks nor the caller. A pool adds
//! a base address to the offsets; a simulator only counts them. Both run this code, so simulated results apply to the
//! code that ships.
//!
//! ```text
//! placement.rs   the interface of a policy           tiles.rs        regions divided into tiles, and merging
//! space.rs       tiles + an index = a policy         by_size.rs      best fit
//! validate.rs    a slow, obviously correct checker   by_address.rs   first fit
//! conformance.rs the test suite for policies         bins.rs         BFC: best fit with its own rule for splitting
//! size_map.rs    an ordered map by size and address  pool/           the pool's policy, over pages that move
//! paged/         pages under addresses that PyTorch chose
//! ```
//!
//! Not here: streams, drivers, and when to grow and by how much. Those belong to an allocator, not to a policy.
#![forbid(unsafe_code)]

mod bins;
mod by_address;
mod by_size;
mod conformance;
pub mod paged;
mod placement;
pub mod pool;
mod size_map;
mod sorted;
mod space;
mod tiles;
mod validate;

pub use bins::Bins;
pub use by_address::ByAddress;
pub use by_size::BySize;
pub use conformance::conformance;
pub use placement::{NotPlaced, Offset, Placement, Region, Report};
pub use size_map::SizeMap;
pub use space::{BestFit, Bfc, FirstFit, Hole, Index, REGION_ALIGNMENT, Space};
pub use tiles::{Tile, TileId, Tiles};
pub use validate::{Validated, Violation};
