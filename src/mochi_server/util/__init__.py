"""Helpers that know nothing of chats."""
