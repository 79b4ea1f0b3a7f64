"""The only way to the models: the gateway, context windows, token estimates, slots and waiting requests."""

from mochi_server.inference.gateway import FixedPrompt, GatewayObserver, ModelGateway, ModelRequest

__all__ = ["FixedPrompt", "GatewayObserver", "ModelGateway", "ModelRequest"]
