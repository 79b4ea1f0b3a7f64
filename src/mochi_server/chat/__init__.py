"""Chat turns: from the user message to the stored answer."""

from mochi_server.chat.approvals import ApprovalService

__all__ = ["ApprovalService"]
