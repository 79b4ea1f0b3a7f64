"""Forwarding between servers that share a database: requests about a turn go to the process that
runs the turn.
"""
