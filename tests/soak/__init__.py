"""Many streams at the same time: every answer is complete, and the server loses neither memory nor
descriptors.
"""
