//! Ranges of sizes and of costs. What is too large stays the largest number.

/// Between how many and how many elements or characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeEstimate {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// What something costs at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as upstream")]
fn scale(n: u64, factor: f64) -> u64 {
    let product = (n as f64 * factor).ceil();
    // Conversions stop at the largest number.
    product as u64
}

impl SizeEstimate {
    pub(super) const UNKNOWN: SizeEstimate = SizeEstimate { min: 0, max: u64::MAX };

    pub(super) fn fixed(size: u64) -> Self {
        SizeEstimate { min: size, max: size }
    }

    pub(super) fn add(self, other: Self) -> Self {
        SizeEstimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        SizeEstimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        SizeEstimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(super) fn times_factor(self, factor: f64) -> CostEstimate {
        CostEstimate { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(super) fn times_cost(self, cost: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(cost.min), max: self.max.saturating_mul(cost.max) }
    }
}

impl CostEstimate {
    pub(super) fn fixed(cost: u64) -> Self {
        CostEstimate { min: cost, max: cost }
    }

    pub(super) fn add(self, other: Self) -> Self {
        CostEstimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        CostEstimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        CostEstimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(super) fn times_factor(self, factor: f64) -> Self {
        CostEstimate { min: scale(self.min, factor), max: scale(self.max, factor) }
    }
}
