//! Tries what a host does, and says what it saw.
//!
//! Each path names an experiment; the answer's body has a line for each thing tried. `envoy.txt` beside this
//! crate lists the experiments and the lines: the real Envoy and the simulated one must both answer so, and
//! `kong.txt` is what the simulated Kong must say. A host that changes is noticed here, and not by the filter.
//!
//! The ABI is used bare: the SDK would panic at half of what is tried.

#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "host calls are foreign functions")]

mod abi;
mod callbacks;
mod experiments;
