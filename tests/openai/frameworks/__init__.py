"""Frameworks as clients of `/v1`. The dependency group `frameworks` has their packages."""
