//! The tags of a core's own caches: which lines are still near.

/// Ways of each set.
const WAYS: usize = 8;

/// A set-associative cache with least-recently-used replacement. It knows nothing of coherence: whether a copy that is
/// found is still good, the directory says.
#[derive(Debug)]
pub struct Cache {
    /// Sets of tags, the one used last first; 0 is none, others are a line's number plus one.
    tags: Vec<[u32; WAYS]>,
}

impl Cache {
    /// An empty cache for about `lines` lines.
    pub fn new(lines: usize) -> Self {
        Self { tags: vec![[0; WAYS]; (lines / WAYS).max(1)] }
    }

    /// Whether the line is in; puts it in if not, at the cost of the one used longest ago.
    pub fn touch(&mut self, line: u32) -> bool {
        let set = line as usize % self.tags.len();
        let tags = &mut self.tags[set];
        let tag = line + 1;
        if tags[0] == tag {
            return true;
        }
        let at = tags.iter().position(|t| *t == tag);
        tags[..=at.unwrap_or(WAYS - 1)].rotate_right(1);
        tags[0] = tag;
        at.is_some()
    }
}
