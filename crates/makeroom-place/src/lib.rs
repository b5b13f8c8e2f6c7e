//! Placement policies over offsets: where a block goes, without memory and without unsafe code.
//!
//! A policy hands out offsets in a space of regions. It neither knows what is stored there nor who asked; a pool
//! adds a base address to its offsets, a simulator only counts them. Both run this code, so a simulated result is
//! about shipped code.
//!
//! ```text
//! placement.rs   what every policy can do            tiles.rs        regions cut into tiles, and merging
//! space.rs       tiles + an index = a policy         by_size.rs      best fit
//! validate.rs    a slow, obviously right referee     by_address.rs   first fit
//! conformance.rs what every policy must pass         bins.rs         BFC, best fit with its own rule for cutting
//! size_map.rs    an ordered map by size and address  pool/           the pool's policy, over pages that move
//! ```
//!
//! Not here: streams, drivers, when to grow and by how much. Those are an allocator's, not a policy's.
#![forbid(unsafe_code)]

mod bins;
mod by_address;
mod by_size;
mod conformance;
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
