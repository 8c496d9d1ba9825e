//! PTX on the CPU: the checked-in kernels run here without a GPU, and are watched while they do.
//!
//! [`ptx`] is the front end: it turns PTX text into a decoded form that is run without looking at a string again. What it does not
//! know is an error; nothing is skipped. It knows neither memory nor machines.

pub mod ptx;
