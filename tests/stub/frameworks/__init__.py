"""Client frameworks with the packaged models of the stub.

The dependency group `frameworks` has their packages.
"""
