//! Planted slowdowns: known costs added to an operation, which the check must find.

use crate::{Scene, Worker, raw};
use quietline_platform::atomic::{AtomicU64, Ordering};

/// A cost that is added to each run of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Plain instructions.
    Instructions(u32),
    /// One locked instruction.
    Locked,
    /// One fence.
    Fence,
    /// One system call.
    SystemCall,
    /// One call of a library function that neither allocates nor enters the kernel.
    LibraryCall,
    /// 64 bytes from the C library's allocator, given back.
    Allocation,
    /// 64 bytes from the C library's allocator, kept.
    Leak,
    /// A line that all CPUs write.
    SharedLine,
}

/// Environment variable that plants a slowdown: `OPERATION:PLANT`.
pub(crate) const VARIABLE: &str = "QUIETLINE_COSTS_PLANT";

/// Word that the planted instructions change.
static WORD: AtomicU64 = AtomicU64::new(0);

impl Plant {
    /// Returns the plant for an operation that the environment asks for.
    ///
    /// # Panics
    /// If the variable is malformed.
    pub(crate) fn from_environment(operation: &str) -> Option<Self> {
        let value = std::env::var(VARIABLE).ok()?;
        let (name, plant) = value.split_once(':').expect("OPERATION:PLANT");
        (name == operation).then(|| Self::parse(plant).expect("a plant"))
    }

    /// Returns the plant with this text form.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "locked" => Self::Locked,
            "fence" => Self::Fence,
            "system-call" => Self::SystemCall,
            "library-call" => Self::LibraryCall,
            "allocation" => Self::Allocation,
            "leak" => Self::Leak,
            "shared-line" => Self::SharedLine,
            _ => Self::Instructions(text.strip_prefix("instructions=")?.parse().ok()?),
        })
    }

    /// Returns the text form.
    pub fn text(self) -> String {
        match self {
            Self::Instructions(n) => format!("instructions={n}"),
            Self::Locked => "locked".into(),
            Self::Fence => "fence".into(),
            Self::SystemCall => "system-call".into(),
            Self::LibraryCall => "library-call".into(),
            Self::Allocation => "allocation".into(),
            Self::Leak => "leak".into(),
            Self::SharedLine => "shared-line".into(),
        }
    }

    /// Pays the cost once.
    fn pay(self) {
        match self {
            Self::Instructions(n) => raw::execute(n),
            // Relaxed: the word orders nothing.
            Self::Locked => drop(core::hint::black_box(&WORD.fetch_add(1, Ordering::Relaxed))),
            Self::Fence => raw::fence(),
            Self::SystemCall => raw::system_call(),
            Self::LibraryCall => raw::library_call(),
            Self::Allocation => drop(core::hint::black_box(Box::new([0_u8; 64]))),
            Self::Leak => drop(core::hint::black_box(Box::leak(Box::new([0_u8; 64])))),
            // Relaxed: as above.
            Self::SharedLine => WORD.store(WORD.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
        }
    }

    /// Returns the scene with the cost added to each run of its workers.
    pub(crate) fn add_to(self, scene: Scene) -> Scene {
        Box::new(move |cpu| -> Worker {
            let mut worker = scene(cpu);
            Box::new(move || {
                worker();
                self.pay();
            })
        })
    }
}
