//! Rung 03: smaller caches.
