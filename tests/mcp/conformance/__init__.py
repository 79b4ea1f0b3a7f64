"""The conformance tests of the Model Context Protocol, with mochi-server as the client."""
