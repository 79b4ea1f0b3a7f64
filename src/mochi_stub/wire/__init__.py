"""The wires: each reads requests of one provider, and writes replies in that provider's words."""
