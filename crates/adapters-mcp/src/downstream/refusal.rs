//! Error responses to bytes that are not a message.

use riglm_domain::mcp::message::{MessageError, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};

/// Returns the error for bytes that cannot be parsed as a message, with the id of the request if it
/// is known.
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

/// Returns the error for a message over the size limit.
pub(super) fn too_large(limit: usize) -> RpcError {
    let text = format!("message is larger than {limit} bytes");
    RpcError::new(RpcErrorCode::InvalidRequest, text)
}
