//! A set of virtual CPUs.

/// CPUs that a model may have.
pub const MAX_CPUS: usize = 256;

/// A set of CPU numbers below [`MAX_CPUS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuSet([u64; MAX_CPUS / 64]);

impl CpuSet {
    /// The set of one CPU.
    pub fn of(cpu: usize) -> Self {
        let mut set = Self::default();
        set.insert(cpu);
        set
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Takes a CPU out.
    pub fn remove(&mut self, cpu: usize) {
        self.0[cpu / 64] &= !(1 << (cpu % 64));
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0[cpu / 64] & (1 << (cpu % 64)) != 0
    }

    /// CPUs in it.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; MAX_CPUS / 64]
    }

    /// Who is in either.
    pub fn union(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The CPUs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(i * 64 + bit)
            })
        })
    }
}
