//! The answer to bytes that are no message.

use riglm_domain::message::{MessageError, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};

/// Returns the error that answers bytes which could not be read as a message, and whom it answers.
pub(super) fn unreadable(error: MessageError) -> (RpcError, Option<RequestId>) {
    match error {
        MessageError::NotUtf8(_) | MessageError::NotJson(_) => (
            RpcError::new(RpcErrorCode::ParseError, error.to_string()),
            None,
        ),
        MessageError::NotJsonRpc { reason, id } => {
            let text = format!("message is not JSON-RPC 2.0: {reason}");
            (RpcError::new(RpcErrorCode::InvalidRequest, text), id)
        }
    }
}

/// Returns the error that answers a message over the limit.
pub(super) fn too_large(limit: usize) -> RpcError {
    RpcError::new(
        RpcErrorCode::InvalidRequest,
        format!("message is larger than {limit} bytes"),
    )
}
