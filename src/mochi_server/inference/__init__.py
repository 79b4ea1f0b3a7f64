"""The only way to the models: the gateway, context windows, token estimates, slots and waiting requests."""
