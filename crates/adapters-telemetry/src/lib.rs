//! What the program tells of itself, for the tools of operators: metrics in the form of Prometheus,
//! through the SDK of OpenTelemetry.

mod traces;

pub use traces::{OtlpTracer, TracesError, TracesOptions};
