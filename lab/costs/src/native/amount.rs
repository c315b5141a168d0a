//! Counts with up to three decimals.

use core::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A count per operation, in thousandths. Most counts are whole; means over many operations are
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(u64);

impl Amount {
    /// A whole count.
    pub fn whole(count: u64) -> Self {
        Self(count * 1000)
    }

    /// The mean of `total` over `n`, rounded up.
    pub fn mean(total: u64, n: u64) -> Self {
        Self((total * 1000).div_ceil(n.max(1)))
    }

    /// Thousandths.
    pub fn thousandths(self) -> u64 {
        self.0
    }

    /// Returns whether this is more than `percent` above `before`.
    pub fn exceeds(self, before: Self, percent: u64) -> bool {
        u128::from(self.0) * 100 > u128::from(before.0) * u128::from(100 + percent)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            f.pad(&whole.to_string())
        } else {
            f.pad(format!("{whole}.{rest:03}").trim_end_matches('0'))
        }
    }
}

impl FromStr for Amount {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
        // More than three decimals do not parse: "0.0001" has a rest of 4 digits.
        let padded = format!("{rest:0<3}");
        let rest: u64 = if padded.len() == 3 { padded.parse()? } else { "too long".parse()? };
        Ok(Self(whole.parse::<u64>()? * 1000 + rest))
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn text_and_back() {
        for text in ["0", "7", "12.5", "0.001", "3.25", "1000"] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), text);
        }
        assert_eq!("1.50".parse::<Amount>().unwrap().to_string(), "1.5");
        for wrong in ["", ".5", "-1", "1.0001", "1.x", "x"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn means_are_rounded_up() {
        assert_eq!(Amount::mean(1, 4096).to_string(), "0.001");
        assert_eq!(Amount::mean(4096, 4096), Amount::whole(1));
        assert_eq!(Amount::mean(0, 4096), Amount::whole(0));
        assert_eq!(Amount::mean(4, 4096).to_string(), "0.001");
        assert_eq!(Amount::mean(5, 4096).to_string(), "0.002");
    }

    #[test]
    fn the_limit_itself_is_not_exceeded() {
        let exceeds =
            |after, before, percent| Amount::whole(after).exceeds(Amount::whole(before), percent);
        assert!(!exceeds(101, 100, 1) && exceeds(102, 100, 1) && !exceeds(99, 100, 1));
        assert!(exceeds(1, 0, 1) && !exceeds(0, 0, 1));
        assert!(!exceeds(2, 2, 0) && exceeds(3, 2, 0));
        assert!(!exceeds(103, 100, 3) && exceeds(104, 100, 3));
    }
}
