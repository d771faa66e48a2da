//! Chance that comes again.

/// Numbers by chance that are the same with the same seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of that seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}
