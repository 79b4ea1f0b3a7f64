"""Client frameworks against the packaged models of the stub. Their packages are in the dependency group `frameworks`."""
