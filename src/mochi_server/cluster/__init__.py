"""Cooperation of servers with one database: requests about a turn are forwarded to the process that runs the turn."""
