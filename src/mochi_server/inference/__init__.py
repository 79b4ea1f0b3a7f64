"""The only way to the models: the gateway, context windows, token estimates, slots and waiting
requests.
"""

from mochi_server.inference.gateway import GatewayObserver, ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest

__all__ = ["FixedPrompt", "GatewayObserver", "ModelGateway", "ModelRequest"]
