"""What clients of OpenAI's API find at ``/v1``: the official one, and an agent library on top of it."""
