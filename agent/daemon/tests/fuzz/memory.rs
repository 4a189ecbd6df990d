//! Counter of the bytes that the process has allocated, and of their maximum.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; each call is handed on as it came"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a counter.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn taken(octets: usize) {
    let allocated = ALLOCATED.fetch_add(octets, Ordering::Relaxed) + octets;
    MOST.fetch_max(allocated, Ordering::Relaxed);
}

fn on_dealloc(octets: usize) {
    ALLOCATED.fetch_sub(octets, Ordering::Relaxed);
}

// SAFETY: every method passes its arguments to the system's allocator and returns its result.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        on_dealloc(layout.size());
        // SAFETY: as above; the pointer came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks may exist for a moment.
        taken(size);
        // SAFETY: as above; the pointer came from the system's allocator.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        on_dealloc(layout.size());
        moved
    }
}

/// Runs `act`; returns its result, and the largest increase of allocated bytes meanwhile.
pub(crate) fn peak_during<R>(act: impl FnOnce() -> R) -> (R, usize) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = act();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}
